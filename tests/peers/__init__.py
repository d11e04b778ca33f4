"""Peers for these tests, in addition to ``haclient.testing.peers``: scripted brokers, members and a good
primary.

    async with primary() as good, BEHAVIOURS["redirect_after_open"](good) as passive:
        ...aio.connect(url(passive, good))...

``primary``    a member that serves, and records its input
``parking``    a member that parks clients until it is promoted
``process``    primaries in a separate process
``apis``       both APIs of the client with one set of names
``watch``      collects a client's events, and waits for one
"""

from __future__ import annotations

from haclient.testing.peers import BEHAVIOURS, Behaviour, Peer, url
from tests.peers.primary import Primary, primary

__all__ = ["BEHAVIOURS", "Behaviour", "Peer", "Primary", "primary", "url"]
