"""The backup's side: finds the primary through ``haclient`` and keeps its local state equal to the primary's.

Theory of operation
-------------------
``run`` repeats for ever: find the primary (a member that is not primary answers this connection with
redirect or refusal), and follow it until the connection is lost (``backup_session``), or until its own store
has stopped to commit: such a member has nothing of what it is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator

from broker_stub.replication.backup_session import (
    BackupSession,
    FollowRefusedError,
    MemberIdentity,
    ReplicationTarget,
    SessionEndedError,
)
from broker_stub.replication.commit_watch import TICKS, Commits, CommitWatch
from broker_stub.store import StoreFailedError
from haclient import aio, events
from haclient.errors import HaclientError, LinkRefused
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.replication")

CAPABILITY = "haclient:replicate"
LONGEST_PAUSE = 1.0
"""Seconds between two searches, at most: the clients parked at this member wait for its search."""
# Seconds until a cancellation that was swallowed is repeated.
_CANCEL_AGAIN = 0.1


class Backup:
    """Follows whichever member is primary.

    :param factory: of connections with ``CAPABILITY``, to the broker URL.
    :param own: who this member is.
    :param pause: seconds to wait before the next session, asked each time.
    :param store: this member's, to see that it goes on.
    :param timeout: seconds without a commit after which it does not.
    """

    def __init__(
        self,
        target: ReplicationTarget,
        factory: aio.ConnectionFactory,
        own: MemberIdentity,
        pause: Callable[[], float],
        *,
        store: Commits,
        timeout: float,
    ) -> None:
        self._store = store
        self._timeout = timeout
        self._target = target
        self._pause = pause
        self._factory = factory
        self._own = own
        self._refusal = ""
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Follow from now on."""
        self._task = asyncio.get_running_loop().create_task(self.run(), name="follow the primary")

    def search_with(self, factory: aio.ConnectionFactory) -> None:
        """Find the next primary with another factory; the one that is followed now stays."""
        self._factory = factory

    async def stop(self) -> None:
        """Follow no longer; returns when nothing more is applied.

        A task group that ends with errors swallows a cancellation in the same iteration of the loop,
        which is just when a primary dies and this member is promoted: hence the flag, and hence
        it is cancelled until it has ended.
        """
        self._stopping = True
        if self._task is not None:
            while not self._task.done():
                self._task.cancel()
                await asyncio.wait([self._task], timeout=_CANCEL_AGAIN)

    async def run(self) -> None:
        """Until ``stop``."""
        while not self._stopping:
            try:
                async with self._factory.connect() as connection:
                    await self._session(connection)
            except* (SessionEndedError, HaclientError, ValueError) as over:
                for reason in _leaves(over):
                    self._report(reason)
            except* StoreFailedError:
                self._stopping = True  # the member ends
            except* Exception:
                # Whatever went wrong with this primary, the next one must be found.
                logger.exception("following the primary failed")
            if not self._stopping:
                await self._target.lost_primary()
                await asyncio.sleep(self._pause())

    def _report(self, reason: BaseException) -> None:
        """Log why no primary is followed: what an operator has to mend as an error, once."""
        refused = isinstance(reason, FollowRefusedError | LinkRefused) and str(reason) != self._refusal
        logger.log(logging.ERROR if refused else logging.INFO, "following no primary: %s", reason)
        if refused:
            self._refusal = str(reason)

    async def _session(self, connection: aio.Connection) -> None:
        connection_events = connection.events()
        session = BackupSession(self._target, connection, self._own)
        async with asyncio.TaskGroup() as group:
            group.create_task(_until_lost(connection_events), name="watch the primary")
            group.create_task(session.run(), name="follow the primary")
            group.create_task(self._watch_store(session), name="watch the own store")

    async def _watch_store(self, session: BackupSession) -> None:
        watch = CommitWatch(self._store)
        while not watch.tick():
            if watch.commit_goes_on:
                session.report_commit()
            await asyncio.sleep(self._timeout / TICKS)
        raise SessionEndedError(f"the own store has committed nothing for {self._timeout:g} s")


def _leaves(group: BaseExceptionGroup) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


async def _until_lost(connection_events: AsyncIterator[events.Event]) -> None:
    async for event in connection_events:
        if isinstance(event, events.Disconnected):
            raise SessionEndedError(event.reason)
    raise SessionEndedError("the connection is closed")
