"""An owner may abort its connection in any callback: the engine must not touch proton's freed objects."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.pair import Owner, pair


def abort_in(owner: Owner, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make an owner abort its connection in one of its callbacks."""
    original = getattr(Owner, call)

    def aborting(self: Owner, *arguments: Any) -> None:
        original(self, *arguments)
        if self is owner:
            assert self.engine is not None
            self.engine.abort()

    monkeypatch.setattr(Owner, call, aborting)


@pytest.mark.parametrize("by_client", [True, False])
async def test_when_a_link_is_detached(by_client: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair() as both:
        sender, receiver = await both.sender()
        sender.send(b"x", "unsettled")
        await both.server.until(lambda: both.server.deliveries)
        owner = both.server if by_client else both.client
        abort_in(owner, "link_closed", monkeypatch)
        (sender if by_client else receiver).close()
        await owner.until(lambda: owner.close_reasons)
        assert len(owner.links_closed) == 1


async def test_when_the_client_ends_a_session_with_several_links(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair() as both:
        await both.sender()
        await both.receiver()
        abort_in(both.server, "link_closed", monkeypatch)
        assert both.client.session is not None
        assert both.client.engine is not None
        both.client.session.close()
        both.client.engine.wake()
        await both.server.until(lambda: both.server.close_reasons)
        assert len(both.server.links_closed) == 1


async def test_when_a_message_arrives_and_when_it_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair() as both:
        sender, receiver = await both.sender()
        sender.send(b"x", "one")
        sender.send(b"x", "two")
        await both.server.until(lambda: len(both.server.deliveries) > 1)
        abort_in(both.client, "settled", monkeypatch)
        for _, delivery, _ in both.server.deliveries:
            receiver.settle(delivery)
        await both.client.until(lambda: both.client.close_reasons)
        assert len(both.client.outcomes) == 1
    async with pair() as both:
        sender, _ = await both.sender()
        abort_in(both.server, "delivered", monkeypatch)
        sender.send(b"x", "one")
        sender.send(b"x", "two")
        await both.server.until(lambda: both.server.close_reasons)
        assert len(both.server.deliveries) == 1
