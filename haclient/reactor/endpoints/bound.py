"""What endpoints and their events need of the connection of the application (``binding.Binding``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from haclient.engine.protocol import Engine


class Bound(Protocol):
    """One connection of the application.

    :ivar connection: the object that the application holds; ``container``: where it belongs.
    :ivar engine: what it is bound to; ``None`` while there is none.
    """

    container: Any
    connection: Any
    engine: Engine | None
    encode: Callable[..., bytes]
    ids_live_with_messages: bool
    takes_early_credit: bool

    def session(self, impl: Any) -> Any:
        """The Python object of a session."""

    def link(self, impl: Any) -> Any:
        """The Python object of a link."""

    def check_handles(self, session: Any, name: str) -> None:
        """Check that the peer takes another link in a session.

        :raises proton.LinkException: when it takes none.
        """

    def wake(self) -> None:
        """Send what the application did here, and report it to the handlers."""

    def drain(self) -> None:
        """Dispatch the events of the detached connection."""
