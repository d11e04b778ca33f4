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
