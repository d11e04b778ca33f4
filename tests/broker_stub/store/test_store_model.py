"""A store against a dictionary, over many lives: no loss, no duplicate, no mix-up."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import ExitStack
from typing import Any
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from broker_stub.election.generation import Pending
from broker_stub.store import QueueRecord, StoredMessage, batch, open_store
from tests.broker_stub.store.contents import messages, scratch

WINDOW = 4
IDS = st.integers(1, 12)
QUEUES = st.integers(1, 3)
NUMBERS = st.none() | st.integers(0, 2**23)


class StoreMachine(RuleBasedStateMachine):
    """``model`` maps the identity of each queue to its expected contents."""

    @initialize()
    def start(self) -> None:
        self.stack = ExitStack()
        self.directory = self.stack.enter_context(scratch())
        # Two rewritten messages are too many for one commit.
        self.stack.enter_context(mock.patch.object(batch, "MOST_REWRITTEN", 9))
        self.runner = self.stack.enter_context(asyncio.Runner())
        self.store = self.runner.run(open_store(self.directory, duplicates=WINDOW))
        self.own_generation: int | None = 0
        self.pending: Pending | None = None
        self.model: dict[uuid.UUID, dict[str, Any]] = {}
        self.clean = True

    def on_loop(self, call: Any, *arguments: Any, **options: Any) -> Any:
        async def run() -> Any:
            return call(*arguments, **options)

        return self.runner.run(run())

    def key(self, queue: int) -> int:
        identity = uuid.UUID(int=queue)
        if identity not in self.model:
            record = QueueRecord(identity=identity, name=f"q{queue}")
            self.on_loop(self.store.put_queue, record)
            self.model[identity] = {"messages": {}, "duplicates": [], "last": 0}
        return self.store.queue_key(identity)

    def of(self, queue: int) -> dict[str, Any]:
        return self.model[uuid.UUID(int=queue)]

    @rule(queue=QUEUES, id=IDS, data=st.binary(max_size=9), expires=st.none() | st.integers(-1, 2**62))
    def put(self, queue: int, id: int, data: bytes, expires: int | None) -> None:  # noqa: A002
        self.on_loop(
            self.store.put_message, self.key(queue), id, data, expires_at=expires, delivery_count=id % 2
        )
        self.of(queue)["messages"][id] = StoredMessage(id, data, id % 2, expires)
        self.of(queue)["last"] = max(self.of(queue)["last"], id)

    @rule(queue=QUEUES, ids=st.lists(IDS))
    def remove(self, queue: int, ids: list[int]) -> None:
        self.on_loop(self.store.remove_messages, self.key(queue), ids)
        for number in ids:
            self.of(queue)["messages"].pop(number, None)

    @rule(queue=QUEUES, ids=st.lists(IDS))
    def count(self, queue: int, ids: list[int]) -> None:
        self.on_loop(self.store.count_delivery, self.key(queue), ids)
        found = self.of(queue)["messages"]
        for number in ids:
            if number in found:
                found[number] = found[number]._replace(delivery_count=found[number].delivery_count + 1)

    @rule(
        queue=QUEUES,
        ids=st.lists(IDS),
        prefix=st.binary(max_size=3),
        data=st.binary(max_size=9),
        count=st.integers(0, 9),
    )
    def rewrite(self, queue: int, ids: list[int], prefix: bytes, data: bytes, count: int) -> None:
        key, found = self.key(queue), self.of(queue)["messages"]
        ids = [number for number in ids if number in found]

        def write() -> None:
            for number in ids:
                self.store.rewrite_message(
                    key, number, data, prefix=prefix, delivery_count=count, expires_at=None
                )

        self.on_loop(write)
        found.update({number: StoredMessage(number, prefix + data, count, None) for number in ids})

    @rule(queue=QUEUES, names=st.lists(st.binary(max_size=3), max_size=6))
    def remember(self, queue: int, names: list[bytes]) -> None:
        pairs = [(name, 1) for name in names]
        self.on_loop(self.store.put_duplicates, self.key(queue), pairs)
        self.of(queue)["duplicates"] = (self.of(queue)["duplicates"] + pairs)[-WINDOW:]

    @rule(queue=QUEUES)
    def discard(self, queue: int) -> None:
        self.on_loop(self.store.remove_messages, self.key(queue), list(self.of(queue)["messages"]))
        self.on_loop(self.store.clear_duplicates, self.key(queue))
        self.of(queue).update(messages={}, duplicates=[])

    @rule(queue=QUEUES)
    def delete(self, queue: int) -> None:
        self.on_loop(self.store.delete_queue, self.key(queue))
        del self.model[uuid.UUID(int=queue)]

    @rule(number=NUMBERS, claim=st.none() | st.text(max_size=5))
    def generation(self, number: int | None, claim: str | None) -> None:
        self.own_generation = number
        self.pending = None if claim is None or number is None else Pending(number, claim)
        self.on_loop(self.store.write_generation, self.own_generation)
        self.on_loop(self.store.write_pending, self.pending)

    @rule()
    def wait(self) -> None:
        async def committed() -> None:
            await self.store.when_committed(self.store.sequence)

        self.runner.run(committed())

    @rule(clean=st.booleans())
    def resume(self, clean: bool) -> None:
        self.runner.run(self.store.close(clean=clean))
        self.store = self.runner.run(open_store(self.directory, duplicates=WINDOW))
        self.clean = clean
        self.compare()

    @rule()
    def compare(self) -> None:
        self.runner.run(self.compared())

    async def compared(self) -> None:
        snapshot = await self.store.load()
        assert (self.store.corruption, snapshot.was_clean) == ("", self.clean)
        assert (snapshot.generation, snapshot.pending) == (self.own_generation, self.pending)
        assert {queue.record.identity: queue.last_id for queue in snapshot.queues} == {
            identity: expected["last"] for identity, expected in self.model.items()
        }
        for queue in snapshot.queues:
            expected = self.model[queue.record.identity]
            assert await messages(self.store, queue.key) == [
                m for _, m in sorted(expected["messages"].items())
            ]
            assert await self.store.duplicates(queue.key) == expected["duplicates"]

    def teardown(self) -> None:
        self.resume(clean=True)
        self.runner.run(self.store.close())
        self.stack.close()


StoreMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
test_a_store_is_a_dictionary_that_survives = StoreMachine.TestCase
