"""A backup acknowledges the events that its store has committed, and all of them at once."""

from __future__ import annotations

import asyncio
from typing import Any

from broker_stub.queueing.queue import Queue
from broker_stub.replication import wire
from broker_stub.replication.backup_session import BackupSession, MemberIdentity

MESSAGE = b"\x00\x53\x77\xa1\x04text"
KEY = bytes(16)


class Data:
    """A data link with these events, and then none."""

    def __init__(self, count: int) -> None:
        head = wire.message_head(KEY)
        self._events = [wire.encode_message(head, number, 0, 0, MESSAGE) for number in range(1, count + 1)]
        self.accepted: asyncio.Queue[list[int]] = asyncio.Queue()

    async def receive_many(self, most: int) -> list[Any]:
        if not self._events:
            await asyncio.Event().wait()
        taken, self._events = self._events[:most], self._events[most:]
        return [Delivery(data) for data in taken]

    async def accept_many(self, deliveries: list[Any]) -> None:
        self.accepted.put_nowait([wire.decode(each.data).id for each in deliveries])


class Delivery:
    def __init__(self, data: bytes) -> None:
        self.data = data


class Target:
    """Each event is one operation; the test decides the committed ones."""

    def __init__(self) -> None:
        self.commits: asyncio.Queue[int] = asyncio.Queue()
        self.waited_for: list[int] = []

    def apply(self, queue: Queue, event: Any) -> int:
        return 10 * event.id

    async def committed(self, sequence: int) -> int:
        self.waited_for.append(sequence)
        return await self.commits.get()


async def test_all_that_one_commit_has_is_acknowledged_at_once_and_nothing_else() -> None:
    data, target = Data(9), Target()
    session = BackupSession(target, None, MemberIdentity("b", "store"))  # type: ignore[arg-type]
    session._queues[KEY] = Queue("q", lambda: 0.0)
    tasks = [asyncio.create_task(each(data)) for each in (session._apply_events, session._acknowledge)]
    try:
        for commit, numbers in ((10, [1]), (59, [2, 3, 4, 5]), (60, [6]), (1000, [7, 8, 9])):
            target.commits.put_nowait(commit)
            assert await data.accepted.get() == numbers
        assert target.waited_for == [10, 20, 60, 70]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
