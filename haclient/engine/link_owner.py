"""The interfaces of a link: what it needs of its engine, and what it calls on its owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import proton

from haclient.engine.settings import Settings

if TYPE_CHECKING:
    from haclient.engine.links import DeliveryPointer, ReceiverLink, SenderLink
    from haclient.outcome import Outcome


class LinkEngine(Protocol):
    """What a link needs of the engine of its connection.

    :ivar transport: proton's.
    """

    settings: Settings
    transport: proton.Transport

    def wake(self) -> None:
        """Send pending output at the end of this turn of the loop."""

    def give_in_pieces(self, link: Any, data: bytes, size: int) -> None:
        """Give proton a message that is larger than what it should hold at a time."""


class SenderOwner(Protocol):
    """What a sender link calls on its owner.  Calls must not block."""

    def link_opened(self, link: SenderLink) -> None:
        """The peer answered the Attach."""

    def link_closed(self, link: SenderLink, condition: proton.Condition | None) -> None:
        """The peer detached the link, or refused it."""

    def credit_given(self, link: SenderLink) -> None:
        """The peer changed the credit, or asks to drain it."""

    def settled(self, link: SenderLink, token: Any, outcome: Outcome | None) -> None:
        """The peer settled; ``outcome`` is ``None`` where it gave no terminal state."""


class ConfirmingOwner(SenderOwner, Protocol):
    """What a sender link that confirms calls on its owner besides."""

    def outcome_given(
        self, link: SenderLink, delivery: DeliveryPointer, token: Any, outcome: Outcome
    ) -> None:
        """The peer gave the delivery an outcome, and waits for ``SenderLink.confirm``."""


class ReceiverOwner(Protocol):
    """What a receiver link calls on its owner.  Calls must not block."""

    def link_opened(self, link: ReceiverLink) -> None:
        """The peer answered the Attach."""

    def link_closed(self, link: ReceiverLink, condition: proton.Condition | None) -> None:
        """The peer detached the link, or refused it."""

    def delivered(self, link: ReceiverLink, delivery: DeliveryPointer | None, data: bytes) -> None:
        """A whole message arrived; ``delivery`` is ``None`` when the peer had settled it."""


class ConfirmedOwner(ReceiverOwner, Protocol):
    """What a receiver link that confirms calls on its owner besides."""

    def confirmed(self, link: ReceiverLink, token: Any, outcome: Outcome | None) -> None:
        """The peer settled what ``ReceiverLink.update`` gave an outcome.

        :param outcome: the peer's; ``None`` where it said no terminal one.
        """
