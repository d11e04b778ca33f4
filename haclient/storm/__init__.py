"""A real reconnect storm: thousands of connections, a primary that is killed, and what came of it.

Theory of operation
-------------------
``course`` is the story: a cluster (``stage``), worker processes with the clients (``fleet``), the kill,
the wait, the count.  Each kind of client is one worker program; all of them take the same commands and
write the same lines (``lines``), so that nothing after them knows which client it is about.  ``book``
keeps what they said, ``figures`` makes the numbers of it, together with what the members wrote down
themselves (``member_lines``) and what they took of the machine (``footprint``).

Every time is CLOCK_MONOTONIC, which all processes of a Linux machine share.
"""
