"""A member follows whichever other one is primary, whenever it is not primary itself and its disk has room.

Rules
-----
* A backup whose disk is full leaves its primary, which goes on without it: one that took no more would hold
  it up.  It comes back when there is room.
* A new list of members is for the next search; a connection to a primary stays.
* Where members look for each other is the list that clients get, unless there is a broker URL: that one stays
  until there is another one.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from broker_stub.durability.disk_watch import DiskWatch
from broker_stub.replication.backup import LONGEST_PAUSE, Backup
from haclient import aio
from haclient.cluster_url.endpoint import Endpoint
from haclient.printable.log import get_logger
from haclient.retry.backoff import Backoff
from haclient.retry.policy import Policy

logger = get_logger("broker_stub.member.member")

MakeFactory = Callable[[tuple[Endpoint, ...], str], aio.ConnectionFactory]
"""Of the addresses for clients, and of the URL for members; either may be empty: as at the start."""
MakeBackup = Callable[[aio.ConnectionFactory, Callable[[], float]], Backup]
"""Of a factory of connections, and of the seconds to wait before the next session."""


class Following:
    """What a member does while it does not serve.

    :param make_backup: makes what follows a primary, not yet started.
    :param make_factory: of connections to the other members.
    :param disk: nothing is followed while it is full.
    """

    def __init__(self, make_backup: MakeBackup, make_factory: MakeFactory, disk: DiskWatch) -> None:
        self._make_backup = make_backup
        self._make_factory = make_factory
        self._disk = disk
        self._broker_url = ""
        self._factories = [make_factory((), "")]
        """The last one searches; an earlier one may still have the connection to the primary."""
        self._backoff = Backoff(Policy(backoff_max=LONGEST_PAUSE), random.Random())
        self._backup: Backup | None = None
        self._waits_for_space = False

    def start(self) -> None:
        """Follow from now on, or as soon as the disk has room."""
        self._waits_for_space = self._disk.stops
        if not self._waits_for_space:
            self._backup = self._make_backup(self._factories[-1], self._pause)
            self._backup.start()

    async def stop(self) -> None:
        """Follow no longer; returns when nothing more is applied."""
        self._waits_for_space = False
        if self._backup is not None:
            await self._backup.stop()
            self._backup = None

    def _pause(self) -> float:
        return self._backoff.next().delay

    async def adapt_to_disk(self) -> bool:
        """Leave the primary when the disk is full, come back when it is not; whether a primary was left."""
        if self._disk.stops and self._backup is not None:
            logger.warning("following no primary until the disk has space: %s", self._disk.describe())
            await self.stop()
            self._waits_for_space = True
            return True
        if self._waits_for_space and not self._disk.stops:
            logger.info("following again: %s", self._disk.describe())
            self.start()
        return False

    def caught_up(self) -> None:
        """A primary was found, and followed to the end: the next search begins without a pause."""
        self._backoff.reset()

    async def set_members(self, members: tuple[Endpoint, ...], broker_url: str, *, searches: bool) -> None:
        """Look for the primary at these members, or at the broker URL.

        :param broker_url: empty for the one that there is, if any.
        :param searches: no primary is followed: at once, not from the next search on.
        """
        self._broker_url = broker_url or self._broker_url
        self._factories.append(self._make_factory(members, self._broker_url))
        if self._backup is None:
            return
        if searches:
            await self.stop()
            self.start()
        else:
            self._backup.search_with(self._factories[-1])

    async def close(self) -> None:
        """Close the connections; nothing is followed any more."""
        for factory in self._factories:
            await factory.close()
