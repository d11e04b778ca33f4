"""A transfer is settled when all required replicas have the message, while the guard is not suspended."""

from __future__ import annotations

from typing import Any

import pytest

from broker_stub.amqp.message_format import PLAIN
from broker_stub.durability.guard import Guard
from broker_stub.queueing.message import Message


def waiting(count: int) -> Message:
    message = Message(1, b"", PLAIN)
    message.pending_acks = count
    return message


def test_a_message_that_waits_for_no_one_completes_at_once() -> None:
    reported: list[Any] = []
    Guard().when_complete(waiting(0), reported.append, "a")
    assert reported == ["a"]


def test_a_message_completes_with_its_last_acknowledgement() -> None:
    guard, reported, message = Guard(), list[Any](), waiting(2)
    guard.when_complete(message, reported.append, "a")
    guard.when_complete(message, reported.append, "second copy")
    guard.acknowledged(message)
    assert reported == []
    guard.acknowledged(message)
    assert reported == ["a", "second copy"]


def test_a_suspended_guard_keeps_everything_in_order_until_the_last_reason_is_gone() -> None:
    guard, reported = Guard(), list[Any]()
    guard.suspend("recovering")
    guard.suspend("going alone")
    for token in range(3):
        guard.when_complete(waiting(0), reported.append, token)
    guard.resume("recovering")
    assert reported == []
    guard.resume("going alone")
    assert reported == [0, 1, 2]


def test_after_stepping_down_nothing_completes_ever() -> None:
    guard, reported, message = Guard(), list[Any](), waiting(1)
    guard.when_complete(message, reported.append, "a")
    guard.suspend("going alone")
    guard.when_complete(waiting(0), reported.append, "b")
    guard.finish()
    guard.acknowledged(message)
    guard.resume("going alone")
    assert reported == []


def test_a_member_that_leads_again_completes_nothing_of_before() -> None:
    guard, reported = Guard(), list[Any]()
    guard.suspend("going alone")
    guard.when_complete(waiting(0), reported.append, "before")
    assert (len(guard._suspended), guard.open) == (1, False)
    guard.finish()
    assert len(guard._suspended) == 0
    guard.begin()
    assert guard.open
    guard.when_complete(waiting(0), reported.append, "now")
    guard.resume("going alone")
    assert reported == ["now"]


def raising(token: Any) -> None:
    raise ValueError(f"planted in {token}")


def test_a_completion_that_raises_drops_none_of_the_later_ones(caplog: pytest.LogCaptureFixture) -> None:
    guard, reported = Guard(), list[Any]()
    guard.suspend("recovering")
    for token, done in enumerate((reported.append, raising, reported.append, reported.append)):
        guard.when_complete(waiting(0), done, token)
    guard.resume("recovering")
    assert (reported, len(guard._suspended), guard.open) == ([0, 2, 3], 0, True)
    assert "planted in 1" in caplog.text


def test_a_completion_that_raises_drops_no_second_copy_of_its_message() -> None:
    guard, reported, message = Guard(), list[Any](), waiting(1)
    for token, done in enumerate((reported.append, raising, reported.append)):
        guard.when_complete(message, done, token)
    guard.acknowledged(message)
    assert reported == [0, 2]


def test_what_a_completion_completes_while_the_guard_resumes_follows_what_waited_before() -> None:
    guard, reported, message = Guard(), list[Any](), waiting(1)
    guard.when_complete(message, reported.append, "completed by the first")
    guard.suspend("recovering")
    guard.when_complete(waiting(0), lambda _token: guard.acknowledged(message), "first")
    guard.when_complete(waiting(0), reported.append, "second")
    guard.resume("recovering")
    assert reported == ["second", "completed by the first"]
    guard.when_complete(waiting(0), reported.append, "later")
    assert reported[-1] == "later"


def test_a_completion_that_suspends_the_guard_again_holds_the_rest() -> None:
    guard, reported = Guard(), list[Any]()
    guard.suspend("recovering")
    guard.when_complete(waiting(0), lambda _token: guard.suspend("shrinking"), "first")
    guard.when_complete(waiting(0), reported.append, "second")
    guard.resume("recovering")
    assert (reported, len(guard._suspended), guard.open) == ([], 1, False)
    guard.resume("shrinking")
    assert (reported, len(guard._suspended), guard.open) == (["second"], 0, True)


def test_a_completion_that_suspends_and_resumes_loses_nothing_and_keeps_the_order() -> None:
    guard, reported = Guard(), list[Any]()

    def twice(token: Any) -> None:
        guard.suspend("shrinking")
        guard.when_complete(waiting(0), reported.append, f"from {token}")
        guard.resume("shrinking")

    guard.suspend("recovering")
    for token in range(2000):
        guard.when_complete(waiting(0), twice, token)
    guard.when_complete(waiting(0), reported.append, "last")
    guard.resume("recovering")
    assert reported == ["last", *(f"from {token}" for token in range(2000))]
    assert guard.open


@pytest.mark.parametrize("again", [False, True])
def test_a_completion_that_ends_the_term_leaves_the_rest_unsettled(again: bool) -> None:
    guard, reported = Guard(), list[Any]()

    def end(_token: Any) -> None:
        guard.finish()
        if again:
            guard.begin()

    guard.suspend("recovering")
    guard.when_complete(waiting(0), end, "first")
    guard.when_complete(waiting(0), reported.append, "second")
    guard.resume("recovering")
    assert (reported, len(guard._suspended), guard.open) == ([], 0, again)
