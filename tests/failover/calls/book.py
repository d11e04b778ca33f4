"""The reports of a run's calls, and how often each case occurred."""

from __future__ import annotations

import enum
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from unittest import mock

from cproton_ffi import ffi

from haclient import Message
from haclient.api import asyncio_sender
from haclient.core.sender import SenderCore
from haclient.errors import HaclientError, SendTimeout
from tests.failover.calls.route import Route

# Seconds after which a call counts as hanging.
HUNG = 30.0
# The longest pause after a call, in seconds.
PAUSE = 0.001
# One of this many messages has this many bytes.
_LARGE_EACH, _LARGE = 13, 100_000
# Unsettled messages when a connection is closed.
AT_CLOSE = 10
# A run must have each of these cases at least once.
BEFORE_THE_WIRE = "timed out before the wire"
AFTER_THE_WIRE = "timed out after the wire"
SAME_TURN = "accepted in the turn of its timeout"
CANCELLED_AFTER = "cancelled after its acceptance"
END_OF_ENGINE = "sent between the end of an engine and its notice"
POINTER_AGAIN = "a pointer used again"
CASES = (BEFORE_THE_WIRE, AFTER_THE_WIRE, SAME_TURN, CANCELLED_AFTER, END_OF_ENGINE, POINTER_AGAIN)


class Report(enum.Enum):
    """The report of a call about its message, which bounds the copies in the broker."""

    ACCEPTED = frozenset({1})
    NOT_DELIVERED = frozenset({0})
    UNKNOWN = frozenset({0, 1})


class Book:
    """Records reports, from any thread.

    :ivar reports: of each message, by its number.
    :ivar got: how often each message was received.
    :ivar cases: how often each case occurred.
    :ivar ended: how the calls ended, by kind of call.
    :ivar hung: calls that did not return.
    """

    def __init__(self) -> None:
        self.reports: dict[int, Report] = {}
        self.got: Counter[int] = Counter()
        self.cases: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.hung: list[str] = []
        self.left: dict[str, int] = {}
        self._lock = threading.Lock()

    def count(self, case: str) -> None:
        with self._lock:
            self.cases[case] += 1

    def accepted(self, number: int) -> None:
        self._report(number, Report.ACCEPTED, "accepted")

    def cancelled(self, number: int) -> None:
        self._report(number, Report.UNKNOWN, "cancelled")

    def failed(self, number: int, error: HaclientError) -> None:
        """Record the error of a call: its statement about delivery must hold."""
        report = Report.NOT_DELIVERED if error.delivered is False else Report.UNKNOWN
        self._report(number, report, f"{type(error).__name__}, delivered={error.delivered}")
        if isinstance(error, SendTimeout):
            self.count(BEFORE_THE_WIRE if error.delivered is False else AFTER_THE_WIRE)

    def end(self, how: str) -> None:
        with self._lock:
            self.ended[how] += 1

    def received(self, number: int) -> None:
        with self._lock:
            self.got[number] += 1

    def _report(self, number: int, report: Report, how: str) -> None:
        assert number not in self.reports
        self.reports[number] = report
        self.end(how)

    # -- internal events ----------------------------------------------------------------------------

    def watch(self, core: SenderCore) -> None:
        """Count sends over a dead link, and pointers that a link uses again."""
        submit: Callable[..., Any] = core.submit
        seen: set[int] = set()
        last: object = None

        def watched(*arguments: Any) -> Any:
            nonlocal last
            link = core._link
            if link is not last:
                last = link
                seen.clear()
            if link is not None and link.dead:
                self.count(END_OF_ENGINE)
            entry = submit(*arguments)
            if entry.delivery is not None:
                pointer = int(ffi.cast("uintptr_t", entry.delivery))
                if pointer in seen:
                    self.count(POINTER_AGAIN)
                seen.add(pointer)
            return entry

        core.submit = watched  # type: ignore[method-assign]

    def watching_same_turns(self) -> AbstractContextManager[object]:
        """Count the outcomes that the asyncio API still returns after a call's timeout."""
        known = asyncio_sender._known_outcome

        def watched(*arguments: Any) -> Any:
            outcome = known(*arguments)
            if outcome is not None:
                self.count(SAME_TURN)
            return outcome

        return mock.patch.object(asyncio_sender, "_known_outcome", watched)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The connection parameters of a run's calls.

    :param queue: to send to; ``feed`` has the messages to receive.
    :param options: of the connection.
    :param numbers: of messages; no two have the same.
    """

    url: str
    options: dict[str, Any]
    queue: str
    feed: str
    route: Route
    numbers: Iterator[int]
    book: Book = field(default_factory=Book)

    def message(self) -> tuple[int, Message]:
        """Return a new message and its number."""
        number = next(self.numbers)
        return number, message_of(number)


def message_of(number: int) -> Message:
    """Return the message of this number; some fill several frames, and so are cut and wait for the socket."""
    return Message(id=number, body=b"x" * (_LARGE if number % _LARGE_EACH == 0 else number % 100))


def number_of(message: Message) -> int:
    """Return the number of a message, which must be complete."""
    number = int(message.id)
    assert message.body == message_of(number).body, f"message {number} has changed"
    return number


C, S, R = TypeVar("C"), TypeVar("S"), TypeVar("R")


@dataclass
class Scene(Generic[C, S, R]):
    """A run's connection, of either API."""

    setting: Setting
    connection: C
    sender: S
    receiver: R
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def book(self) -> Book:
        """The record of its calls."""
        return self.setting.book

    @property
    def route(self) -> Route:
        """The route to the broker."""
        return self.setting.route

    def message(self) -> tuple[int, Message]:
        """Return a new message and its number; for any thread."""
        with self.lock:
            return self.setting.message()


def leftovers(factory: Any, sender: SenderCore, receiver: Any) -> dict[str, int]:
    """Return objects left by calls that have ended: there must be none."""
    link = sender._link
    return {
        "ledger": len(sender.ledger),
        "unsent": len(sender.ledger.unsent),
        "waiters of the window": len(sender._waiting_for_window),
        "waiters of flush": len(sender._flushing),
        "waiters of receive": len(receiver._waiting),
        "pointer table": 0 if link is None else len(link.unsettled),
        "deliveries": 0 if receiver._link is None else len(receiver._link.unsettled) - len(receiver.inbox),
        "subscriptions": len(factory._events._iterators),
    }
