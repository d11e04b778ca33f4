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
        """The peer sent Open; see ``Engine.connection`` for its fields."""

    def session_opened(self, engine: Engine, session: proton.Session) -> None:
        """Client: the peer answered the Begin.  Server: the peer began a session.

        A server answers with ``session.open()`` and ``engine.wake()``, now, later, or never.
        """

    def link_requested(self, engine: Engine, link: SenderLink | ReceiverLink) -> None:
        """Server: the peer attached a link; set its owner and ``accept`` it, or ``refuse``."""

    def peer_closed(self, engine: Engine, condition: proton.Condition | None) -> None:
        """The peer sent Close.  The engine answers it, and calls ``ended`` afterwards."""

    def writable_again(self, engine: Engine) -> None:
        """The socket takes bytes again after ``Engine.writable`` was false."""

    def ended(self, engine: Engine, reason: CloseReason) -> None:
        """The connection ended.  All its links are dead already."""


class ProtonEventHandler(Protocol):
    """Handles proton's events in place of the engine (``haclient.reactor``)."""

    def handle_events(self, engine: Engine) -> None:
        """Empty the collector, after bytes arrived or a local change.

        The handler also passes events of the connection itself to ``Engine.handle``.
        """

    def connection_ended(self, engine: Engine) -> None:
        """The connection ended; proton's objects are still usable, and are released after this call."""
