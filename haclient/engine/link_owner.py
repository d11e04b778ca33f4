"""Interfaces of a link: the calls on its engine, and the calls on its owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import proton

from haclient.engine.reporting_transport import ReportingTransport
from haclient.engine.settings import Settings

if TYPE_CHECKING:
    from haclient.engine.links import DeliveryPointer, ReceiverLink, SenderLink
    from haclient.outcome import Outcome


class LinkEngine(Protocol):
    """The engine of a link's connection, as the link uses it.

    :ivar transport: proton's.
    """

    settings: Settings
    transport: ReportingTransport

    def wake(self) -> None:
        """Send pending output at the end of this turn of the loop."""

    def give_in_pieces(self, link: Any, data: bytes, size: int) -> None:
        """Give proton a large message in pieces, and write the frames of each piece to the socket.

        The link calls this only for a message of more than ``WRITE_HIGH_WATER`` bytes.

        :param link: proton's, by pointer.
        :param size: length of ``data`` in bytes.
        """


class SenderOwner(Protocol):
    """Receives the calls of a sender link.  Calls must not block."""

    def link_opened(self, link: SenderLink) -> None:
        """Handle the peer's answer to the Attach."""

    def link_closed(self, link: SenderLink, condition: proton.Condition | None) -> None:
        """Handle the peer's Detach, or its refusal of the link."""

    def credit_given(self, link: SenderLink) -> None:
        """Handle a change of the credit, or a request to drain it."""

    def settled(self, link: SenderLink, token: Any, outcome: Outcome | None) -> None:
        """Handle the peer's settlement; ``outcome`` is ``None`` if the peer gave no terminal state."""


class ConfirmingOwner(SenderOwner, Protocol):
    """Receives the further calls of a sender link that confirms outcomes."""

    def outcome_given(
        self, link: SenderLink, delivery: DeliveryPointer, token: Any, outcome: Outcome
    ) -> None:
        """Handle an outcome that the peer gave; the peer waits for ``SenderLink.confirm``."""


class ReceiverOwner(Protocol):
    """Receives the calls of a receiver link.  Calls must not block."""

    def link_opened(self, link: ReceiverLink) -> None:
        """Handle the peer's answer to the Attach."""

    def link_closed(self, link: ReceiverLink, condition: proton.Condition | None) -> None:
        """Handle the peer's Detach, or its refusal of the link."""

    def delivered(self, link: ReceiverLink, delivery: DeliveryPointer | None, data: bytes) -> None:
        """Handle a whole message; ``delivery`` is ``None`` when the peer had settled it."""


class ConfirmedOwner(ReceiverOwner, Protocol):
    """Receives the further calls of a receiver link that asks for confirmations."""

    def confirmed(self, link: ReceiverLink, token: Any, outcome: Outcome | None) -> None:
        """Handle the peer's settlement of a delivery that ``ReceiverLink.update`` gave an outcome.

        :param outcome: the peer's; ``None`` if it gave no terminal state.
        """
