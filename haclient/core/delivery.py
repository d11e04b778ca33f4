"""One received message, and how to settle it (AMQP 1.0 part 3, section 3.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import proton

from haclient.engine import codec
from haclient.errors import AlreadySettled, StaleDelivery
from haclient.outcome import Outcome

if TYPE_CHECKING:
    from haclient.core.receiver import ReceiverCore
    from haclient.engine.links import ReceiverLink


class DeliveryCore:
    """A delivery of one session.  ``data`` is the encoded message.

    A message that the peer sent settled has no ``pointer``; settling it changes nothing.
    """

    __slots__ = ("_link", "_message", "_pointer", "_receiver", "data", "session_number", "settled")

    def __init__(
        self, receiver: ReceiverCore, link: ReceiverLink, session_number: int, pointer: Any, data: bytes
    ) -> None:
        self.data = data
        self.session_number = session_number
        self.settled = False
        self._receiver = receiver
        self._link = link
        self._pointer = pointer
        self._message: proton.Message | None = None

    @property
    def message(self) -> proton.Message:
        """The message, decoded when first asked for."""
        if self._message is None:
            self._message = codec.decode(self.data)
        return self._message

    def mark_settled(self) -> None:
        """Mark as settled, if the delivery can be settled now.

        :raises StaleDelivery: its connection is lost.
        :raises AlreadySettled: it was settled before.
        """
        # The link is dead from the end of its engine on, which the receiver notices later.
        if self.session_number != self._receiver.session_number or self._link.dead:
            raise StaleDelivery(
                "the delivery's connection was lost; the new primary delivers its message again"
            )
        if self.settled:
            raise AlreadySettled("the delivery is settled already")
        self.settled = True

    def settle(self, outcome: Outcome) -> None:
        """Send the outcome of a delivery marked as settled, unless its connection was lost meanwhile."""
        if self._pointer is not None and self.session_number == self._receiver.session_number:
            self._link.settle(self._pointer, outcome)
