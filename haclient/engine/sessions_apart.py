"""A client's sessions beside its first one: an End by the peer ends their links, and not the connection.

Source: AMQP 1.0 part 2, section 2.5.6 (ending a session).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import proton
from cproton_ffi import lib

from haclient.engine import peer_fields

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

    def ended_by_peer(self, engine: Engine, session: proton.Session) -> proton.Condition | None:
        """Handle the peer's End of any session: end its links, and answer.

        :returns: why the connection ends with it, ``None`` where it goes on: a client's first session is all
            that its connection is for, a member's are not.
        """
        condition = peer_fields.condition(session)
        apart = session in self
        engine.links.session_ended(engine, session, apart=apart)
        if engine.close_reason is not None:
            return None
        session.close()
        engine.wake()
        if apart:
            del self._by_pointer[session._impl]
        if apart or engine.settings.sasl_server is not None:
            engine.links.free_session(engine, session)
            return None
        return condition or proton.Condition("amqp:session:errant-link", "the peer ended the session")
