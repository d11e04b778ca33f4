"""One message that came, and the ways to settle it (AMQP 1.0 part 3, section 3.4)."""

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
    """A delivery of one epoch.  ``data`` is the encoded message.

    A message that the peer sent settled has no ``pointer``; settling it changes nothing.
    """

    __slots__ = ("_link", "_message", "_pointer", "_receiver", "data", "epoch", "settled")

    def __init__(
        self, receiver: ReceiverCore, link: ReceiverLink, epoch: int, pointer: Any, data: bytes
    ) -> None:
        self.data = data
        self.epoch = epoch
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

    def claim(self) -> None:
        """Mark as settled, if the delivery can be settled now.

        :raises StaleDelivery: it came over a connection that is gone.
        :raises AlreadySettled: it was settled before.
        """
        if self.epoch != self._receiver.epoch:
            raise StaleDelivery("the delivery came over a connection that is gone; its message comes again")
        if self.settled:
            raise AlreadySettled("the delivery is settled already")
        self.settled = True

    def settle(self, outcome: Outcome) -> None:
        """Send the outcome of a claimed delivery, unless its connection is gone meanwhile."""
        if self._pointer is not None and self.epoch == self._receiver.epoch:
            self._link.settle(self._pointer, outcome)
