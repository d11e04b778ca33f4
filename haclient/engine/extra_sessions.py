"""A client's further sessions, and the choice of a session with a free handle for a new link.

Rules
-----
* A session has handles for handle-max + 1 links (handles begin at 0).  A connection has channels for
  channel-max + 1 sessions.  proton does not expose the peer's handle-max, and sends nothing more after one
  link too many.  So each Attach first asks here for a session.
* A link keeps its handle until its Detach is written, a session its channel until its End is written.  proton
  writes an Attach or Begin before an earlier Detach or End.  So handles and channels are free only when
  proton's output is empty (``written``).
* A *separate* session (``apart``) has one link: the peer's End ends that link, and not the connection.  Every
  other session is *shared*, like the first one: its End ends the connection.  A separate session becomes
  shared when no handle is free elsewhere.
* A channel is not used again for ``_CHANNEL_REUSE_DELAY`` seconds after the peer's End, if another one is
  free.  RabbitMQ 4.0.5 drops all that arrives on a channel, even a Begin, until the former session's process
  has ended.  So the answer to an End is delayed, because proton takes the lowest free channel.
* A separate session whose link has ended stays open, and serves the next link, for the same reason.

Source: AMQP 1.0 part 2, sections 2.4.1 (channel-max), 2.5.6 (ending a session) and 2.7.2 (handle-max).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import proton
from cproton_ffi import lib

from haclient.engine import peer_fields

if TYPE_CHECKING:
    from haclient.engine.link_table import EndedLinks
    from haclient.engine.links import Link
    from haclient.engine.protocol import Engine


# Half of the sessions that RabbitMQ 4.0.5 allows, where each is a process; 3.10.8 announces 32768, and has
# fewer.
_MOST_SEPARATE = 32
# Seconds: enough for a busy machine to schedule a process of the broker.
_CHANNEL_REUSE_DELAY = 1.0


class TooManyLinksError(Exception):
    """The peer allows no further link on this connection."""

    def __init__(self, channel_max: int, handle_max: int) -> None:
        super().__init__(
            "all links that the peer allows are in use "
            f"(channel-max {channel_max}, handle-max {handle_max}): close others, or open another connection"
        )


class ExtraSessions:
    """Further sessions of a connection.  Each call passes the engine; no reference to it is kept.

    :ivar on_free: called when a link or a session has ended, so that another one may be attached.
    """

    __slots__ = (
        "_apart",
        "_channels",
        "_closing",
        "_ended",
        "_handles",
        "_idle",
        "_links",
        "_shared",
        "_timer",
        "on_free",
    )

    def __init__(self) -> None:
        self._apart: dict[Any, proton.Session] = {}
        self._shared: dict[Any, proton.Session] = {}
        self._closing: dict[Any, None] = {}  # an empty set is four times as large
        """Sessions that this side ended, until the peer answers."""
        self._idle: dict[Any, None] = {}
        """The separate sessions without a link."""
        self._ended: list[tuple[proton.Session, EndedLinks]] = []
        """Separate sessions that the peer has ended, with their links, until this side answers."""
        self._timer: asyncio.TimerHandle | None = None
        self._links: dict[Any, int] = {}
        """The number of links of each session, the first session included."""
        self._handles: list[Any] = []
        """The sessions of ended links whose Detach may not be written yet."""
        self._channels = 0
        """The number of sessions that the peer ended and whose End may not be written yet."""
        self.on_free: Callable[[], None] | None = None

    def clear(self) -> None:
        """Drop all sessions: the connection ended."""
        for each in (self._apart, self._shared, self._closing, self._idle, self._ended, self._links):
            each.clear()
        self._handles.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.on_free = None

    # -- sessions -----------------------------------------------------------------------------

    def with_free_handle(self, engine: Engine, first: proton.Session) -> proton.Session:
        """Return a session for another link: the first one, or a further one, begun if necessary.

        :raises TooManyLinksError: when the peer allows no more.
        """
        for session in self._in_order(engine, first):
            if self._links.get(session._impl, 0) <= engine.incoming.handle_max:
                if self._apart.pop(session._impl, None) is not None:
                    self._idle.pop(session._impl, None)
                    self._shared[session._impl] = session
                return session
        raise TooManyLinksError(_channel_max(engine), engine.incoming.handle_max)

    def begin_apart(self, engine: Engine) -> proton.Session | None:
        """Return a separate session for one link: an unused one, or a new one.

        :returns: ``None`` when the peer allows no further session.
        """
        for pointer in self._idle:
            if not self._links.get(pointer):
                del self._idle[pointer]
                return self._apart[pointer]
        return self._begin(engine, self._apart)

    @property
    def are_closing(self) -> bool:
        """Return whether another session may be begun soon; ``on_free`` is then called."""
        left = any(self._links.get(pointer) for pointer in self._idle)
        return bool(left or self._closing or self._ended or self._channels)

    def may_stay_apart(self, engine: Engine) -> bool:
        """Return whether one more separate session is allowed.

        The limit is ``_MOST_SEPARATE``, and half of the peer's channels.
        """
        apart = len(self._apart) - len(self._idle) + 1
        return apart <= min(_MOST_SEPARATE, (_channel_max(engine) + 1) // 2)

    def leave(self, engine: Engine, session: proton.Session) -> None:
        """Release a separate session from its link, unless it has become shared.

        If the peer has not answered the Attach, the session may be stuck, and is ended.
        """
        pointer = session._impl
        if engine.close_reason is not None or pointer not in self._apart:
            return
        links = (pn for pn in engine.links.by_pointer if lib.pn_link_session(pn) == pointer)
        if not any(lib.pn_link_state(pn) & proton.Endpoint.REMOTE_UNINIT for pn in links):
            self._idle[pointer] = None
            return
        del self._apart[pointer]
        self._closing[pointer] = None
        session.close()
        engine.wake()

    def ended_by_peer(self, engine: Engine, session: proton.Session) -> proton.Condition | None:
        """Handle the peer's End of any session: end its links, and answer.

        :returns: the reason to end the connection, or ``None`` if it continues.  A client's connection ends
            with any shared session, a member's does not.
        """
        condition, pointer = peer_fields.condition(session), session._impl
        waits = pointer in self._apart
        apart = waits or pointer in self._closing
        for each in (self._apart, self._closing, self._idle, self._links):
            each.pop(pointer, None)
        self._handles = [other for other in self._handles if other != pointer]
        self._channels += 1
        engine.links.session_ended(engine, session, apart=apart)
        if engine.close_reason is not None:
            return None
        ended = session, engine.links.take_ended()
        if waits:
            self._channels -= 1
            self._ended.append(ended)
            if self._timer is None:
                self._timer = engine._loop.call_later(_CHANNEL_REUSE_DELAY, self._answer_ends, engine)
        else:
            session.close()
            engine.wake()
            if not apart and engine.settings.sasl_server is None:
                return condition or proton.Condition("amqp:session:errant-link", "the peer ended the session")
            engine.links.free_session(engine, *ended)
        return None

    def _answer_ends(self, engine: Engine) -> None:
        ended, self._ended = self._ended, []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for session, links in ended:
            self._channels += 1
            session.close()
            engine.wake()
            engine.links.free_session(engine, session, links)

    def _in_order(self, engine: Engine, first: proton.Session) -> Iterator[proton.Session]:
        yield first
        yield from tuple(self._shared.values())
        if (session := self._begin(engine, self._shared)) is not None:
            yield session
        yield from tuple(self._apart.values())

    def _begin(self, engine: Engine, kind: dict[Any, proton.Session]) -> proton.Session | None:
        used = 1 + len(self._apart) + len(self._shared) + len(self._closing) + len(self._ended)
        if used + self._channels > _channel_max(engine):
            if self._ended:
                self._answer_ends(engine)
            return None
        session = engine.begin()
        kind[session._impl] = session
        return session

    # -- links --------------------------------------------------------------------------------

    def attached(self, link: Link) -> None:
        """Count a link that this side has attached."""
        session = lib.pn_link_session(link._pn)
        self._links[session] = self._links.get(session, 0) + 1

    def detached(self, link: Link) -> None:
        """Note that a link has ended on both sides; its Detach may still wait in proton."""
        session = lib.pn_link_session(link._pn)
        if session in self._links:
            self._handles.append(session)

    @property
    def unwritten(self) -> bool:
        """Return whether to call ``written`` when proton's output is empty."""
        return bool(self._handles or self._channels)

    def written(self) -> None:
        """Free the handles and channels of ended links and sessions: proton's output is empty."""
        self._channels = 0
        for session in self._handles:
            self._links[session] -= 1
        self._handles.clear()
        if self.on_free is not None:
            self.on_free()

    def will_be_free(self, engine: Engine) -> bool:
        """Return whether a link or session is about to end, so that ``on_free`` will be called."""
        return (
            self.unwritten
            or self.are_closing
            or any(link.closed_here for link in engine.links.by_pointer.values())
        )


def _channel_max(engine: Engine) -> int:
    """Return the lower channel-max of both sides."""
    return int(lib.pn_transport_get_channel_max(engine.transport._impl))
