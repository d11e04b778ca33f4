"""The messages of one ``send_many`` call, and their results.

Rules
-----
* A message is read from the iterable when the window allows it, and has a result from then on.
* A message has a ``Slot`` instead of a future: no other caller can wait for it, or cancel it.
* The end of the sender, or of the call's time, is a result of the messages.  So is an encoding error; the
  other messages are sent.  If the iterable raises, the call raises that exception when the messages before
  have their outcomes; a note counts them.
* A cancellation or interrupt withdraws the messages that are not on the wire.  The others stay in the ledger
  until they are settled or their connection is lost.

A ``Batch`` belongs to the event loop of its sender.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterable, Callable, Iterable
from typing import Any, TypeAlias

import proton

from haclient.api.deadlines import not_settled, window_full
from haclient.core.ledger import Entry, Waiter
from haclient.core.sender import SenderCore
from haclient.engine.amqp_values.message import SendableBody
from haclient.engine.codec import duplicate_id_of
from haclient.errors import HaclientError, SendManyError, UnencodableValue, another
from haclient.outcome import Outcome

Result: TypeAlias = Outcome | HaclientError
Sendable: TypeAlias = proton.Message | SendableBody

END = object()
"""Returned by ``next`` when an iterable has no more messages."""
# So many different reasons fit on a screen.
_SHOWN_REASONS = 3


class Slot:
    """Puts the outcome of one message into its batch; the ``Waiter`` of its entry in the ledger."""

    __slots__ = ("batch", "index")

    def __init__(self, batch: Batch, index: int) -> None:
        self.batch = batch
        self.index = index

    def done(self) -> bool:
        """Return whether the message has a result, or the call was abandoned."""
        return self.batch.abandoned or self.batch.results[self.index] is not None

    def set_result(self, result: Outcome, /) -> None:
        """Store the outcome."""
        self.batch.settle(self.index, result)

    def set_exception(self, exception: BaseException, /) -> None:
        """Store the error of the message."""
        self.batch.settle(self.index, exception)


class Batch:
    """The messages that one ``send_many`` has read, in order.

    :ivar results: the result of each message; ``None`` if it is not settled.
    :ivar unsettled: number of messages without a result.
    :ivar abandoned: the caller has stopped waiting.
    :ivar complete: whether the iterable has no more messages.
    :ivar ended: the error because of which the sender takes no more messages.
    """

    __slots__ = ("_core", "_most", "_notify", "abandoned", "complete", "ended", "results", "unsettled")

    def __init__(self, core: SenderCore) -> None:
        self.results: list[Result | None] = []
        self.unsettled = 0
        self.abandoned = False
        self.complete = False
        self.ended: HaclientError | None = None
        self._core = core
        self._most = -1
        self._notify: Callable[[], object] | None = None

    @property
    def settled(self) -> int:
        """Number of messages with a result."""
        return len(self.results) - self.unsettled

    def submit(self, data: bytes) -> None:
        """Send a message, or store the error of the sender."""
        index = len(self.results)
        self.results.append(None)
        self.unsettled += 1
        try:
            self._core.submit(data, Slot(self, index))
        except HaclientError as error:
            self.ended = error
            self.settle(index, error)

    def refuse(self, error: UnencodableValue) -> None:
        """Store the error of a message that cannot be encoded."""
        self.results.append(error)

    def settle(self, index: int, result: Any) -> None:
        """Store the result of a message."""
        if self.abandoned or self.results[index] is not None:
            return
        self.results[index] = result
        self.unsettled -= 1
        if self.unsettled <= self._most:
            self._wake()

    def when_unsettled(self, most: int, notify: Callable[[], object]) -> None:
        """Call ``notify`` once, when at most ``most`` messages are unsettled."""
        self._most, self._notify = most, notify
        if self.unsettled <= most:
            self._wake()

    def expire(self, seconds: float | None) -> None:
        """Withdraw the unsettled messages: the time of the call has ended."""
        core = self._core
        for entry, slot in self._entries():
            duplicate_id = duplicate_id_of(entry.data)
            delivered = core.withdraw(entry)
            self.settle(
                slot.index, not_settled(core, seconds, delivered=delivered, duplicate_id=duplicate_id)
            )

    def abandon(self) -> None:
        """Withdraw the messages that are not on the wire: the caller has stopped waiting."""
        entries = self._entries()
        self.abandoned = True
        for entry, _ in entries:
            self._core.withdraw_unsent(entry)

    def _entries(self) -> list[tuple[Entry[Waiter], Slot]]:
        waiting = ((entry, entry.waiter) for entry in self._core.ledger)
        return [(entry, slot) for entry, slot in waiting if isinstance(slot, Slot) and slot.batch is self]

    def _wake(self) -> None:
        notify, self._most, self._notify = self._notify, -1, None
        if notify is not None:
            notify()


def check(messages: object, *, asynchronous: bool) -> None:
    """Check that ``messages`` is an iterable of messages.

    :raises TypeError: if it is not; also for a single body that Python would iterate over.
    """
    if isinstance(messages, str | bytes | bytearray | memoryview | dict):
        raise TypeError(
            f"send_many takes an iterable of messages; a {type(messages).__qualname__} is one body: "
            "give it to send"
        )
    if isinstance(messages, AsyncIterable):
        if not asynchronous:
            raise TypeError("send_many takes an asynchronous iterable in haclient.aio only")
    elif not hasattr(type(messages), "__iter__") and not hasattr(type(messages), "__getitem__"):
        raise TypeError(f"send_many takes an iterable of messages, not {type(messages).__qualname__}")


async def take(
    batch: Batch,
    core: SenderCore,
    messages: Iterable[Sendable] | AsyncIterable[Sendable],
    encode: Callable[[Sendable], bytes],
) -> None:
    """Send messages as the window allows, until the iterable or the sender ends."""
    ledger, submit = core.ledger, batch.submit
    several = aiter(messages) if isinstance(messages, AsyncIterable) else None
    one = iter(()) if isinstance(messages, AsyncIterable) else iter(messages)
    try:
        while batch.ended is None and core.error is None:
            if ledger.full:
                try:
                    await core.wait_window()
                except HaclientError as error:
                    batch.ended = error
                    return
            message: Any = next(one, END) if several is None else await anext(several, END)
            if message is END:
                batch.complete = True
                return
            try:
                data = encode(message)
            except UnencodableValue as error:
                batch.refuse(error)
            else:
                submit(data)
    finally:
        # Another call may use the place in the window that this one waited for and does not need.
        core.window_unused()


def outcomes(core: SenderCore, batch: Batch, seconds: float | None) -> list[Outcome]:
    """Return the outcomes of all messages, if all are accepted.

    :param seconds: the time of the call, which has ended if neither the iterable nor the sender has.
    :raises SendManyError: if one was not accepted, or some were not read.
    :raises HaclientError: if none was read.
    """
    results: list[Any] = batch.results
    if batch.complete and not any(isinstance(each, HaclientError) for each in results):
        return results
    ended = None if batch.complete else batch.ended or core.error
    if not results:
        raise window_full(core, seconds, None) if ended is None else another(ended)
    text = _count(results)
    if ended is not None:
        text += f"\nno more were taken: {ended}"
    elif not batch.complete:
        text += f"\nno more were taken: the {seconds} s of the call have passed"
    raise SendManyError(text, results) from ended


def note(batch: Batch) -> str:
    """Return the note for an exception of the iterable: the results of the messages before it."""
    if not batch.results:
        return "send_many had sent nothing"
    return f"send_many had sent before: {_count(batch.results)}"


def _count(results: list[Result | None]) -> str:
    """Return how many messages were not accepted, with the first reasons."""
    reasons: dict[str, list[int]] = {}
    for index, each in enumerate(results):
        if isinstance(each, HaclientError):
            reasons.setdefault(str(each), []).append(index)
    failed = sum(map(len, reasons.values()))
    if not failed:
        return f"all {len(results)} messages were accepted"
    lines = [f"{failed} of {len(results)} messages were not accepted"]
    for text, found in itertools.islice(reasons.items(), _SHOWN_REASONS):
        lines.append(f"  {len(found)} times, first at [{found[0]}]: {text}")
    if len(reasons) > _SHOWN_REASONS:
        lines.append(f"  and {len(reasons) - _SHOWN_REASONS} other reasons")
    return "\n".join(lines)
