"""Peers for the tests here, beside those of ``haclient.testing.peers``: every behaviour, and a good primary.

    async with primary() as good, BEHAVIOURS["redirect_after_open"](good) as passive:
        ...aio.connect(url(passive, good))...

``primary``    a member that serves, and writes down what it sees
``parking``    a member that parks clients until it is promoted
``process``    primaries in a process of their own
``apis``       both APIs of the client behind one set of names
``watch``      a client's events, and waiting for one
"""

from __future__ import annotations

from haclient.testing.peers import BEHAVIOURS, Behaviour, Peer, url
from tests.peers.primary import Primary, primary

__all__ = ["BEHAVIOURS", "Behaviour", "Peer", "Primary", "primary", "url"]
