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


def test_a_message_that_waits_for_nobody_is_told_at_once() -> None:
    told: list[Any] = []
    Guard().when_complete(waiting(0), told.append, "a")
    assert told == ["a"]


def test_a_message_is_told_when_the_last_one_has_it() -> None:
    guard, told, message = Guard(), list[Any](), waiting(2)
    guard.when_complete(message, told.append, "a")
    guard.when_complete(message, told.append, "second copy")
    guard.acknowledged(message)
    assert told == []
    guard.acknowledged(message)
    assert told == ["a", "second copy"]


def test_behind_a_shut_gate_everything_waits_in_order_until_the_last_reason_is_gone() -> None:
    guard, told = Guard(), list[Any]()
    guard.suspend("recovering")
    guard.suspend("going alone")
    for token in range(3):
        guard.when_complete(waiting(0), told.append, token)
    guard.resume("recovering")
    assert told == []
    guard.resume("going alone")
    assert told == [0, 1, 2]


def test_after_stepping_down_nothing_is_told_ever() -> None:
    guard, told, message = Guard(), list[Any](), waiting(1)
    guard.when_complete(message, told.append, "a")
    guard.suspend("going alone")
    guard.when_complete(waiting(0), told.append, "b")
    guard.finish()
    guard.acknowledged(message)
    guard.resume("going alone")
    assert told == []


def test_a_member_that_leads_again_settles_and_tells_nothing_of_before() -> None:
    guard, told = Guard(), list[Any]()
    guard.suspend("going alone")
    guard.when_complete(waiting(0), told.append, "before")
    assert (guard.held, guard.open) == (1, False)
    guard.finish()
    assert guard.held == 0
    guard.begin()
    assert guard.open
    guard.when_complete(waiting(0), told.append, "now")
    guard.resume("going alone")
    assert told == ["now"]
