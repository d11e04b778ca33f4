"""A new primary waits for the other replicas, but not for ever."""

from __future__ import annotations

import asyncio

from broker_stub.member.redundancy_wait import RedundancyWait

NEVER = 3600.0


async def test_the_wait_is_over_once_when_all_the_others_are_ready() -> None:
    over: list[str] = []
    recovery = RedundancyWait({"b", "c"}, NEVER, lambda: over.append("over"))
    recovery.ready({"b", "d"})
    assert over == []
    recovery.ready({"b", "c", "d"})
    recovery.ready({"b", "c"})
    assert over == ["over"]


async def test_whoever_is_alone_waits_for_nobody() -> None:
    over: list[str] = []
    RedundancyWait(frozenset(), NEVER, lambda: over.append("over")).ready(frozenset())
    assert over == ["over"]


async def test_the_wait_ends_after_its_time_and_a_replica_that_comes_later_does_not_end_it_again() -> None:
    over: asyncio.Queue[str] = asyncio.Queue()
    recovery = RedundancyWait({"b"}, 0.01, lambda: over.put_nowait("over"))
    async with asyncio.timeout(10):
        assert await over.get() == "over"
    recovery.ready({"b"})
    assert over.empty()


async def test_a_wait_that_was_called_off_never_ends() -> None:
    over: list[str] = []
    recovery = RedundancyWait({"b"}, 0.0, lambda: over.append("over"))
    recovery.cancel()
    recovery.ready({"b"})
    await asyncio.sleep(0.01)  # longer than its time
    assert over == []
