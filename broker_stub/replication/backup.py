"""The backup side: finds the primary through ``haclient`` and keeps the local state equal to the primary's.

Theory of operation
-------------------
``run`` repeats until stopped: find the primary and follow it (``backup_session``). A member that is not
primary answers this connection with a redirect or a refusal. A session ends when the connection is lost or
when the backup's own store stops committing: such a member stores nothing that it receives.
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
"""Longest pause between two searches, in seconds: clients parked at this member wait for its search."""
# Seconds until a swallowed cancellation is repeated.
_CANCEL_AGAIN = 0.1


class Backup:
    """Follows the current primary, whichever member it is.

    :param factory: makes connections to the broker URL with ``CAPABILITY``.
    :param own: this member's identity.
    :param pause: returns the seconds to wait before the next session.
    :param store: this member's store, watched for progress.
    :param timeout: seconds without a commit after which the store counts as hung.
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
        """Start to follow the primary."""
        self._task = asyncio.get_running_loop().create_task(self.run(), name="follow the primary")

    def search_with(self, factory: aio.ConnectionFactory) -> None:
        """Use another factory for the next search; the current session continues."""
        self._factory = factory

    async def stop(self) -> None:
        """Stop following; returns when no more events will be applied.

        A task group that ends with errors swallows a cancellation made in the same iteration of the loop.
        This happens exactly when a primary dies and this member is promoted. Hence the flag and the repeated
        cancellation until the task has ended.
        """
        self._stopping = True
        if self._task is not None:
            while not self._task.done():
                self._task.cancel()
                await asyncio.wait([self._task], timeout=_CANCEL_AGAIN)

    async def run(self) -> None:
        """Find and follow primaries until ``stop`` is called."""
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
                # After any failure with this primary, the search must continue.
                logger.exception("following the primary failed")
            if not self._stopping:
                await self._target.lost_primary()
                await asyncio.sleep(self._pause())

    def _report(self, reason: BaseException) -> None:
        """Log the reason why no primary is followed; a refusal is logged once as an error."""
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
