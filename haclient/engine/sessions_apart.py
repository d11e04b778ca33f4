"""A client's sessions beside its first one: an End by the peer ends their links, and not the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import proton
from cproton_ffi import lib

if TYPE_CHECKING:
    from haclient.engine.protocol import Engine


class SessionsApart:
    """Those of one connection.  Each call passes the engine, so that none is kept after its end."""

    __slots__ = ("_by_pointer",)

    def __init__(self) -> None:
        self._by_pointer: dict[Any, None] = {}  # an empty set is four times as large

    def __contains__(self, session: proton.Session) -> bool:
        return session._impl in self._by_pointer

    def begin(self, engine: Engine) -> proton.Session | None:
        """Send another Begin.

        :returns: ``None`` when the peer allows no further session.
        """
        if len(self._by_pointer) >= lib.pn_transport_remote_channel_max(engine.transport._impl):
            return None
        session = engine.begin()
        self._by_pointer[session._impl] = None
        return session

    def end(self, engine: Engine, session: proton.Session) -> None:
        """Send End."""
        if engine.close_reason is None:
            session.close()
            engine.wake()

    def ended(self, session: proton.Session) -> None:
        """Both Ends are exchanged."""
        del self._by_pointer[session._impl]
