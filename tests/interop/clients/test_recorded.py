"""The output of programs, converted into a history."""

from __future__ import annotations

import pytest

from tests.faults.checker import check
from tests.faults.history import Fate, History, Name
from tests.interop.clients.recorded import Recorder, UnreadableLineError


def recorded(*lines: str) -> History:
    history = History()
    history.keeps("kept")
    recorder = Recorder(history, "p", "kept")
    for at, line in enumerate(lines):
        recorder.read(line, float(at))
    return history


@pytest.mark.parametrize(
    ("outcome", "fate"),
    [("accepted", Fate.ACKNOWLEDGED), ("refused", Fate.REFUSED), ("unknown", Fate.UNKNOWN)],
)
def test_the_fate_of_a_message_is_its_outcome(outcome: str, fate: Fate) -> None:
    history = recorded("sent 7", f"{outcome} 7")
    assert history.sent == {Name("p", 7): "kept"}
    assert history.fate(Name("p", 7)) is fate


def test_a_settled_message_that_is_not_received_is_lost() -> None:
    history = recorded("sent 7", "accepted 7", "sent 8", "accepted 8", "received 1 0 p 8 2 8.")
    assert check(history).lost == (Name("p", 7),)


def test_a_message_that_comes_twice_over_one_link_is_stored_twice() -> None:
    lines = ("sent 10", "accepted 10", "received 1 0 p 10 2 a.", "received 1 0 p 10 2 a.")
    assert check(recorded(*lines)).twice == (Name("p", 10),)


def test_a_body_that_is_not_as_it_was_sent_is_unexpected() -> None:
    verdict = check(recorded("sent 10", "accepted 10", "received 1 0 p 10 2 b."))
    assert len(verdict.unexpected) == 1
    assert not verdict.holds


def test_connections_and_redirects_are_no_messages() -> None:
    recorder = Recorder(History(), "p", "orders")
    for line in ("connected 127.0.0.1:1", "redirected 127.0.0.1:2", "lost 127.0.0.1:1"):
        recorder.read(line, 0.0)
    assert (recorder.connected, recorder.redirected) == (["127.0.0.1:1"], ["127.0.0.1:2"])
    assert recorder.progress == []


@pytest.mark.parametrize(
    "line", ["", "settled 7", "accepted", "accepted x", "received 1 0", "received a 0 b"]
)
def test_any_other_line_is_refused(line: str) -> None:
    with pytest.raises(UnreadableLineError, match=r"^p printed"):
        recorded(line)
