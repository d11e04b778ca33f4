"""Follows the primary while the member is not primary itself and its disk is not full.

Rules
-----
* A backup whose disk is full leaves its primary, which it would block otherwise, and follows again when there
  is space.
* A new list of members applies to the next search; a connection to a primary stays.
* Members search for each other with the clients' address list, or with the broker URL for members if one was
  set.  A broker URL stays until another one replaces it.
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
"""Makes connections from the addresses for clients and the URL for members; at start both are empty."""
MakeBackup = Callable[[aio.ConnectionFactory, Callable[[], float]], Backup]
"""Makes a backup from a connection factory and a function for the seconds before the next session."""


class Following:
    """Follows a primary while this member is not primary.

    :param make_backup: makes a backup that is not started yet.
    :param make_factory: makes connections to the other members.
    :param disk: while it is full, nothing is followed.
    """

    def __init__(self, make_backup: MakeBackup, make_factory: MakeFactory, disk: DiskWatch) -> None:
        self._make_backup = make_backup
        self._make_factory = make_factory
        self._disk = disk
        self._broker_url = ""
        self._factories = [make_factory((), "")]
        """The last one is for searches; an earlier one may still have the connection to the primary."""
        self._backoff = Backoff(Policy(backoff_max=LONGEST_PAUSE), random.Random())
        self._backup: Backup | None = None
        self._waits_for_space = False

    def start(self) -> None:
        """Follow from now on, or as soon as the disk has space."""
        self._waits_for_space = self._disk.stops
        if not self._waits_for_space:
            self._backup = self._make_backup(self._factories[-1], self._pause)
            self._backup.start()

    async def stop(self) -> None:
        """Stop following; return when nothing more is applied."""
        self._waits_for_space = False
        if self._backup is not None:
            await self._backup.stop()
            self._backup = None

    def _pause(self) -> float:
        return self._backoff.next().delay

    async def adapt_to_disk(self) -> bool:
        """Leave the primary if the disk is full, or follow again; return True if a primary was left."""
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
        """Reset the backoff, because this member has caught up: the next search begins without a pause."""
        self._backoff.reset()

    async def set_members(self, members: tuple[Endpoint, ...], broker_url: str, *, searches: bool) -> None:
        """Search for the primary at these members, or at the broker URL.

        :param broker_url: empty to keep the present one, if any.
        :param searches: True if no primary is followed; then the change applies at once, not from the next
            search.
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
        """Close the connections."""
        for factory in self._factories:
            await factory.close()
