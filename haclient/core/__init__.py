"""What survives a failover: connections, senders and receivers that outlive their sockets.

* ``connection``   one connection: it searches, uses a session, and searches again after each loss
* ``link_set``     its links, and ``event_publisher``: its events
* ``waiting``      logs that calls wait for a primary
* ``attach``       what happens when a peer refuses a link, or ends the connection for it
* ``episode``      executes the decisions of one search until a session is usable or the search gives up
* ``attempt``      one attempt at one endpoint, from TCP connect to a usable session
* ``failures``     what a failed attempt means
* ``container_id`` the id in the Opens of a connection
* ``cluster``      what the connections of one factory share: topology, dials, the owner of the search
* ``standby``      one parked connection beside the live one
* ``sender``, ``ledger``, ``message_encoder``   messages sent and not settled
* ``receiver``, ``delivery``                    messages received and not settled
* ``quirks``       what a broker needs beyond the specification

Everything here runs on one event loop, and nothing is locked.
"""

from __future__ import annotations
