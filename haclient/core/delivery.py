"""A received message and its settlement (AMQP 1.0 part 3, section 3.4)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from haclient.engine import codec
from haclient.engine.amqp_values.message import Message
from haclient.errors import AlreadySettled, StaleDelivery
from haclient.outcome import ACCEPTED, Outcome, OutcomeState

if TYPE_CHECKING:
    from haclient.core.attach.confirmations import Confirmation, Confirmations
    from haclient.core.receiver import ReceiverCore
    from haclient.engine.links import ReceiverLink

LOST = "the delivery's connection was lost"
_RELEASED = Outcome(OutcomeState.RELEASED)


class DeliveryCore:
    """A delivery of one session.  ``data`` is the encoded message.

    If the peer sent the message settled, there is no ``pointer``, and settling the delivery does nothing.
    """

    __slots__ = (
        "_confirmation",
        "_duplicate_id",
        "_message",
        "_pointer",
        "data",
        "link",
        "offset",
        "receiver",
        "session_number",
        "settled",
    )

    def __init__(
        self, receiver: ReceiverCore, link: ReceiverLink, session_number: int, pointer: Any, data: bytes
    ) -> None:
        self.data = data
        self.session_number = session_number
        self.settled = False
        self.receiver = receiver
        self.link = link
        self.offset: int | None = None
        """Offset of the message in a stream, if the receiver keeps track of it."""
        self._pointer = pointer
        self._message: Message | None = None
        self._confirmation: Confirmation | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the receiver; ``settle`` may be called only there."""
        return self.receiver.loop

    @property
    def address(self) -> str | None:
        """Address of the node that the receiver receives from."""
        return self.receiver.address

    @property
    def message(self) -> Message:
        """The message without its duplicate-detection id, decoded on first use.

        :raises UndecodableMessage: if it is not an AMQP message, or no Python value can represent it.
        """
        message = self._message
        if message is None:
            # The id belongs to the original send.  If it were kept, a broker would drop the forwarded message
            # as a duplicate.
            message, found = codec.decode_apart(self.data)
            self._duplicate_id = None if codec.is_automatic(found) else found
            self._message = message
        return message

    @property
    def duplicate_id(self) -> Any:
        """The duplicate-detection id that the sender set; ``None`` for an id that this package generated."""
        _ = self.message  # decode the message
        return self._duplicate_id

    @property
    def sent_settled(self) -> bool:
        """Return whether the peer sent the message settled."""
        return self._pointer is None

    @property
    def stale(self) -> str | None:
        """Reason why the delivery can no longer be settled; ``None`` if it can."""
        receiver = self.receiver
        if self.session_number != receiver.session_number:
            return receiver.stale_reason
        # The link is dead as soon as its engine ends; the receiver notices later.
        return LOST if self.link.dead else None

    @property
    def comes_again(self) -> bool:
        """Return whether the message may arrive again: it is unsettled and stale, or not confirmed."""
        if self._confirmation is not None:
            return self._confirmation.stale
        return not self.settled and self.stale is not None

    def check_unsettled(self) -> None:
        """Check that the delivery is not settled yet.

        :raises AlreadySettled: if it is.
        """
        if self.settled:
            raise AlreadySettled("the delivery is settled already")

    def mark_settled(self) -> None:
        """Mark the delivery as settled.

        :raises StaleDelivery: if its connection is lost, or its receiver is closed.
        :raises AlreadySettled: if it was settled before.
        """
        reason = self.stale
        if reason is not None:
            by = "the new primary" if reason == LOST else "the primary"
            raise StaleDelivery(f"{reason}; {by} delivers its message again")
        self.check_unsettled()
        self.settled = True

    def confirm(self) -> Confirmation:
        """Accept the delivery and ask the primary to confirm.  A second call returns the same confirmation.

        :raises ValueError: if its receiver was made without ``confirm``.
        :raises StaleDelivery: if its connection is lost, or its receiver is closed.
        :raises AlreadySettled: if it was already settled by other means.
        """
        if self._confirmation is None:
            confirmations = _confirmations(self.receiver)
            self.mark_settled()
            self._confirmation = confirmations.accept(self.link, self._pointer)
        return self._confirmation

    @property
    def confirms(self) -> bool:
        """Return whether the receiver asks the primary to confirm accepted deliveries."""
        return self.receiver.confirmations is not None

    def report_stale(self, error: StaleDelivery) -> None:
        """Publish that the ``with`` block of the delivery could not settle it."""
        self.receiver.on_stale(self.receiver.name, self.receiver.address, str(error))

    @property
    def confirming(self) -> bool:
        """Return whether the primary was asked to confirm this delivery."""
        return self._confirmation is not None

    def settle(self, outcome: Outcome) -> None:
        """Send the outcome of a delivery marked as settled, unless its connection is lost."""
        if self.session_number != self.receiver.session_number:
            return
        if self.offset is not None:
            self.receiver.position.settled(self.offset)
        if self._pointer is not None:
            self.link.settle(self._pointer, outcome)

    def give_back(self) -> None:
        """Release a delivery that the application has not seen; a stream continues before it."""
        if self._pointer is not None:
            self.link.settle(self._pointer, _RELEASED)


def mark_accepted(
    receiver: ReceiverCore, deliveries: Sequence[DeliveryCore], *, mark: bool = True
) -> list[DeliveryCore]:
    """Mark the deliveries of a receiver as settled, except the stale ones.

    :param mark: if false, only check them.
    :returns: the deliveries that are not stale.
    :raises ValueError: if one belongs to another receiver; none is marked then.
    :raises AlreadySettled: if one was settled before, or is listed twice; none is marked then.
    """
    # No call for each delivery: there may be thousands.
    if [each for each in deliveries if each.receiver is not receiver]:
        raise ValueError(
            "a delivery is settled by the receiver that got it: one of these is of another receiver"
        )
    number = receiver.session_number
    live = [each for each in deliveries if each.session_number == number and not each.link.dead]
    if len(set(live)) < len(live) or [each for each in live if each.settled]:
        raise AlreadySettled("one of the deliveries is settled already")
    for each in live:
        each.settled = each.settled or mark
    return live


def confirm_all(
    receiver: ReceiverCore, deliveries: Sequence[DeliveryCore]
) -> list[tuple[DeliveryCore, Confirmation | None]]:
    """Accept deliveries of a receiver, except the stale ones, and ask the primary to confirm them.

    :returns: each delivery with its confirmation; ``None`` for a stale one.
    :raises ValueError: see ``mark_accepted``; also if the receiver was made without ``confirm``.
    :raises AlreadySettled: if one was settled by other means, or is listed twice; none is accepted then.
    """
    _confirmations(receiver)
    if len(set(deliveries)) < len(deliveries):
        raise AlreadySettled("one of the deliveries is here twice")
    mark_accepted(receiver, [each for each in deliveries if not each.confirming], mark=False)
    return [(each, None if each.stale and not each.confirming else each.confirm()) for each in deliveries]


def _confirmations(receiver: ReceiverCore) -> Confirmations:
    if receiver.confirmations is None:
        raise ValueError(
            "nothing is confirmed on this receiver: create it with confirm=True, to accept with confirm=True"
        )
    return receiver.confirmations


def accept_all(deliveries: Iterable[DeliveryCore]) -> None:
    """Send the outcome *accepted* for deliveries marked as settled."""
    for each in deliveries:
        each.settle(ACCEPTED)
