"""Receivers and deliveries of the blocking API; see ``haclient.blocking``."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import Any, Self

import proton

from haclient.api.deadlines import limit
from haclient.api.pickling import not_picklable
from haclient.core.delivery import DeliveryCore
from haclient.core.receiver import ReceiverCore
from haclient.core.sender import SenderCore
from haclient.errors import ConnectionClosed, DeadlineExceeded, HaclientError, ReceiveTimeout
from haclient.loop_thread import LoopThread
from haclient.outcome import ACCEPTED, RELEASED, Outcome, OutcomeState


class Receiver:
    """Receives messages from one node, across failovers; an iterator of deliveries.

    The iteration ends when the application closes the receiver or its connection.
    """

    __reduce__ = not_picklable

    def __init__(self, thread: LoopThread, core: ReceiverCore) -> None:
        self._thread = thread
        self._core = core

    @property
    def address(self) -> str | None:
        """The node it receives from; a dynamic one changes with a failover."""
        return self._core.address

    def receive(self, *, timeout: float | None = None) -> Delivery:
        """Wait for the next delivery.

        :param timeout: seconds; none waits for ever.
        :raises ReceiveTimeout: when none arrived in time.
        :raises LinkClosed, ConnectionClosed: when none can arrive any more.
        """
        self._thread.check()
        try:
            delivery = self._core.inbox.popleft()
        except IndexError:
            delivery = self._wait_delivery(limit(timeout))
        self._thread.post(self._core.replenish_credit, 1, delivery.session_number)
        return Delivery(self._thread, delivery)

    def close(self) -> None:
        """Close the link.  What was prefetched goes back to the queue."""
        close_link(self._thread, self._core)

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
        while left is None or deadline is None or left >= 0:
            try:
                self._thread.call_within(left, self._core.wait_message)
                return self._core.inbox.popleft()
            except DeadlineExceeded:
                raise
            except TimeoutError:
                break
            except IndexError:  # another thread took it: the time goes on
                left = None if deadline is None else deadline - monotonic()
        msg = f"no message arrived within {seconds} s"
        raise ReceiveTimeout(msg)


class Delivery:
    """One received message.  Settle it once, with one of the four outcomes.

    Each of them raises ``StaleDelivery`` when the connection that delivered it is lost,
    and ``AlreadySettled`` the second time.
    """

    __slots__ = ("_core", "_thread")

    __reduce__ = not_picklable

    def __init__(self, thread: LoopThread, core: DeliveryCore) -> None:
        self._thread = thread
        self._core = core

    @property
    def message(self) -> proton.Message:
        """The message without its duplicate-detection id, so that it can be sent on."""
        return self._core.message

    @property
    def body(self) -> Any:
        """The body of the message, whatever its sender put there; ``Any`` for type checkers."""
        return self._core.message.body

    @property
    def duplicate_id(self) -> Any:
        """The duplicate-detection id that it was sent with; ``None`` for one that haclient made."""
        return self._core.duplicate_id

    @property
    def data(self) -> bytes:
        """The message as received, encoded."""
        return self._core.data

    @property
    def settled(self) -> bool:
        """Whether it was settled here."""
        return self._core.settled

    def accept(self) -> None:
        """Done: the broker may forget the message."""
        self._settle(ACCEPTED)

    def reject(self, condition: str | None = None, description: str | None = None) -> None:
        """The message is at fault; the broker must not deliver it as it is."""
        self._settle(Outcome(OutcomeState.REJECTED, condition, description))

    def release(self) -> None:
        """Give it back, as if it had not been delivered."""
        self._settle(RELEASED)

    def modify(self, *, delivery_failed: bool = True, undeliverable_here: bool = False) -> None:
        """Give it back, counted as a failed delivery, or never to be delivered here again."""
        self._settle(
            Outcome(
                OutcomeState.MODIFIED, delivery_failed=delivery_failed, undeliverable_here=undeliverable_here
            )
        )

    def _settle(self, outcome: Outcome) -> None:
        self._core.mark_settled()
        self._thread.post(self._core.settle, outcome)


def close_link(thread: LoopThread, core: SenderCore | ReceiverCore) -> None:
    """Close a link on the loop thread; quiet when the factory is closed already."""

    async def close() -> None:
        core.close()

    try:
        thread.call(close())
    except ConnectionClosed:
        return
