"""Receivers and deliveries of the asyncio API; see ``haclient.aio``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Self

import proton

from haclient.api.deadlines import limit
from haclient.api.loop_affinity import check_loop, running_loop, wrong_loop
from haclient.api.pickling import not_picklable
from haclient.core.delivery import DeliveryCore
from haclient.core.receiver import ReceiverCore
from haclient.errors import DeadlineExceeded, HaclientError, ReceiveTimeout
from haclient.outcome import ACCEPTED, RELEASED, Outcome, OutcomeState


class Receiver:
    """Receives messages from one node, across failovers; an asynchronous iterator of deliveries.

    The iteration ends when the application closes the receiver or its connection.
    """

    __reduce__ = not_picklable

    def __init__(self, core: ReceiverCore) -> None:
        self._core = core

    @property
    def address(self) -> str | None:
        """The node it receives from; a dynamic one changes with a failover."""
        return self._core.address

    async def receive(self, *, timeout: float | None = None) -> Delivery:
        """Wait for the next delivery.

        :param timeout: seconds; none waits for ever.
        :raises ReceiveTimeout: when none arrived in time.
        :raises LinkClosed, ConnectionClosed: when none can arrive any more.
        """
        core = self._core
        if running_loop() is not core.loop:
            raise wrong_loop()
        if not core.inbox:
            try:
                async with asyncio.timeout(limit(timeout)):
                    await core.wait_message()
            except DeadlineExceeded:
                raise
            except TimeoutError:
                msg = f"no message arrived within {timeout} s"
                raise ReceiveTimeout(msg) from None
        delivery = core.inbox.popleft()
        core.replenish_credit(1, delivery.session_number)
        return Delivery(delivery)

    async def close(self) -> None:
        """Close the link.  What was prefetched goes back to the queue."""
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


class Delivery:
    """One received message.  Settle it once, with one of the four outcomes.

    Each of them raises ``StaleDelivery`` when the connection that delivered it is lost,
    and ``AlreadySettled`` the second time.
    """

    __slots__ = ("_core",)

    __reduce__ = not_picklable

    def __init__(self, core: DeliveryCore) -> None:
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

    async def accept(self) -> None:
        """Done: the broker may forget the message."""
        self._settle(ACCEPTED)

    async def reject(self, condition: str | None = None, description: str | None = None) -> None:
        """The message is at fault; the broker must not deliver it as it is."""
        self._settle(Outcome(OutcomeState.REJECTED, condition, description))

    async def release(self) -> None:
        """Give it back, as if it had not been delivered."""
        self._settle(RELEASED)

    async def modify(self, *, delivery_failed: bool = True, undeliverable_here: bool = False) -> None:
        """Give it back, counted as a failed delivery, or never to be delivered here again."""
        self._settle(
            Outcome(
                OutcomeState.MODIFIED, delivery_failed=delivery_failed, undeliverable_here=undeliverable_here
            )
        )

    def _settle(self, outcome: Outcome) -> None:
        if running_loop() is not self._core.loop:
            raise wrong_loop()
        self._core.mark_settled()
        self._core.settle(outcome)
