from __future__ import annotations

from broker_stub.dedup import DuplicateWindow


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
