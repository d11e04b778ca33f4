"""The calls of an engine on its owner, and how a connection ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import proton

from haclient.error_catalog.base import brief

if TYPE_CHECKING:
    from haclient.engine.links import ReceiverLink, SenderLink
    from haclient.engine.protocol import Engine


@dataclass(frozen=True, slots=True)
class CloseReason:
    """How a connection ended.

    :param condition: the peer's Close condition, or the error that the engine found.
    :param by_peer: whether the peer closed the AMQP connection (not just the socket).
    :param error: the socket error, if one ended the connection.
    :param silent: whether the peer was silent for the idle time-out.
    """

    condition: proton.Condition | None = None
    by_peer: bool = False
    error: Exception | None = None
    silent: bool = False

    def __str__(self) -> str:
        if self.condition is not None:
            detail = f": {brief(self.condition.description)}" if self.condition.description else ""
            return f"{brief(self.condition.name)}{detail}"
        if self.by_peer:
            return "closed by the peer"
        return str(self.error) if self.error else "the peer closed the socket"


class EngineOwner(Protocol):
    """Receives the calls of an engine that it created.

    Calls must not block.  If one raises, the connection ends.
    """

    def opened(self, engine: Engine) -> None:
        """Handle the peer's Open; its fields are in ``Engine.connection``."""

    def session_opened(self, engine: Engine, session: proton.Session) -> None:
        """Handle the answer to our Begin (client), or the peer's Begin (server).

        A server answers with ``session.open()`` and ``engine.wake()``, now, later, or never.
        """

    def link_requested(self, engine: Engine, link: SenderLink | ReceiverLink) -> None:
        """Server: handle the peer's Attach; set the link's owner and ``accept`` it, or ``refuse``."""

    def peer_closed(self, engine: Engine, condition: proton.Condition | None) -> None:
        """Handle the peer's Close.  The engine answers it, and calls ``ended`` afterwards."""

    def writable_again(self, engine: Engine) -> None:
        """Continue sending: the socket takes bytes again after ``Engine.writable`` was false."""

    def ended(self, engine: Engine, reason: CloseReason) -> None:
        """Handle the end of the connection.  All its links are dead already."""


class ProtonEventHandler(Protocol):
    """Handles proton's events in place of the engine (``haclient.reactor``)."""

    def handle_events(self, engine: Engine) -> None:
        """Empty the collector, after bytes arrived or a local change.

        The handler also passes events of the connection itself to ``Engine.handle``.
        """

    def connection_ended(self, engine: Engine) -> None:
        """Save state of proton's objects: the connection ended, and they are released after this call."""
