from __future__ import annotations

import pytest

from broker_stub.store import batch as store_batch
from broker_stub.store.batch import Batch, Rewrite, Statement
from broker_stub.store.commits import Commits


def test_a_message_that_is_put_and_removed_is_never_written() -> None:
    changes = Batch().of(1)
    changes.puts[5] = (b"x", 0, None)
    changes.remove(5)
    assert changes.puts == {}
    assert changes.removed == [5]


def test_deliveries_of_a_message_that_is_put_are_counted_in_the_put() -> None:
    changes = Batch().of(1)
    changes.puts[5] = (b"x", 1, None)
    for message_id in (5, 6, 6, 7):
        changes.count(message_id)
    assert changes.puts[5] == (b"x", 2, None)
    assert list(changes.counted()) == [[6, 7], [6]]


def test_a_statement_closes_what_was_gathered_before_it() -> None:
    batch = Batch()
    before = batch.of(1)
    batch.add("DELETE FROM messages WHERE queue = ?", 1)
    after = batch.of(1)
    assert after is not before
    assert after is batch.of(1)
    assert batch.steps == [{1: before}, Statement("DELETE FROM messages WHERE queue = ?", (1,)), {1: after}]


def written_again(batch: Batch) -> dict[int, list[int]]:
    """Return the ids in a batch, by queue."""
    return {queue: list(rewrites) for queue, rewrites in batch.rewrites.items() if rewrites}


def batch_of(*ids: tuple[int, int]) -> Batch:
    """Make a batch that rewrites messages of six bytes, each of a queue."""
    batch = Batch()
    batch.sequence = 7
    for queue, message_id in ids:
        batch.rewrite(queue, message_id, Rewrite(b"p", b"again", 1, None))
    return batch


@pytest.fixture
def _two_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_batch, "MOST_REWRITTEN", 12)


@pytest.mark.usefixtures("_two_fit")
def test_a_batch_leaves_the_rewrites_that_are_too_many_to_the_next() -> None:
    """Queues take turns, even if the first one has more; each message is written once."""
    batch = batch_of((1, 1), (1, 2), (1, 3), (2, 9), (1, 1))
    order = []
    for _ in range(2):
        rest = batch.split()
        order.append(written_again(batch))
        rest.rewrite(1, 4, Rewrite(b"", b"later!", 1, None))
        batch = rest
    rest = batch.split()
    assert [*order, written_again(batch)] == [{1: [1, 2]}, {2: [9], 1: [3]}, {1: [4]}]
    assert (written_again(rest), rest.empty) == ({}, True)


@pytest.mark.usefixtures("_two_fit")
def test_what_is_left_to_the_next_batch_is_committed_with_nothing_else() -> None:
    batch = batch_of((1, 1), (1, 2), (1, 3))
    assert batch.split().sequence == 7


@pytest.mark.usefixtures("_two_fit")
def test_one_message_is_written_again_however_large_it_is() -> None:
    batch = Batch()
    batch.rewrite(1, 1, Rewrite(b"", bytes(100), 1, None))
    assert batch.split().empty
    assert written_again(batch) == {1: [1]}


@pytest.mark.usefixtures("_two_fit")
def test_what_becomes_of_a_message_changes_its_rewrite_that_was_left() -> None:
    """Also with another statement between them."""
    for statement in (False, True):
        rest = batch_of(*((1, number) for number in range(1, 7)), (2, 9)).split()
        if statement:
            rest.add("DELETE FROM messages WHERE queue = ?", 3)
        changes = rest.of(1)
        changes.remove(3)
        changes.put(4, (b"new", 0, None))
        changes.count(5)
        assert list(changes.counted()) == []
        rest.forget_rewrites(2)
        found = {number: rewrite.delivery_count for number, rewrite in rest.rewrites[1].items()}
        assert (found, written_again(rest)) == ({5: 2, 6: 1}, {1: [5, 6]})


def test_a_message_of_the_batch_is_put_as_it_is_written_again() -> None:
    batch = Batch()
    batch.of(1).put(5, (b"x", 0, None))
    batch.rewrite(1, 5, Rewrite(b"p", b"x", 3, None))
    assert batch.of(1).puts == {5: (b"px", 3, None)}
    assert not written_again(batch)


async def test_the_commit_that_has_an_operation_completes_its_future() -> None:
    commits = Commits()
    commits.sequence = 5
    waiting = [commits.when_committed(sequence) for sequence in (5, 3, 4, 3)]
    waiting[3].cancel()
    commits.done(4)
    assert [future.done() for future in waiting] == [False, True, True, True]
    commits.done(5)
    assert waiting[0].done()
