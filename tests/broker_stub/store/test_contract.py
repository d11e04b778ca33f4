"""The common behaviour of all stores."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker_stub.election.generation import Pending
from broker_stub.store import (
    BindingRecord,
    ExchangeRecord,
    MemoryStore,
    QueueRecord,
    Store,
    StoredMessage,
    StoreFailedError,
    UnknownQueueError,
    open_store,
)
from tests.broker_stub.store.contents import BILLS, ORDERS, TOPICS, declare, messages


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    store: Store = MemoryStore(duplicates=3)
    if request.param == "sqlite":
        store = await open_store(tmp_path / "store", duplicates=3)
    yield store
    await store.close()


async def test_a_fresh_store_is_of_generation_0_and_empty(store: Store) -> None:
    snapshot = await store.load()
    assert snapshot.generation == 0
    assert (snapshot.pending, snapshot.queues, snapshot.was_clean, store.corruption) == (None, (), True, "")


async def test_generation_and_claim_are_what_was_written_last(store: Store) -> None:
    await store.write_pending(Pending(4, "c"))
    await store.write_generation(4)
    assert await load(store) == (4, Pending(4, "c"))
    await store.write_pending(None)
    await store.write_generation(None)
    assert await load(store) == (None, None)


async def load(store: Store) -> tuple[int | None, Pending | None]:
    snapshot = await store.load()
    return snapshot.generation, snapshot.pending


async def test_the_names_of_the_replicas_are_kept(store: Store) -> None:
    store.put_replicas("ab")
    assert (await store.load()).replicas == ("a", "b")


async def test_messages_come_back_in_the_order_of_their_ids(store: Store) -> None:
    queue = declare(store)
    for number in (5, 2**63 - 1, 3, 4):
        store.put_message(queue, number, b"%d" % number, expires_at=number, delivery_count=1)
    expected = [StoredMessage(number, b"%d" % number, 1, number) for number in (3, 4, 5, 2**63 - 1)]
    assert await messages(store, queue) == expected
    assert (await store.load()).queues[0].last_id == 2**63 - 1


async def test_a_message_that_is_written_again_keeps_its_place(store: Store) -> None:
    queue = declare(store)
    for number in (1, 2):
        store.put_message(queue, number, b"old", expires_at=9)
    store.rewrite_message(queue, 1, b"new", delivery_count=3, expires_at=None)
    store.count_delivery(queue, [1])
    assert await messages(store, queue) == [StoredMessage(1, b"new", 4, None), StoredMessage(2, b"old", 0, 9)]


async def test_a_chunk_is_bounded_and_chunks_have_no_gap(store: Store) -> None:
    queue = declare(store)
    for number in range(1, 2502):
        store.put_message(queue, number, b"")
    chunks = [chunk async for chunk in store.messages(queue)]
    assert [len(chunk) for chunk in chunks] == [1000, 1000, 501]
    assert [message.id for chunk in chunks for message in chunk] == list(range(1, 2502))


@pytest.mark.parametrize("committed_between", [False, True])
async def test_removing_counting_and_putting_again_act_in_order(
    store: Store, committed_between: bool
) -> None:
    queue = declare(store)

    async def between() -> None:
        if committed_between:
            await store.when_committed(store.sequence)

    for number in range(1, 6):
        store.put_message(queue, number, b"first")
    await between()
    store.count_delivery(queue, [1, 2, 3, 99])
    store.count_delivery(queue, [1])
    await between()
    store.remove_messages(queue, [2, 3, 99])
    store.count_delivery(queue, [2])
    await between()
    store.put_message(queue, 3, b"second")
    store.count_delivery(queue, [3])
    await between()
    store.remove_messages(queue, [5])
    assert await messages(store, queue) == [
        StoredMessage(1, b"first", 2),
        StoredMessage(3, b"second", 1),
        StoredMessage(4, b"first"),
    ]


async def test_the_last_id_stays_when_its_message_is_gone(store: Store) -> None:
    queue = declare(store)
    store.put_message(queue, 9, b"")
    store.remove_messages(queue, [9])
    store.put_message(queue, 3, b"")
    assert (await store.load()).queues[0].last_id == 9
    store.remove_messages(queue, [3])
    assert (await store.load()).queues[0].last_id == 9


async def test_what_was_confirmed_is_bounded_and_in_order_and_ends_with_its_queue(store: Store) -> None:
    queue, other = declare(store), declare(store, BILLS)
    for number in range(1, 6):
        store.put_message(queue, number, b"")
    assert await store.confirmed(queue) == []
    store.remove_messages(queue, [1, 2])
    store.put_confirmed(queue, [(b"a", 1), (b"b", 2)], keep=3)
    store.put_confirmed(queue, [(b"a", 3)], keep=3)
    assert await store.confirmed(queue) == [(b"a", 1), (b"b", 2), (b"a", 3)]
    store.put_confirmed(queue, [(b"c", 4)], keep=3)
    store.put_confirmed(other, [(b"d", 4)], keep=3)
    assert await store.confirmed(queue) == [(b"b", 2), (b"a", 3), (b"c", 4)]
    store.clear_confirmed(queue)
    store.put_confirmed(queue, [(b"e", 5)], keep=3)
    assert await store.confirmed(queue) == [(b"e", 5)]
    store.delete_queue(queue)
    assert await store.confirmed(other) == [(b"d", 4)]


async def test_the_window_of_duplicates_is_bounded_and_in_order(store: Store) -> None:
    queue = declare(store)
    store.put_message(queue, 1, b"", duplicate_id=b"a")
    store.put_duplicates(queue, [(b"b", 2), (b"c", 3)])
    store.put_message(queue, 4, b"", duplicate_id=b"d")
    assert await store.duplicates(queue) == [(b"b", 2), (b"c", 3), (b"d", 4)]
    store.remove_messages(queue, [4])
    store.put_duplicates(queue, [(b"e", 5)])
    assert await store.duplicates(queue) == [(b"c", 3), (b"d", 4), (b"e", 5)]
    store.clear_duplicates(queue)
    store.put_duplicates(queue, [(b"f", 6)])
    assert await store.duplicates(queue) == [(b"f", 6)]


async def test_content_is_replaced_in_one_commit(store: Store) -> None:
    queue = declare(store)
    for number in range(1, 5):
        store.put_message(queue, number, b"old", duplicate_id=b"%d" % number)
    await store.when_committed(store.sequence)
    commits: list[int] = []
    store.on_committed(commits.append)
    store.remove_messages(queue, range(1, 5))
    store.clear_duplicates(queue)
    store.put_message(queue, 2, b"new")
    store.put_duplicates(queue, [(b"n", 2)])
    await store.when_committed(store.sequence)
    assert commits == [store.sequence]
    assert await messages(store, queue) == [StoredMessage(2, b"new")]
    assert await store.duplicates(queue) == [(b"n", 2)]


async def test_a_queue_put_again_changes_and_keeps_its_content(store: Store) -> None:
    queue = declare(store)
    store.put_message(queue, 1, b"x")
    record = QueueRecord(
        identity=ORDERS, name="renamed", replicate="none", arguments={"a": {"b": [1.5, None]}}
    )
    store.put_queue(record)
    assert store.queue_key(ORDERS) == queue
    (found,) = (await store.load()).queues
    assert (found.key, found.record, found.last_id) == (queue, record, 1)
    assert await messages(store, queue) == [StoredMessage(1, b"x")]


async def test_a_queue_of_the_same_name_and_another_identity_is_another_queue(store: Store) -> None:
    first = declare(store, ORDERS, "orders")
    store.put_message(first, 1, b"old", duplicate_id=b"d")
    store.delete_queue(first)
    second = declare(store, BILLS, "orders")
    assert second != first
    assert await messages(store, second) == []
    assert await store.duplicates(second) == []
    assert [queue.last_id for queue in (await store.load()).queues] == [0]


async def test_a_deleted_queue_takes_no_message_and_forgives_late_outcomes(store: Store) -> None:
    queue = declare(store)
    store.delete_queue(queue)
    with pytest.raises(UnknownQueueError, match="no queue"):
        store.put_message(queue, 1, b"")
    with pytest.raises(UnknownQueueError):
        store.queue_key(ORDERS)
    store.remove_messages(queue, [1])
    store.count_delivery(queue, [1])
    await store.when_committed(store.sequence)
    assert await messages(store, queue) == []


async def test_bindings_go_with_their_queue_and_with_their_exchange(store: Store) -> None:
    orders, bills = declare(store, ORDERS, "orders"), declare(store, BILLS, "bills")
    other = uuid.UUID(int=4)
    exchanges = [
        ExchangeRecord(identity=TOPICS, name="t", type="topic"),
        ExchangeRecord(identity=other, name="f", type="fanout", arguments={"x": 1}),
    ]
    bindings = [
        BindingRecord(exchange=exchange, queue=queue, key=key)
        for exchange in (TOPICS, other)
        for queue in (ORDERS, BILLS)
        for key in "ab"
    ]
    for exchange in exchanges:
        store.put_exchange(exchange)
    for binding in bindings:
        store.put_binding(binding)
    snapshot = await store.load()
    assert snapshot.exchanges == (exchanges[1], exchanges[0])
    assert snapshot.bindings == tuple(bindings)
    store.delete_queue(orders)
    store.delete_exchange(TOPICS)
    store.delete_binding(BindingRecord(exchange=other, queue=BILLS, key="a"))
    left = BindingRecord(exchange=other, queue=BILLS, key="b")
    store.put_binding(left)
    snapshot = await store.load()
    assert snapshot.exchanges == (exchanges[1],)
    assert snapshot.bindings == (left,)
    assert [queue.key for queue in snapshot.queues] == [bills]


async def test_commits_are_reported_once_each_with_growing_sequences(store: Store) -> None:
    reported: list[int] = []
    store.on_committed(reported.append)
    queue = declare(store)
    sequences = [store.put_message(queue, number, b"x") for number in range(1, 50)]
    assert sequences == list(range(2, 51))
    assert reported == [], "nothing is committed in the turn that appends it"
    await store.when_committed(10)
    assert reported == [50], "one turn is one commit"
    await store.when_committed(store.put_message(queue, 50, b"x"))
    assert reported == [50, 51]
    assert store.committed == store.sequence == 51


async def test_waiting_for_what_is_committed_ends_at_once_and_for_the_future_is_refused(store: Store) -> None:
    await store.write_generation(1)
    assert store.when_committed(1).done()
    with pytest.raises(ValueError, match="not given"):
        store.when_committed(99)


async def test_what_is_appended_while_a_commit_is_under_way_is_committed_later(store: Store) -> None:
    queue = declare(store)
    reported: list[int] = []
    store.on_committed(reported.append)
    number = 0

    def more(committed: int) -> None:
        nonlocal number
        if number < 20:
            number += 1
            store.put_message(queue, number, b"x")

    store.on_committed(more)
    while number < 20 or store.committed < store.sequence:
        await store.when_committed(store.sequence)
    assert reported == sorted(set(reported))
    assert len(await messages(store, queue)) == 20


@pytest.mark.parametrize("message_id", [0, -1, 2**63])
async def test_an_id_that_is_none_is_refused_before_it_does_harm(store: Store, message_id: int) -> None:
    queue = declare(store)
    with pytest.raises(ValueError, match="63 bits"):
        store.put_message(queue, message_id, b"")
    await store.when_committed(store.sequence)


async def test_a_closed_store_has_committed_everything_and_takes_nothing(store: Store) -> None:
    queue = declare(store)
    reported: list[int] = []
    store.on_committed(reported.append)
    last = store.put_message(queue, 1, b"x")
    await store.close()
    await store.close()
    assert reported[-1] == last
    for operation in (
        lambda: store.put_message(queue, 2, b"x"),
        lambda: store.remove_messages(queue, [1]),
        lambda: store.write_generation(1),
        lambda: store.put_replicas(["x"]),
        lambda: store.delete_queue(queue),
    ):
        with pytest.raises(StoreFailedError, match="closed"):
            operation()
    with pytest.raises(StoreFailedError, match="closed"):
        await store.load()
