"""A member by itself, with a scripted store and arbiter."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from broker_stub.election.arbiter import ArbiterUnavailableError
from broker_stub.election.generation import ArbiterRecord, GenerationState, PrimaryIdentity
from broker_stub.election.roles import Membership, MoveRefusedError, Role
from broker_stub.store import QueueRecord
from tests.broker_stub.clients import until
from tests.broker_stub.member.parts import Parts


async def test_a_primary_whose_store_hangs_steps_down_and_can_still_be_stopped() -> None:
    parts, settled = Parts(backup_timeout=0.2), list[Any]()
    member = parts.member
    await member.start()
    queue = parts.addresses.declare("q")
    await member.promote()
    parts.store.hangs = True
    queue.enqueue(b"x", settled.append, "x")
    await until(lambda: parts.role is Role.CONNECTING)
    assert "committed nothing" in parts.host.sent_away
    with pytest.raises(MoveRefusedError, match="its disk hangs, or this process was paused"):
        await member.promote()
    async with asyncio.timeout(10):
        await member.stop()
    assert settled == []


async def test_a_primary_that_has_nothing_to_commit_is_not_taken_for_one_whose_store_hangs() -> None:
    parts, settled = Parts(backup_timeout=0.05), list[Any]()
    await parts.member.start()
    queue = parts.addresses.declare("q")
    await parts.member.promote()
    for generation in range(30):
        await asyncio.sleep(0.01)
        queue.enqueue(b"x", settled.append, generation)
    await until(lambda: len(settled) == 30)
    assert parts.role is Role.PRIMARY
    await parts.member.stop()


async def test_a_member_whose_store_fails_behind_the_last_write_of_its_promotion_does_not_lead() -> None:
    parts = Parts()
    await parts.member.start()
    parts.store.fails_after = 1
    with pytest.raises(MoveRefusedError, match="the disk is gone"):
        await parts.member.promote()
    assert (parts.member.replica_set, parts.role) == (None, Role.CONNECTING)
    assert parts.host.ended == "the disk is gone"
    await parts.member.stop()


async def test_a_promotion_that_goes_wrong_leaves_the_member_following() -> None:
    parts = Parts()
    await parts.member.start()
    await until(lambda: parts.factory.searches == 1)
    parts.arbiter.error = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        await parts.member.promote()
    await until(lambda: parts.factory.searches == 2)
    assert parts.role is Role.CONNECTING
    await parts.member.stop()


async def test_a_member_that_is_stopped_while_it_is_promoted_does_not_lead_afterwards() -> None:
    parts = Parts()
    await parts.member.start()
    parts.arbiter.answers.clear()
    promoting = asyncio.ensure_future(parts.member.promote())
    await parts.arbiter.asked.wait()
    stopping = asyncio.ensure_future(parts.member.stop())
    again = asyncio.ensure_future(parts.member.promote())
    await asyncio.sleep(0)
    parts.arbiter.answers.set()
    await asyncio.gather(promoting, stopping, again, return_exceptions=True)
    assert stopping.exception() is None
    assert parts.member.replica_set is None
    assert isinstance(promoting.exception(), MoveRefusedError)
    assert isinstance(again.exception(), MoveRefusedError)


async def test_a_member_shows_the_generation_of_its_store_when_it_starts() -> None:
    first = Parts()
    await first.member.start()
    await first.member.promote()
    await first.member.stop()
    second = Parts(first)
    await second.member.start()
    assert second.host.shown[-1] == Membership(Role.CONNECTING, 1, arbitrated=True)
    await second.member.stop()


async def test_a_promoted_backup_waits_for_the_others_and_a_returning_primary_for_nobody() -> None:
    parts = Parts()
    parts.store.put_replicas(["c"])
    await parts.member.start()
    await parts.member.promote()
    assert parts.role is Role.RECOVERING
    await parts.member.stop()
    returned = Parts(parts)
    await returned.member.start()
    await returned.member.promote()
    assert (returned.role, returned.member.state.generation) == (Role.PRIMARY, 2)
    await returned.member.stop()


@pytest.mark.parametrize(
    ("origin", "arbiter_error", "reason"),
    [
        (3, None, None),
        (2, None, "move its store away"),
        (3, ArbiterUnavailableError("away"), "cannot be read now"),
    ],
)
async def test_a_store_without_a_cluster_and_with_queues_joins_by_its_generation_and_the_arbiters_word(
    origin: int, arbiter_error: Exception | None, reason: str | None
) -> None:
    parts = Parts()
    parts.store.put_queue(QueueRecord(identity=uuid.uuid4(), name="q"))
    parts.store.write_generation(3)
    await parts.arbiter.compare_and_set(ArbiterRecord(), ArbiterRecord(5, "c", "a UUID", origin))
    await parts.member.start()
    parts.arbiter.error = arbiter_error
    refusal = await parts.member.refusal_reason(PrimaryIdentity(5, "a UUID"))
    assert (refusal is None) == (reason is None)
    assert reason is None or (refusal is not None and reason in refusal)
    assert parts.member.state == GenerationState(3)
    await parts.member.stop()
