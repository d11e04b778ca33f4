"""A transfer is told when everyone has the message, and while the gate is open."""

from __future__ import annotations

from typing import Any

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
    assert (guard.held, guard.open) == (1, False)
    guard.finish()
    assert guard.held == 0
    guard.begin()
    assert guard.open
    guard.when_complete(waiting(0), reported.append, "now")
    guard.resume("going alone")
    assert reported == ["now"]
