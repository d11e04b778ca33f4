"""A paused ex-primary resumes in its old generation: no client that knows the new one uses it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from haclient import Message, aio
from haclient.discovery.evidence import FailureReason
from haclient.events import AttemptFailed, BackingOff, Reconnected
from tests.failover.waiting import next_of
from tests.members import Member, Members
from tests.peers.cutting import cut

QUEUE = "orders"
# The silence of a paused member is noticed in half a second.
OPTIONS = "heartbeat=0.5&backoff_base=0.01&backoff_max=0.1"


@asynccontextmanager
async def after_a_pause(old: Member, new: Member) -> AsyncIterator[aio.Connection]:
    """A connection that saw the old primary paused, the new one promoted, and the old one resumed."""
    async with aio.connect(f"amqp://{old.address},{new.address}?{OPTIONS}") as connection:
        assert connection.endpoint == old.endpoint
        events = connection.events()
        await asyncio.to_thread(old.pause)
        await asyncio.to_thread(new.promote)
        await next_of(events, Reconnected)
        assert (connection.endpoint, connection.generation) == (new.endpoint, 2)
        old.resume()
        status = await asyncio.to_thread(old.status)
        assert (status.role, status.generation) == ("primary", 1)
        yield connection


async def test_a_paused_primary_is_left_and_not_used_when_it_wakes_up_in_its_old_generation(
    members: Members,
) -> None:
    old, new = members.pair()
    async with after_a_pause(old, new) as connection:
        events = connection.events()
        cut(connection)
        stale = await next_of(events, AttemptFailed)
        await next_of(events, Reconnected)
        assert (stale.record.endpoint, stale.record.failure.kind) == (
            old.endpoint,
            FailureReason.STALE_PRIMARY,
        )
        assert connection.endpoint == new.endpoint


async def test_a_stale_primary_is_not_used_even_when_nobody_else_answers(members: Members) -> None:
    old, new = members.pair()
    async with after_a_pause(old, new) as connection:
        sender, events = await connection.create_sender(QUEUE), connection.events()
        await asyncio.to_thread(new.kill)
        sending = asyncio.create_task(sender.send(Message(body="for the primary"), timeout=30))
        for _ in range(3):
            await next_of(events, BackingOff)
        await asyncio.to_thread(new.start, role="primary", generation=3)
        assert (await sending).accepted
        assert (connection.endpoint, connection.generation) == (new.endpoint, 3)
    assert await asyncio.to_thread(new.bodies, QUEUE) == ["for the primary"]
    assert await asyncio.to_thread(old.depth, QUEUE) == 0


async def test_connections_of_one_factory_share_what_they_know_of_a_stale_primary(members: Members) -> None:
    old, new = members.pair()
    async with after_a_pause(old, new) as connection:
        factory = connection.factory
        cut(connection)
        async with factory.connect() as second:
            assert second.endpoint == new.endpoint
