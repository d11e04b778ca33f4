"""Wall clocks hours apart: a time to live is the same on both members, unlike an absolute expiry."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.broker_stub.replication.cluster import Cluster, Member, bodies, depth, send

HOUR = 3600.0
# Shifts the wall clock of a process by the number in a file; its monotonic clock stays.
SHIFT = """
import os, time
_ahead = float(open(os.environ["TEST_CLOCK_AHEAD"]).read())
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + _ahead
time.time_ns = lambda: _time_ns() + int(_ahead * 1e9)
"""


class Clocks:
    """The wall clocks of the members: how many seconds each is ahead, from its next start on."""

    def __init__(self, folder: Path, ahead: Mapping[str, float]) -> None:
        self._folder = folder
        hook = folder / "hook"
        hook.mkdir()
        (hook / "sitecustomize.py").write_text(SHIFT)
        root = Path(__file__).resolve().parents[3]
        for name, seconds in ahead.items():
            self.set(name, seconds)
        self.wrappers = {
            name: ("env", f"PYTHONPATH={hook}:{root}", f"TEST_CLOCK_AHEAD={self._file(name)}")
            for name in ahead
        }

    def set(self, name: str, seconds: float) -> None:
        self._file(name).write_text(str(seconds))

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.clock"


async def take_over(a: Member, b: Member, *, restart: bool) -> None:
    """Make the backup primary; after a restart it has only its store."""
    await a.kill()
    if restart:
        await b.kill()
        await b.start()
    await b.promote()


@pytest.mark.slow
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("ahead", [3 * HOUR, -3 * HOUR])
async def test_what_lives_for_an_hour_outlives_a_takeover(
    tmp_path: Path, ahead: float, restart: bool
) -> None:
    clocks = Clocks(tmp_path, {"b": ahead})
    async with Cluster(tmp_path, wrappers=clocks.wrappers) as cluster:
        a, b = cluster.members
        await a.start()
        await a.promote()
        await send(a, "orders", "caught up", ttl=HOUR)
        await b.start()
        await b.until("ready")
        await send(a, "orders", "live", ttl=HOUR)
        await send(a, "orders", "for a moment", ttl=0.001)
        await take_over(a, b, restart=restart)
        await b.until(lambda status: depth(status, "orders") == 2)
        assert await bodies(b, "orders") == ["caught up", "live"]


@pytest.mark.slow
@pytest.mark.parametrize("restart", [False, True])
async def test_an_absolute_expiry_is_by_the_clock_of_the_member_that_serves(
    tmp_path: Path, restart: bool
) -> None:
    clocks = Clocks(tmp_path, {"b": 3 * HOUR})
    async with Cluster(tmp_path, wrappers=clocks.wrappers) as cluster:
        a, b = cluster.members
        await a.start()
        await a.promote()
        now = time.time()
        await send(a, "orders", "over there", expiry_time=now + HOUR)
        await b.start()
        await b.until("ready")
        await send(a, "orders", "over, though it may live", expiry_time=now + HOUR, ttl=5 * HOUR)
        await send(a, "orders", "not yet", expiry_time=now + 5 * HOUR)
        await send(a, "orders", "lives shorter", expiry_time=now + 5 * HOUR, ttl=HOUR)
        assert await a.depth("orders") == 4
        await take_over(a, b, restart=restart)
        await b.until(lambda status: depth(status, "orders") == 2)
        assert await bodies(b, "orders") == ["not yet", "lives shorter"]


@pytest.mark.slow
async def test_a_short_life_ends_on_a_member_whose_clock_is_behind(tmp_path: Path) -> None:
    clocks = Clocks(tmp_path, {"b": -3 * HOUR})
    async with Cluster(tmp_path, wrappers=clocks.wrappers) as cluster:
        a, b = await cluster.pair()
        await send(a, "orders", "short", ttl=3.0)
        await send(a, "orders", "long", ttl=HOUR)
        await take_over(a, b, restart=False)
        await b.until(lambda status: depth(status, "orders") == 1)
        assert await bodies(b, "orders") == ["long"]


@pytest.mark.slow
async def test_catching_up_corrects_what_a_member_with_a_wrong_clock_has_kept(tmp_path: Path) -> None:
    """The member's clock is corrected while it is down, so the times in its store are meaningless."""
    clocks = Clocks(tmp_path, {"b": -3 * HOUR})
    async with Cluster(tmp_path, wrappers=clocks.wrappers) as cluster:
        a, b = await cluster.pair()
        await send(a, "orders", *range(3), ttl=2 * HOUR)
        await b.kill()
        clocks.set("b", 0.0)
        await b.start()
        await b.until("ready")
        await take_over(a, b, restart=True)
        assert await bodies(b, "orders") == [0, 1, 2]
