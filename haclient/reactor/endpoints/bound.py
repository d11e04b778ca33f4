"""The interface of the application's connection (``binding.Binding``) to its endpoints and events."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from haclient.engine.protocol import Engine
    from haclient.reactor.endpoints.released import Released


class Bound(Protocol):
    """One connection of the application.

    :ivar connection: the object that the application holds; ``container``: its container.
    :ivar engine: the current engine; ``None`` without one.
    :ivar released: C objects that wait for their release.
    """

    container: Any
    connection: Any
    engine: Engine | None
    released: Released
    encode: Callable[..., bytes]
    ids_live_with_messages: bool
    takes_early_credit: bool

    def session(self, impl: Any) -> Any:
        """Return the Python object of a session."""

    def link(self, impl: Any) -> Any:
        """Return the Python object of a link."""

    def prepare_attach(self, session: Any, name: str) -> None:
        """Write what precedes an Attach, and check that the peer allows another link in the session.

        :raises proton.LinkException: when the peer allows no other link.
        """

    def wake(self) -> None:
        """Send the application's changes, and report them to the handlers."""

    def drain(self) -> None:
        """Dispatch the events of the detached connection."""
