from __future__ import annotations

from broker_stub.store.batch import Batch, Statement
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


async def test_the_commit_that_has_an_operation_completes_its_future() -> None:
    commits = Commits()
    commits.sequence = 5
    waiting = [commits.when_committed(sequence) for sequence in (5, 3, 4, 3)]
    waiting[3].cancel()
    commits.done(4)
    assert [future.done() for future in waiting] == [False, True, True, True]
    commits.done(5)
    assert waiting[0].done()
