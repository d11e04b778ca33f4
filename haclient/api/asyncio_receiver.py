"""Receivers and deliveries of the asyncio API; see ``haclient.aio``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Self

from haclient.api.bases import BaseDelivery
from haclient.api.deadlines import limit
from haclient.api.descriptions import describe_delivery, describe_receiver
from haclient.api.loop_affinity import check_loop, running_loop, wrong_loop
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
    modified,
    nothing_arrived,
    rejected,
    take,
    wait_confirmed,
)
from haclient.core.delivery import DeliveryCore, accept_all, mark_accepted
from haclient.core.receiver import ReceiverCore
from haclient.error_catalog.arguments import check_flag
from haclient.errors import HaclientError, StaleDelivery
from haclient.outcome import ACCEPTED, RELEASED, Outcome


class Receiver:
    """Receives messages from one node, across failovers; an asynchronous iterator of deliveries.

    The iteration ends when the application closes the receiver or its connection.
    """

    __reduce__ = not_picklable

    def __init__(self, core: ReceiverCore, call_timeout: float | None, connection: object) -> None:
        self._core = core
        self._call_timeout = call_timeout
        self._connection = connection  # keep the connection alive

    @property
    def address(self) -> str | None:
        """The node that the receiver receives from; a dynamic one changes with a failover."""
        return self._core.address

    async def receive(self, *, timeout: float | None = None) -> Delivery:
        """Wait for the next delivery.

        :param timeout: seconds; by default no limit, and 0 only takes a message that has arrived already.
        :raises ReceiveTimeout: if none arrived in time.
        :raises LinkClosed: if the receiver is closed.
        :raises ConnectionClosed: if the connection is closed; ``ConnectionGaveUp`` if it gave up.
        """
        core = self._core
        if running_loop() is not core.loop:
            raise wrong_loop()
        seconds = limit(timeout)
        if not core.inbox and not await arrived(core, 1, seconds):
            raise nothing_arrived(timeout)
        delivery = core.inbox.popleft()
        core.replenish_credit(1, delivery.session_number)
        return Delivery(delivery, self._call_timeout)

    async def receive_many(
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
        core = self._core
        check_loop(core.loop)
        check_counts(core, max_count, min_count)
        seconds = limit(timeout)
        if len(core.inbox) < min_count:
            await arrived(core, min_count, seconds)
        taken = take(core, max_count)
        core.replenish_credit(len(taken), core.session_number)
        return [Delivery(each, self._call_timeout) for each in taken]

    async def accept_many(
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
        check_loop(self._core.loop)
        given = listed(deliveries)
        cores = cores_of(given)
        check_flag("confirm", confirm)
        seconds = limit(timeout, self._call_timeout)
        if confirm:
            confirmed = await confirm_many(self._core, cores, seconds)
            return [each for each in given if each._core not in confirmed]
        accepted = mark_accepted(self._core, cores)
        accept_all(accepted)
        if len(accepted) == len(given):  # always, unless a connection was lost
            return []
        live_ones = set(accepted)
        return [each for each in given if each._core not in live_ones]

    async def add_credit(self, count: int) -> None:
        """Let the primary send ``count`` more messages, if the receiver has ``credit=0``.

        :raises ValueError: if the receiver grants its own credit, or ``count`` is below 1.
        :raises LinkClosed: if the receiver is closed.
        :raises ConnectionClosed: if the connection is closed; ``ConnectionGaveUp`` if it gave up.
        """
        check_loop(self._core.loop)
        self._core.add_credit(count)

    async def drain(self, *, timeout: float | None = None) -> None:
        """Take the credit back: wait until the primary has sent its available messages, and sends no more.

        Call ``receive_many(..., timeout=0)`` for the messages that have arrived.  Credit is granted again
        when a call waits for a message, or with ``credit=0`` by ``add_credit``.  A failover ends the drain;
        the new primary gets no credit until then, either.

        :param timeout: seconds; the URL's ``call_timeout`` by default, ``math.inf`` for no limit.
        :raises DrainTimeout: if the primary does not answer in time.  Messages may still arrive then.
        :raises LinkClosed: if the receiver is closed.
        :raises ConnectionClosed: if the connection is closed.
        """
        check_loop(self._core.loop)
        await drain(self._core, limit(timeout, self._call_timeout))

    async def detach(self) -> None:
        """Detach the link, so that a durable source stays and keeps messages for the next receiver.

        Prefetched messages go back to the source.
        """
        check_loop(self._core.loop)
        self._core.close(keep=True)

    async def close(self) -> None:
        """Close the link.  Prefetched messages go back to the queue; a durable subscription stays."""
        check_loop(self._core.loop)
        self._core.close()

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        try:
            return await self.receive()
        except HaclientError:
            if self._core.closed_here:
                raise StopAsyncIteration from None
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return describe_receiver("haclient.aio", self._core)


class Delivery(BaseDelivery):
    """One received message.  Settle it once, with one of the four outcomes.

    Each of the four calls raises ``StaleDelivery`` if the connection that delivered the message is lost or
    the receiver is closed, and ``AlreadySettled`` the second time.

    As a context manager it accepts at the end of the block, and releases after an exception; see
    ``processing``.
    """

    __slots__ = ("_call_timeout",)

    def __init__(self, core: DeliveryCore, call_timeout: float | None) -> None:
        self._core = core
        self._call_timeout = call_timeout

    async def accept(self, *, confirm: bool = False, timeout: float | None = None) -> None:
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
            check_loop(self._core.loop)
            await wait_confirmed(self._core, seconds)
        else:
            self._settle(ACCEPTED)

    async def reject(self, condition: str | None = None, description: str | None = None) -> None:
        """Reject the message as invalid: the broker must not deliver it unchanged."""
        self._settle(rejected(condition, description))

    async def release(self) -> None:
        """Return the message to the queue, as if it had not been delivered."""
        self._settle(RELEASED)

    async def modify(self, *, delivery_failed: bool = True, undeliverable_here: bool = False) -> None:
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

    async def __aenter__(self) -> Self:
        check_loop(self._core.loop)
        self._core.check_unsettled()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return await self._end_block(error, RELEASED, limit(None, self._call_timeout))

    def __repr__(self) -> str:
        return describe_delivery("haclient.aio", self._core)

    async def _end_block(self, error: BaseException | None, failed: Outcome, seconds: float | None) -> bool:
        core = self._core
        if isinstance(error, StaleDelivery) and core.comes_again:  # the application settled it too late
            core.report_stale(error)
            return True
        outcome = block_outcome(core, error, failed)
        try:
            if outcome is ACCEPTED and core.confirms:
                await wait_confirmed(core, seconds)
            elif outcome is not None:
                self._settle(outcome)
        except StaleDelivery as stale:
            core.report_stale(stale)
        return False

    def _settle(self, outcome: Outcome) -> None:
        if running_loop() is not self._core.loop:
            raise wrong_loop()
        self._core.mark_settled()
        self._core.settle(outcome)


class Processing:
    """The block of ``Delivery.processing``: an asynchronous context manager."""

    def __init__(self, delivery: Delivery, failed: Outcome, seconds: float | None) -> None:
        self._delivery = delivery
        self._failed = failed
        self._seconds = seconds

    async def __aenter__(self) -> Delivery:
        return await self._delivery.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return await self._delivery._end_block(error, self._failed, self._seconds)
