"""The influence of a member's disk on its following of a primary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from broker_stub.durability.disk_watch import DiskLimits, DiskWatch
from broker_stub.member.following import Following
from broker_stub.replication.backup import Backup
from broker_stub.store import DiskUsage
from haclient import aio
from haclient.cluster_url.endpoint import Endpoint

FULL, EMPTY = DiskUsage(0, 0), DiskUsage(1000, 1000)


class Backups:
    """Creates backups, and records their ends."""

    def __init__(self) -> None:
        self.following: list[Any] = []
        self.made = 0
        self.disk = DiskWatch(DiskLimits(warn=100, hold=100, stop=100), "here")
        self.following_part = Following(self._make, self._make_factory, self.disk)

    def _make_factory(self, members: tuple[Endpoint, ...], broker_url: str) -> aio.ConnectionFactory:
        return cast("aio.ConnectionFactory", broker_url or members)

    def _make(self, factory: aio.ConnectionFactory, pause: Callable[[], float]) -> Backup:
        self.made += 1
        return cast("Backup", _Recorded(self.following, factory))

    async def measured(self, usage: DiskUsage) -> bool:
        self.disk.update(usage)
        return await self.following_part.adapt_to_disk()


class _Recorded:
    def __init__(self, following: list[Any], factory: Any) -> None:
        self._following = following
        self._factory = factory

    def start(self) -> None:
        self._following.append(self._factory)

    async def stop(self) -> None:
        self._following.remove(self._factory)

    def search_with(self, factory: Any) -> None:
        self._following[:] = [factory]
        self._factory = factory


async def test_a_full_disk_ends_it_and_room_begins_it_again_each_once() -> None:
    backups = Backups()
    backups.following_part.start()
    for _ in range(3):
        assert await backups.measured(FULL)
        assert not await backups.measured(FULL)
        assert not backups.following
        assert not await backups.measured(EMPTY)
        assert not await backups.measured(EMPTY)
        assert backups.following == [()]
    assert backups.made == 4


async def test_a_member_that_does_not_follow_is_not_made_to_by_its_disk() -> None:
    """The backup part has not started, or the member serves, or it has stopped."""
    backups = Backups()
    await backups.measured(FULL)
    await backups.measured(EMPTY)
    assert not backups.made
    backups.following_part.start()
    await backups.measured(FULL)
    await backups.following_part.stop()
    await backups.measured(EMPTY)
    assert backups.made == 1


async def test_one_that_is_to_follow_while_its_disk_is_full_waits_for_room() -> None:
    backups = Backups()
    await backups.measured(FULL)
    backups.following_part.start()
    assert not backups.made
    await backups.measured(EMPTY)
    assert backups.following == [()]


@pytest.mark.parametrize("searches", [False, True])
async def test_members_that_were_set_while_the_disk_was_full_are_searched_then(*, searches: bool) -> None:
    backups, members = Backups(), (Endpoint("there", 1),)
    backups.following_part.start()
    await backups.measured(FULL)
    await backups.following_part.set_members(members, "", searches=searches)
    assert not backups.following
    await backups.measured(EMPTY)
    assert backups.following == [members]
    await backups.following_part.set_members(members * 2, "", searches=searches)
    assert backups.following == [members * 2]


@pytest.mark.parametrize("searches", [False, True])
async def test_a_broker_url_stays_until_there_is_another_one(*, searches: bool) -> None:
    backups, members = Backups(), (Endpoint("for-clients", 1),)
    backups.following_part.start()
    await backups.following_part.set_members(members, "amqp://a,b", searches=searches)
    assert backups.following == ["amqp://a,b"]
    await backups.following_part.set_members(members * 2, "", searches=searches)
    assert backups.following == ["amqp://a,b"]
    await backups.following_part.set_members(members, "amqp://c", searches=searches)
    assert backups.following == ["amqp://c"]
