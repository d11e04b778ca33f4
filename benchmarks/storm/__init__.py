"""A real reconnect storm: thousands of connections, a primary that is killed, and the figures.

Theory of operation
-------------------
``run`` has the steps: start a cluster (``environment``) and worker processes with the clients (``fleet``),
kill, wait, count.  Each kind of client is one worker program; all of them take the same commands and
write the same lines (``lines``), so the other modules do not depend on the kind.  ``results`` collects
the lines, ``figures`` computes the numbers from them, from the members' own telemetry
(``member_lines``) and from their use of the machine (``footprint``).  ``flood`` measures newcomers at a
live primary, ``report`` prints.

Every time is CLOCK_MONOTONIC, which all processes of a Linux machine share.
"""
