"""Connections, senders and receivers that outlive their sockets.

* ``connection``   one connection: searches, uses a session, and searches again after each loss
* ``link_set``     its links; ``event_publisher``: its events
* ``waiting``      log warnings while calls wait for a primary
* ``attach``       handling of refused links, and of links that end their connection
* ``episode``      runs one search until a session is usable or the search gives up
* ``attempt``      one attempt at one endpoint, from TCP connect to a usable session
* ``failures``     classification of failed attempts
* ``container_id`` the container id in the Opens of a connection
* ``cluster``      state shared by the connections of one factory: topology, dials, search owner
* ``standby``      one parked connection, kept beside the live one
* ``sender``, ``ledger``, ``message_encoder``   messages sent and not settled
* ``receiver``, ``delivery``                    messages received and not settled
* ``quirks``       deviations of brokers from the specification

Everything here runs on one event loop and needs no locks.
"""

from __future__ import annotations
