from __future__ import annotations

from broker_stub.queueing.duplicate_detection import DuplicateWindow


def test_an_id_is_known_after_it_was_remembered() -> None:
    window = DuplicateWindow()
    assert window.first_copy(b"a") is None
    window.remember(b"a", 7)
    assert window.first_copy(b"a") == 7


def test_the_oldest_id_leaves_when_the_window_is_full() -> None:
    window = DuplicateWindow(2)
    for number, name in enumerate((b"a", b"b", b"c"), start=1):
        window.remember(name, number)
    assert [window.first_copy(name) for name in (b"a", b"b", b"c")] == [None, 2, 3]
    assert len(window) == 2


def test_a_window_of_nothing_knows_nothing() -> None:
    window = DuplicateWindow(0)
    window.remember(b"a", 1)
    assert window.first_copy(b"a") is None
    assert len(window) == 0


def test_an_id_is_noted_once_and_keeps_its_first_message() -> None:
    window = DuplicateWindow()
    assert window.add(b"a", 1)
    assert not window.add(b"a", 2)
    assert window.add(b"b", 3)
    assert window.pairs() == [(b"a", 1), (b"b", 3)]


def test_a_window_that_was_cleared_is_as_new() -> None:
    window = DuplicateWindow(2)
    for number, name in enumerate((b"a", b"b"), start=1):
        window.add(name, number)
    window.clear()
    assert (len(window), window.first_copy(b"a")) == (0, None)
    for number, name in enumerate((b"c", b"d", b"e"), start=3):
        assert window.add(name, number)
    assert window.pairs() == [(b"d", 4), (b"e", 5)]


def test_renewed_ids_leave_last_and_the_last_of_two_counts() -> None:
    window = DuplicateWindow(3)
    for number, each in enumerate((b"a", b"b", b"c")):
        window.remember(each, number)
    window.renew([(b"b", 7), (b"a", 8), (b"b", 9)])
    assert window.pairs() == [(b"c", 2), (b"a", 8), (b"b", 9)]
    window.remember(b"d", 10)
    window.remember(b"e", 11)
    assert window.pairs() == [(b"b", 9), (b"d", 10), (b"e", 11)]
