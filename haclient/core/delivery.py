"""One received message, and how to settle it (AMQP 1.0 part 3, section 3.4)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from haclient.engine import codec
from haclient.engine.amqp_values.message import Message
from haclient.errors import AlreadySettled, StaleDelivery
from haclient.outcome import ACCEPTED, Outcome

if TYPE_CHECKING:
    from haclient.core.attach.confirmations import Confirmation, Confirmations
    from haclient.core.receiver import ReceiverCore
    from haclient.engine.links import ReceiverLink

LOST = "the delivery's connection was lost"


class DeliveryCore:
    """A delivery of one session.  ``data`` is the encoded message.

    A message that the peer sent settled has no ``pointer``; settling it changes nothing.
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
        """The place in a stream, for a receiver that keeps it."""
        self._pointer = pointer
        self._message: Message | None = None
        self._confirmation: Confirmation | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of its receiver, the only one where ``settle`` may be called."""
        return self.receiver.loop

    @property
    def address(self) -> str | None:
        """The node that its receiver receives from."""
        return self.receiver.address

    @property
    def message(self) -> Message:
        """The message, decoded when first asked for, without its duplicate-detection id.

        :raises UndecodableMessage: when it is not an AMQP message, or no Python value holds it.
        """
        message = self._message
        if message is None:
            # The id belongs to the send that is over: with it, the message sent on would be taken for a copy.
            message, found = codec.decode_apart(self.data)
            self._duplicate_id = None if codec.is_automatic(found) else found
            self._message = message
        return message

    @property
    def duplicate_id(self) -> Any:
        """The id that the message was sent with; ``None`` for one that this package made."""
        _ = self.message  # decoded by now
        return self._duplicate_id

    @property
    def sent_settled(self) -> bool:
        """Return whether the peer sent it settled."""
        return self._pointer is None

    @property
    def stale(self) -> str | None:
        """Why it cannot be settled any more; ``None`` if it can."""
        receiver = self.receiver
        if self.session_number != receiver.session_number:
            return receiver.stale_reason
        # The link is dead from the end of its engine on, which the receiver notices later.
        return LOST if self.link.dead else None

    @property
    def comes_again(self) -> bool:
        """Whether it cannot be settled any more, or its accept was not confirmed."""
        if self._confirmation is not None:
            return self._confirmation.stale
        return not self.settled and self.stale is not None

    def check_unsettled(self) -> None:
        """Check that nothing has settled the delivery.

        :raises AlreadySettled: it was settled before.
        """
        if self.settled:
            raise AlreadySettled("the delivery is settled already")

    def mark_settled(self) -> None:
        """Mark as settled, if the delivery can be settled now.

        :raises StaleDelivery: its connection is lost, or its receiver is closed.
        :raises AlreadySettled: it was settled before.
        """
        reason = self.stale
        if reason is not None:
            by = "the new primary" if reason == LOST else "the primary"
            raise StaleDelivery(f"{reason}; {by} delivers its message again")
        self.check_unsettled()
        self.settled = True

    def confirm(self) -> Confirmation:
        """Accept it, and ask the primary to confirm that; what is under way when it is called again.

        :raises ValueError: its receiver was made without ``confirm``.
        :raises StaleDelivery: its connection is lost, or its receiver is closed.
        :raises AlreadySettled: it was settled before, in another way.
        """
        if self._confirmation is None:
            confirmations = _confirmations(self.receiver)
            self.mark_settled()
            self._confirmation = confirmations.accept(self.link, self._pointer)
        return self._confirmation

    @property
    def confirms(self) -> bool:
        """Whether its receiver has the primary confirm what is accepted."""
        return self.receiver.confirmations is not None

    def report_stale(self, error: StaleDelivery) -> None:
        """Publish that the block of the delivery could not settle it."""
        self.receiver.on_stale(self.receiver.name, self.receiver.address, str(error))

    @property
    def confirming(self) -> bool:
        """Whether the primary was asked to confirm it."""
        return self._confirmation is not None

    def settle(self, outcome: Outcome) -> None:
        """Send the outcome of a delivery marked as settled, unless its connection was lost meanwhile."""
        if self.session_number != self.receiver.session_number:
            return
        if self.offset is not None:
            self.receiver.position.settled(self.offset)
        if self._pointer is not None:
            self.link.settle(self._pointer, outcome)


def mark_accepted(
    receiver: ReceiverCore, deliveries: Sequence[DeliveryCore], *, mark: bool = True
) -> list[DeliveryCore]:
    """Mark deliveries of a receiver as settled, apart from the stale ones.

    :param mark: only check them if it is false.
    :returns: the marked ones.
    :raises ValueError: when one is of another receiver; none is marked then.
    :raises AlreadySettled: when one was settled before, or is here twice; none is marked then.
    """
    # Without a call for each: there may be thousands.
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
    """Accept deliveries of a receiver, and ask the primary to confirm them, apart from the stale ones.

    :returns: each with its confirmation; ``None`` for a stale one.
    :raises ValueError: see ``mark_accepted``; also when the receiver was made without ``confirm``.
    :raises AlreadySettled: when one was settled in another way, or is here twice; none is accepted then.
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
    """Send the outcome *accepted* of deliveries that are marked as settled."""
    for each in deliveries:
        each.settle(ACCEPTED)
