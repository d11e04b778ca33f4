"""Receivers and deliveries of the blocking API; see ``haclient.blocking``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Self

from haclient.api.bases import BaseDelivery
from haclient.api.deadlines import limit
from haclient.api.descriptions import describe_delivery, describe_receiver
from haclient.api.pickling import not_picklable
from haclient.api.receiving import (
    OnError,
    arrived,
    block_outcome,
    check_counts,
    confirm_many,
    cores_of,
    drain,
    failed_outcome,
    listed,
    live,
    modified,
    nothing_arrived,
    rejected,
    take,
    wait_confirmed,
)
from haclient.core.delivery import DeliveryCore, accept_all, mark_accepted
from haclient.core.receiver import ReceiverCore
from haclient.error_catalog.arguments import check_flag
from haclient.errors import ConnectionClosed, HaclientError, StaleDelivery
from haclient.factory.loop_thread import LoopThread
from haclient.outcome import ACCEPTED, RELEASED, Outcome


class Receiver:
    """Receives messages from one node, across failovers; an iterator of deliveries.

    The iteration ends when the application closes the receiver or its connection.
    """

    __reduce__ = not_picklable

    def __init__(
        self, thread: LoopThread, core: ReceiverCore, call_timeout: float | None, connection: object
    ) -> None:
        self._thread = thread
        self._core = core
        self._call_timeout = call_timeout
        self._connection = connection  # keep the connection alive

    @property
    def address(self) -> str | None:
        """The node that the receiver receives from; a dynamic one changes with a failover."""
        return self._core.address

    def receive(self, *, timeout: float | None = None) -> Delivery:
        """Wait for the next delivery.

        :param timeout: seconds; by default no limit, and 0 only takes a message that has arrived already.
        :raises ReceiveTimeout: if none arrived in time.
        :raises LinkClosed: if the receiver is closed.
        :raises ConnectionClosed: if the connection is closed; ``ConnectionGaveUp`` if it gave up.
        """
        self._thread.check()
        seconds = limit(timeout)
        try:
            delivery = self._core.inbox.popleft()
        except IndexError:
            delivery = self._wait_delivery(seconds)
        self._thread.post(self._core.replenish_credit, 1, delivery.session_number)
        return Delivery(self._thread, delivery, self._call_timeout)

    def receive_many(
        self, max_count: int, *, timeout: float | None = None, min_count: int = 1
    ) -> list[Delivery]:
        """Wait for several deliveries; return fewer, or none, at the timeout.

        :param max_count: maximum number of deliveries.
        :param timeout: seconds; by default no limit, and 0 only takes messages that have arrived already.
        :param min_count: number of deliveries to wait for; at most the receiver's ``credit``.
        :returns: the deliveries, in order; an empty list if none arrived in time.
        :raises ValueError: if ``min_count`` is not between 1 and ``max_count``, or above the credit.
        :raises LinkClosed: if the receiver is closed.
        :raises ConnectionClosed: if the connection is closed; ``ConnectionGaveUp`` if it gave up.
        """
        self._thread.check()
        core, seconds = self._core, limit(timeout)
        check_counts(core, max_count, min_count)
        left, deadline = seconds, None if seconds is None else monotonic() + seconds
        held: list[DeliveryCore] = []
        try:
            while True:
                needed = min_count - len(held)
                in_time = len(core.inbox) >= needed or self._thread.call(arrived(core, needed, left))
                self._take(held, max_count)
                if len(held) >= min_count or not in_time:
                    return [Delivery(self._thread, each, self._call_timeout) for each in held]
                # Another thread took some: wait for the remaining time.
                left = None if deadline is None else deadline - monotonic()
        except BaseException:
            with contextlib.suppress(ConnectionClosed):
                self._thread.post(core.put_back, held)
            raise

    def accept_many(
        self, deliveries: Iterable[Delivery], *, confirm: bool = False, timeout: float | None = None
    ) -> list[Delivery]:
        """Accept several deliveries of this receiver with one call.

        :param confirm: wait until the primary has confirmed them, as ``Delivery.accept`` does for one.
        :param timeout: seconds for the confirmation; the URL's ``call_timeout`` by default, ``math.inf`` for
            no limit.
        :returns: the stale deliveries, in order: the primary delivers their messages again.
        :raises ConfirmTimeout: if not all are confirmed in time; the call may be repeated.
        :raises ValueError: if one belongs to another receiver.  None is accepted then.
        :raises AlreadySettled: if one was settled before, or is listed twice.  None is accepted then.
        """
        given = listed(deliveries)
        cores = cores_of(given)
        check_flag("confirm", confirm)
        seconds = limit(timeout, self._call_timeout)
        if confirm:
            confirmed = self._thread.call(confirm_many(self._core, cores, seconds))
            return [each for each in given if each._core not in confirmed]
        accepted = mark_accepted(self._core, cores)
        if accepted:
            self._thread.post(accept_all, accepted)
        if len(accepted) == len(given):  # always, unless a connection was lost
            return []
        live_ones = set(accepted)
        return [each for each in given if each._core not in live_ones]

    def add_credit(self, count: int) -> None:
        """Let the primary send ``count`` more messages, if the receiver has ``credit=0``.

        :raises ValueError: if the receiver grants its own credit, or ``count`` is below 1.
        :raises LinkClosed: if the receiver is closed.
        :raises ConnectionClosed: if the connection is closed; ``ConnectionGaveUp`` if it gave up.
        """

        async def add() -> None:
            self._core.add_credit(count)

        self._thread.call(add())

    def drain(self, *, timeout: float | None = None) -> None:
        """Take the credit back: wait until the primary has sent its available messages, and sends no more.

        Call ``receive_many(..., timeout=0)`` for the messages that have arrived.  Credit is granted again
        when a call waits for a message, or with ``credit=0`` by ``add_credit``.  A failover ends the drain;
        the new primary gets no credit until then, either.

        :param timeout: seconds; the URL's ``call_timeout`` by default, ``math.inf`` for no limit.
        :raises DrainTimeout: if the primary does not answer in time.  Messages may still arrive then.
        :raises LinkClosed: if the receiver is closed.
        :raises ConnectionClosed: if the connection is closed.
        """
        self._thread.call(drain(self._core, limit(timeout, self._call_timeout)))

    def detach(self) -> None:
        """Detach the link, so that a durable source stays and keeps messages for the next receiver.

        Prefetched messages go back to the source.
        """
        close_link(self._thread, partial(self._core.close, keep=True))

    def close(self) -> None:
        """Close the link.  Prefetched messages go back to the queue; a durable subscription stays."""
        close_link(self._thread, self._core.close)

    def __iter__(self) -> Iterator[Delivery]:
        return self

    def __next__(self) -> Delivery:
        try:
            return self.receive()
        except HaclientError:
            if self._core.closed_here:
                raise StopIteration from None
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait_delivery(self, seconds: float | None) -> DeliveryCore:
        left, deadline = seconds, None if seconds is None else monotonic() + seconds
        while self._thread.call(arrived(self._core, 1, left)):
            try:
                return self._core.inbox.popleft()
            except IndexError:  # another thread took it: wait for the remaining time
                left = None if deadline is None else deadline - monotonic()
        raise nothing_arrived(seconds)

    def _take(self, held: list[DeliveryCore], max_count: int) -> None:
        held[:] = live(self._core, held)
        taken = take(self._core, max_count - len(held))
        if taken:
            self._thread.post(self._core.replenish_credit, len(taken), taken[-1].session_number)
            held += taken

    def __repr__(self) -> str:
        return describe_receiver("haclient", self._core)


class Delivery(BaseDelivery):
    """One received message.  Settle it once, with one of the four outcomes.

    Each of the four calls raises ``StaleDelivery`` if the connection that delivered the message is lost or
    the receiver is closed, and ``AlreadySettled`` the second time.

    As a context manager it accepts at the end of the block, and releases after an exception; see
    ``processing``.
    """

    __slots__ = ("_call_timeout", "_thread")

    def __init__(self, thread: LoopThread, core: DeliveryCore, call_timeout: float | None) -> None:
        self._thread = thread
        self._core = core
        self._call_timeout = call_timeout

    def accept(self, *, confirm: bool = False, timeout: float | None = None) -> None:
        """Accept the message: the broker may forget it.  Sends the outcome at once and waits for no answer.

        :param confirm: wait until the primary has confirmed that the message is gone for good, even after a
            failover.  The receiver must have been created with ``confirm=True``.  The call may be repeated:
            it waits for the same confirmation.
        :param timeout: seconds; the URL's ``call_timeout`` by default, ``math.inf`` for no limit.
        :raises ConfirmTimeout: if the accept is not confirmed in time; it may still take effect.
        :raises StaleDelivery: with ``confirm``, also if a connection was lost and the next primary does not
            know of the accept; the message may be delivered again.
        :raises LinkClosed: if the receiver ended meanwhile; the accept may have taken effect.
        :raises ConnectionClosed: if the connection ended meanwhile; the accept may have taken effect.
        :raises ValueError: if the receiver asked for no confirmations.
        """
        if confirm is False and timeout is None:
            self._settle(ACCEPTED)
            return
        check_flag("confirm", confirm)
        seconds = limit(timeout, self._call_timeout)
        if confirm:
            self._thread.call(wait_confirmed(self._core, seconds))
        else:
            self._settle(ACCEPTED)

    def reject(self, condition: str | None = None, description: str | None = None) -> None:
        """Reject the message as invalid: the broker must not deliver it unchanged."""
        self._settle(rejected(condition, description))

    def release(self) -> None:
        """Return the message to the queue, as if it had not been delivered."""
        self._settle(RELEASED)

    def modify(self, *, delivery_failed: bool = True, undeliverable_here: bool = False) -> None:
        """Return the message, counted as a failed delivery, or never to be delivered here again."""
        self._settle(modified(delivery_failed=delivery_failed, undeliverable_here=undeliverable_here))

    def processing(self, *, on_error: OnError = "release", timeout: float | None = None) -> Processing:
        """Return a block that accepts the delivery at its end, or gives it back after an exception.

        If the delivery was settled inside the block, the end does nothing.  A stale delivery raises no error:
        its message is delivered again, and the event ``DeliveryStale`` reports it.  If the receiver was
        created with ``confirm=True``, the end of the block waits until the accept is confirmed.  It then
        raises the errors of ``accept(confirm=True)``, except ``StaleDelivery``.

        :param on_error: reaction to an exception in the block: ``"release"`` returns the message as if it had
            not been delivered, ``"modify"`` counts a failed delivery, ``"reject"`` stops further deliveries.
            A cancellation or an interrupt, which is no ``Exception``, always releases.
        :param timeout: seconds for the confirmation; the URL's ``call_timeout`` by default, ``math.inf`` for
            no limit.
        :raises ValueError: for an invalid ``on_error``.
        :raises AlreadySettled: at the start of the block, if the delivery was settled before.
        """
        return Processing(self, failed_outcome(on_error), limit(timeout, self._call_timeout))

    def __enter__(self) -> Self:
        self._thread.check_process()
        self._core.check_unsettled()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self._end_block(error, RELEASED, limit(None, self._call_timeout))

    def __repr__(self) -> str:
        return describe_delivery("haclient", self._core)

    def _end_block(self, error: BaseException | None, failed: Outcome, seconds: float | None) -> bool:
        core = self._core
        if isinstance(error, StaleDelivery) and core.comes_again:  # the application settled it too late
            self._report_stale(error)
            return True
        outcome = block_outcome(core, error, failed)
        try:
            if outcome is ACCEPTED and core.confirms:
                self._thread.call(wait_confirmed(core, seconds))
            elif outcome is not None:
                self._settle(outcome)
        except StaleDelivery as stale:
            self._report_stale(stale)
        except ConnectionClosed:
            if core.confirming:  # the accept may have taken effect; otherwise the message is delivered again
                raise
        return False

    def _report_stale(self, error: StaleDelivery) -> None:
        with contextlib.suppress(ConnectionClosed):
            self._thread.post(self._core.report_stale, error)

    def _settle(self, outcome: Outcome) -> None:
        self._core.mark_settled()
        self._thread.post(self._core.settle, outcome)


class Processing:
    """The block of ``Delivery.processing``: a context manager."""

    def __init__(self, delivery: Delivery, failed: Outcome, seconds: float | None) -> None:
        self._delivery = delivery
        self._failed = failed
        self._seconds = seconds

    def __enter__(self) -> Delivery:
        return self._delivery.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self._delivery._end_block(error, self._failed, self._seconds)


def close_link(thread: LoopThread, close_core: Callable[[], None]) -> None:
    """Close a link on the loop thread; do nothing if the factory is closed already."""

    async def close() -> None:
        close_core()

    try:
        thread.call(close())
    except ConnectionClosed:
        return
