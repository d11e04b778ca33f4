"""Links beyond a session's limit go to further sessions, and beyond the peer's limits raise a clear error.

The peer counts as RabbitMQ 4.0.5 does, whose handle-max is 255 and whose channel-max is 63.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import uint

from haclient import aio
from haclient.errors import HaclientError, LinkClosed, LinkRefused, LinkTimeout
from haclient.events import Disconnected, Event
from haclient.testing.peers.listening import Peer, listening, url
from tests.broker_stub.raw_client import DETACH
from tests.hostile.broker.connection import error
from tests.hostile.broker.limited import Limited, Limits

FAST = {"backoff_base": 0.001, "backoff_max": 0.01}


@contextlib.asynccontextmanager
async def limited(
    limits: Limits, **options: object
) -> AsyncIterator[tuple[Peer, aio.Connection, list[Event]]]:
    seen: list[Event] = []
    async with (
        listening(lambda _: Limited(limits)) as peer,
        aio.connect(url(peer, **FAST, **options), on_event=seen.append) as connection,
    ):
        yield peer, connection, seen
    assert limits.violations == 0


def losses(seen: list[Event]) -> int:
    return sum(isinstance(event, Disconnected) for event in seen)


async def create(connection: aio.Connection, number: int) -> aio.Sender | aio.Receiver:
    """Create a link; every other one is a receiver."""
    if number % 2:
        return await connection.create_receiver(f"q{number}", credit=1)
    return await connection.create_sender(f"q{number}")


async def use(link: aio.Sender | aio.Receiver) -> None:
    if isinstance(link, aio.Receiver):
        await (await link.receive(timeout=10)).accept()
    else:
        assert (await link.send(b"x", timeout=10)).accepted


async def test_a_thousand_links_on_one_connection() -> None:
    limits = Limits(255, 63)
    async with limited(limits) as (_, connection, seen):
        links = await asyncio.gather(*(create(connection, number) for number in range(1000)))
        await asyncio.gather(*map(use, links))
        assert sorted(limits.sessions.values()) == [232, 256, 256, 256]
        assert not losses(seen)
        limits.connections[-1].transport.abort()
        await asyncio.gather(*map(use, links))
        assert sorted(limits.sessions.values()) == [232, 256, 256, 256]
        assert losses(seen) == 1


@pytest.mark.parametrize("handle_max", [0, 1, 2**31 - 1, 2**32 - 1, None])
@pytest.mark.parametrize("channel_max", [0, 1, 65535])
async def test_as_many_links_as_the_peer_allows_and_no_more(handle_max: int | None, channel_max: int) -> None:
    await _fill(Limits(handle_max, channel_max), links=10)


@settings(max_examples=20, deadline=None)
@given(handle_max=st.integers(0, 12), channel_max=st.integers(0, 5), links=st.integers(1, 80))
def test_any_limits_are_kept_and_used_to_the_last_link(handle_max: int, channel_max: int, links: int) -> None:
    asyncio.run(_fill(Limits(handle_max, channel_max), links))


async def _fill(limits: Limits, links: int) -> None:
    allowed = (2**32 if limits.handle_max is None else limits.handle_max + 1) * (limits.channel_max + 1)
    async with limited(limits) as (_, connection, seen):
        creating = (create(connection, number) for number in range(links))
        made = await asyncio.gather(*creating, return_exceptions=True)
        good = [link for link in made if isinstance(link, aio.Sender | aio.Receiver)]
        assert len(good) == limits.most == min(links, allowed)
        for each in made:
            if isinstance(each, BaseException):
                assert isinstance(each, LinkRefused)
                assert each.condition == "amqp:resource-limit-exceeded"
                assert f"(channel-max {min(limits.channel_max, 32767)}, handle-max " in str(each)
                assert "close others, or open another connection" in str(each)
        await asyncio.gather(*map(use, good))
        assert not losses(seen)


async def test_a_link_that_is_closed_makes_room_for_another_one() -> None:
    limits = Limits(1, 1)
    async with limited(limits) as (_, connection, seen):
        links = [await create(connection, number) for number in range(4)]
        for number in range(4, 40):
            closed = links.pop(random.randrange(4))
            _, made = await asyncio.gather(closed.close(), create(connection, number))
            links.append(made)
            await use(made)
        assert limits.most == 4
        assert not losses(seen)


async def test_a_link_that_the_peer_detaches_makes_room_for_another_one() -> None:
    limits = Limits(0, 0)
    async with limited(limits) as (_, connection, seen):
        for _ in range(5):
            receiver = await connection.create_receiver("q", credit=0)
            peer = limits.connections[-1]
            peer.instead[DETACH] = lambda _: None  # the client's Detach is the answer
            peer.send(DETACH, [uint(0), True, error("amqp:resource-deleted", "gone")])
            with pytest.raises(LinkClosed):
                await receiver.receive(timeout=10)
        assert not losses(seen)


async def test_a_peer_that_never_answers_a_detach_keeps_the_next_link_waiting_as_long_as_its_call() -> None:
    async with limited(Limits(0, 0, answers_detach=False)) as (_, connection, seen):
        sender = await connection.create_sender("q")
        closing = asyncio.ensure_future(sender.close())
        await asyncio.sleep(0)
        with pytest.raises(LinkTimeout):
            await connection.create_sender("other", timeout=0.1)
        waiting = asyncio.ensure_future(connection.create_sender("other"))
        await asyncio.sleep(0)
        waiting.cancel()
        closing.cancel()
        await asyncio.wait([waiting, closing])
        assert not losses(seen)


async def test_the_next_primary_may_allow_less() -> None:
    """Links beyond the new limits fail and say why; the others go on."""
    limits = Limits(9, 0)
    async with limited(limits) as (_, connection, seen):
        senders = [await connection.create_sender(f"q{number}") for number in range(10)]
        limits.handle_max = 3
        limits.connections[-1].transport.abort()
        outcomes = await asyncio.gather(
            *(each.send(b"x", timeout=10) for each in senders), return_exceptions=True
        )
        failed = [each for each in outcomes if isinstance(each, HaclientError)]
        assert [type(each) for each in failed] == [LinkClosed] * 6
        assert all("channel-max 0, handle-max 3" in str(each) for each in failed)
        assert losses(seen) == 1


async def test_until_a_later_begin_is_answered_the_bound_is_that_of_the_first_one() -> None:
    limits = Limits(3, 1, later_handle_max=0)
    async with limited(limits) as (_, connection, seen):
        for number in range(5):
            await connection.create_sender(f"q{number}")
        with pytest.raises(LinkRefused, match="channel-max 1, handle-max 0"):
            await connection.create_sender("q5")
        assert not losses(seen)


@pytest.mark.parametrize("what", ["handle", "channel"])
async def test_a_connection_on_which_proton_gives_up_ends_with_its_reason(what: str) -> None:
    """If asked for more than the peer allows, proton sends nothing any more, and logs that."""
    async with limited(Limits(1, 1)) as (_, connection, seen):
        sender = await connection.create_sender("q")
        engine = connection._core._engine
        assert engine is not None
        for number in range(3):
            session = engine.begin() if what == "channel" else connection._core.links._session
            assert session is not None
            session.sender(f"{number}").open()
        engine.wake()
        assert (await sender.send(b"x", timeout=10)).accepted
        (lost,) = (event for event in seen if isinstance(event, Disconnected))
        assert "proton can send nothing more: unable to find an open available " + what in lost.reason
