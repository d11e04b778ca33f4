"""A connection of a container that a passive member parks (docs/storms.md)."""

from __future__ import annotations

from typing import Any

from proton import Message

from haclient.reactor import Container
from haclient.testing.peers.listening import url
from haclient.testing.peers.passive import redirection
from tests.dropin.recorder import FAST, Recorder, running, sending
from tests.peers.parking import Member, member

OPENED = ["connection_opened", "session_opened", "link_opened", "sendable"]


def stop(peer: Member) -> None:
    """Stop serving, and redirect every client."""
    peer.serving = peer.offers = False
    peer.drop()


async def test_handlers_see_a_connection_when_the_member_that_holds_it_serves() -> None:
    async with member(serving=True) as first, member() as second:
        handler = Recorder(sending(first, second))
        async with running(handler):
            await handler.until("sendable")
            stop(first)
            await second.until(lambda: any(second.parked.values()))
            assert handler.seen[-1] == "disconnected"
            second.promote()
            await handler.until("sendable", 2)
            handler.connection.close()
        seen = [name for name in handler.seen if name != "transport_error"]
        assert seen == ["start", *OPENED, "disconnected", *OPENED, "connection_closed"]


async def test_a_member_that_closes_those_that_it_parked_is_no_further_loss() -> None:
    async with member(serving=True) as first, member() as second, member(serving=True) as third:

        def connect(container: Container) -> Any:
            connection = container.connect(url(first, second), redirects="any", **FAST)
            container.create_sender(connection, "orders").send(Message(body="before"))
            return connection

        handler = Recorder(connect)
        async with running(handler):
            await handler.until("accepted")
            stop(first)
            await second.until(lambda: any(second.parked.values()))
            second.close_parked(redirection(third))
            await handler.until("connection_opened", 2)
            handler.connection.close()
        assert handler.seen.count("disconnected") == 1
        assert len(third.accepted) == 1
