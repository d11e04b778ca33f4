"""A reconnect storm with real connections: kill the primary of thousands of clients and measure their return.

Theory of operation
-------------------
``run`` has the steps: start a cluster (``environment``) and worker processes with the clients (``fleet``),
kill the primary, wait, count.  Each kind of client is one worker program.  All workers read the same commands
and write the same lines (``lines``), so the other modules do not depend on the kind.  ``results`` collects
the lines.  ``figures`` computes the numbers from them, from the members' telemetry (``member_lines``) and
from their use of the machine (``footprint``).  ``flood`` measures newcomers at a live primary, ``report``
prints.

Every time is CLOCK_MONOTONIC, which all processes of a Linux machine share.
"""
