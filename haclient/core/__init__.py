"""What survives a failover: connections, senders and receivers that outlive their sockets.

* ``cluster``     what the connections of one factory share: topology, dials, the owner of the search
* ``attempt``     one try at one endpoint, from TCP connect to a usable session
* ``failures``    what a failed attempt means
* ``episode``     drives the search until a session is usable or the policy says stop
* ``standby``     one parked connection beside the live one
* ``connection``  one connection: its episodes, its links, its events
* ``sender``, ``ledger``     messages sent and not settled
* ``receiver``, ``delivery`` messages received and not settled
* ``quirks``      what a broker needs beyond the specification

Everything here runs on one event loop, and nothing is locked.
"""

from __future__ import annotations
