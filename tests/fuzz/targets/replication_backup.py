"""A backup of a lying primary: it follows or gives up, and trusts only announced facts.

Rules: no traceback is logged, and no exception stays uncaught. The store does not change before the
backup follows a primary of its cluster, of no lower generation. Afterwards its generation is the last
one handed over for that cluster, or none. At the end memory and store hold the same messages, and only
messages that arrived.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from broker_stub.broker import Broker
from broker_stub.election import generation as rules
from broker_stub.queueing.annotations import restored
from broker_stub.queueing.message import Message
from broker_stub.replication import backup_session
from broker_stub.store import StoredMessage
from tests.fuzz import pair
from tests.fuzz.members import OneMember
from tests.fuzz.script import parse
from tests.fuzz.target import Defect, Target
from tests.fuzz.wire import fixed_names

_KEPT = 3


class ReplicationBackup(Target):
    name = "replication_backup"
    scripted = True

    def __init__(self) -> None:
        self._members = OneMember()
        self.followed = False
        """True if the last input's primary was followed."""
        self._names = fixed_names()
        self._names.__enter__()

    def run(self, data: bytes) -> None:
        loop = self._members.loop
        loop.wires.clear()
        broker = self._members.make_by(_backup())
        assert broker.member is not None
        watch = broker.member._applier = Watch(broker)  # type: ignore[assignment]
        starting = loop.create_task(broker.member.start())
        loop.turn()
        starting.result()
        if not loop.wires:
            raise Defect("the backup has not dialled")
        loop.wires[0].play(parse(data))
        watch.check(len(data))
        self.followed = watch.follows
        stopping = loop.create_task(broker.member.stop())
        for wire in loop.wires[1:]:
            wire.drop()
        loop.advance(1)
        if not stopping.done():
            raise Defect("it does not stop to follow")
        stopping.result()
        broker._listener.close()
        self._members.end()

    def planted(self) -> AbstractContextManager[object]:
        """A generation that is handed over for another cluster is accepted."""

        class Gullible(backup_session.BackupSession):
            async def _execute(self, command: Any, have: Any) -> None:
                if command.operation == "number":
                    self._cluster = str(command.arguments["cluster"])
                await super()._execute(command, have)

        return mock.patch("broker_stub.replication.backup.BackupSession", Gullible)

    def close(self) -> None:
        self._names.__exit__(None, None, None)
        self._members.close()


class Watch:
    """A backup's local copy (``backup_session.ReplicationTarget``), checked against its expected state."""

    def __init__(self, broker: Broker) -> None:
        assert broker.member is not None
        self._broker, self._member = broker, broker.member
        self._applier = broker.member._applier
        self._state: rules.GenerationState | None = None
        self._cluster = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._applier, name)

    async def begin_catch_up(self, endpoint: Any, primary: rules.PrimaryIdentity) -> None:
        before = self._member.state
        if primary.cluster != pair.CLUSTER or primary.generation < rules.known_generation(before):
            raise Defect(f"it follows {primary}, and has {before}")
        self._cluster = primary.cluster
        await self._applier.begin_catch_up(endpoint, primary)
        self._state = rules.GenerationState(None, None, "", primary.cluster)

    async def note_pending(self, generation: int, claim: str) -> None:
        assert self._state is not None
        await self._applier.note_pending(generation, claim)
        self._state = rules.note_pending(self._state, rules.Pending(generation, claim))

    async def take_generation(self, record: rules.ArbiterRecord, others: tuple[str, ...]) -> None:
        assert self._state is not None
        before = self._state.generation
        await self._applier.take_generation(record, others)
        self._state = self._member.state
        generation = self._state.generation
        if self._state.cluster != self._cluster or generation != max(before or 0, record.generation):
            raise Defect(f"it was handed {record}, and has {self._state}")

    @property
    def follows(self) -> bool:
        """Return whether a primary is, or was, followed."""
        return self._state is not None

    def check(self, size: int) -> None:
        """Compare the member with the primary's announcements, after an input of this size in bytes."""
        expected = self._state or rules.GenerationState(
            pair.RECORD.generation, None, pair.RECORD.claim, pair.CLUSTER
        )
        store: Any = self._member._store
        facts = store._facts
        stored = rules.GenerationState(facts.generation, facts.pending, facts.claim, facts.cluster)
        if not self._member.state == stored == expected:
            raise Defect(f"it is {self._member.state}, has {stored} in its store, and was told {expected}")
        queues = list(self._broker.addresses)
        if self._state is None and [queue.name for queue in queues] != ["orders"]:
            raise Defect(f"it follows nobody, and has {queues}")
        for queue in queues:
            in_memory = list(queue.ids())
            in_store = sorted(_stored(store, queue.identity))
            if in_memory != in_store and queue.identity not in self._applier._broken:
                raise Defect(f"{queue.name!r} has {in_memory}, and {in_store} in the store")
            rows = _stored(store, queue.identity)
            if in_memory == in_store and any(not _is_as_stored(queue.message(n), rows[n]) for n in in_memory):
                raise Defect(f"{queue.name!r} has messages that the store has otherwise")
            if len(in_memory) > size + _KEPT:
                raise Defect(f"{queue.name!r} has {len(in_memory)} messages")


def _stored(store: Any, identity: str) -> dict[int, StoredMessage]:
    for key, queue in store._queues.items():
        if str(queue.record.identity) == identity:
            return dict(store._queues[key].messages)
    return {}


def _is_as_stored(message: Message | None, row: StoredMessage) -> bool:
    """Return whether memory and store hold the same message, including consumers' annotations."""
    if message is None:
        return False
    return (message.data, message.annotations) == restored(row.data)


async def _backup() -> Broker:
    store = await pair.in_sync_store()
    pair.fill(store)
    return pair.member("b", store, pair.Arbiter(), pair.factory_to("amqp://127.0.0.1"))


TARGET = ReplicationBackup
