"""Each fault alone: under load, nothing that was acknowledged is lost, and the cluster becomes whole again.

All of them hit the same cluster, one after the other: it is whole before each.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import islice

import pytest
import pytest_asyncio

from tests.faults.checker import check
from tests.faults.clients import Load, drain
from tests.faults.cluster import PATIENCE, Cluster, ClusterOptions, cluster, may_mount
from tests.faults.faults import FAULTS
from tests.faults.history import Fate, History
from tests.faults.schedule import Step
from tests.faults.soak import apply
from tests.faults.watch import watching

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]


@dataclass
class Scene:
    """A cluster under load."""

    members: Cluster
    load: Load
    history: History

    async def progress(self) -> None:
        """Wait until something that is sent from now on is acknowledged."""
        before = len(self.history.sent)
        async with asyncio.timeout(PATIENCE):
            while not self._acknowledged_after(before):  # noqa: ASYNC110 - clients only write it down
                await asyncio.sleep(0.02)

    def _acknowledged_after(self, before: int) -> bool:
        later = islice(self.history.sent, before, None)
        return any(self.history.fate(name) is Fate.ACKNOWLEDGED for name in later)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    history = History()
    options = ClusterOptions(small_disks=may_mount())
    async with cluster(tmp_path_factory.mktemp("cluster"), options) as members, watching(members, history):
        async with Load(members.url, history, seed=1, names=members.names) as load:
            yield Scene(members, load, history)
            async with asyncio.timeout(PATIENCE):  # a cluster that did not get over a fault settles no more
                await load.finish()
        await drain(members.url, history)
    verdict = check(history)
    assert verdict.holds, verdict
    assert verdict.acknowledged > 1000


@pytest.mark.parametrize("name", ["primary killed", "primary cut off from the arbiter, a backup killed"])
async def test_a_fault_that_needs_an_heir_waits_for_one(
    name: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The primary's backup is lost just after the cluster was whole."""
    members, whole = scene.members, scene.members.whole
    victim, [backup] = members.primary, members.backups
    before = (await members.record()).generation
    await members.kill(backup)
    async with asyncio.timeout(PATIENCE):
        while (await members.record()).generation == before:  # noqa: ASYNC110 - the arbiter can only be asked
            await asyncio.sleep(0.02)
    asked = []

    async def seems_whole(timeout: float = PATIENCE) -> None:
        asked.append(victim.alive)
        if len(asked) > 1:
            members.start(backup)
            await whole(timeout)

    monkeypatch.setattr(members, "whole", seems_whole)
    async with FAULTS[name].during(members, random.Random(1)):
        assert members.pair.primary is not victim
    assert asked == [True, True]
    await whole()


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_alone_loses_nothing(name: str, scene: Scene) -> None:
    for need in FAULTS[name].needs:
        if not getattr(scene.members.options, need):
            pytest.skip(f"needs {need}")
    await apply(scene.members, Step(0, name, 0.1, 0.0, random.Random(name).getrandbits(32)))
    scene.load.check()
    await scene.progress()
    assert not check(scene.history).unexpected
