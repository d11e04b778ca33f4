"""The links of one connection; handles the peer's Attach, Flow, Detach and End.

Rules
-----
* A link is in the table from its creation to its end.  It is dead before its owner learns that it ended.
* A link that was closed here stays in the table until the peer answers its Detach: only then is its name
  free.
* The owner of the connection assigns an owner to a link that the peer attached first.
* An owner may end the connection in any call, so the code checks for that after each call.
* Each call passes the engine, and the table keeps no reference to it after the connection ended.

Sources: AMQP 1.0 part 2 (transport), sections 2.5.6 (End) and 2.6 (links).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import proton
from cproton_ffi import lib

from haclient.engine import peer_fields
from haclient.engine.links import Link, ReceiverLink, SenderLink
from haclient.engine.wire import attach_size

if TYPE_CHECKING:
    from haclient.engine.protocol import Engine
    from haclient.engine.wire.attach_frame import AttachFrame

# Conditions of an End that do not concern a link (docs/internals/discovery.md, rule 5, for a Close).
_PEER_PROBLEMS = frozenset({"amqp:internal-error", "amqp:resource-limit-exceeded", "amqp:connection:forced"})

# Limit of ended sessions whose links are still referenced; more indicate a defect of the code that does so.
_MOST_ENDED = 10_000
_NO_REASON = proton.Condition("amqp:internal-error", "the peer ended the session without a reason")

_LinkReference = weakref.ReferenceType[proton.Link]
EndedLinks = list[_LinkReference]
"""The links that ended with a session."""


class LinkTable:
    """The live links, by proton's pointer."""

    __slots__ = ("_ended", "_on_free", "_session_links", "by_pointer")

    def __init__(self) -> None:
        self.by_pointer: dict[Any, Link] = {}
        self._session_links: list[_LinkReference] = []
        """The links of the session that is ending now."""
        self._ended: list[tuple[proton.Session, list[_LinkReference]]] = []
        """Sessions with links that are still referenced."""
        self._on_free: dict[Link, Callable[[], None]] = {}

    def __len__(self) -> int:
        return len(self.by_pointer)

    def clear(self) -> None:
        """Drop all links: the connection ended."""
        self.by_pointer.clear()
        self._on_free.clear()
        self._ended.clear()

    def when_free(self, kind: type[Link], name: str, then: Callable[[], None]) -> bool:
        """Call a function when the peer has answered the Detach of the closed link with this name.

        The function is not called if the connection ends before.

        :returns: whether there is such a link.
        """
        wanted = name.encode()
        for link in self.by_pointer.values():
            if isinstance(link, kind) and link.closed_here and peer_fields.link_name(link) == wanted:
                self._on_free[link] = then
                return True
        return False

    def add(self, link: Link) -> None:
        """Add a new link."""
        self.by_pointer[link._pn] = link

    def check_size(self, link: Link, transport: proton.Transport) -> None:
        """Drop a link whose Attach is larger than the peer's frames.

        :raises AttachTooLarge: if it was dropped.
        """
        try:
            attach_size.check(link.endpoint, transport)
        except attach_size.AttachTooLarge:
            self.drop(link)
            raise

    def drop(self, link: Link) -> None:
        """Remove a link that was created and is not attached."""
        del self.by_pointer[link._pn]
        endpoint = link.endpoint
        link.kill()
        endpoint.free()

    def opened(self, engine: Engine, endpoint: proton.Sender | proton.Receiver) -> None:
        """Handle the peer's Attach: a new link, or the answer to ours."""
        link = self.by_pointer.get(endpoint._impl)
        if link is not None:
            if isinstance(link, ReceiverLink) and link.confirms and (frame := _attach(engine, link)):
                link.peer_unsettled = frame.unsettled
            if link.owner is not None:
                link.owner.link_opened(link)  # type: ignore[arg-type]
            return
        made: Link
        if isinstance(endpoint, proton.Sender):
            made = SenderLink(engine, endpoint, None)
        else:
            made = ReceiverLink(engine, endpoint, None)
        if (frame := _attach(engine, made)) is not None:
            made.is_cut = frame.has_nul
            if isinstance(made, SenderLink) and made.is_asked_to_confirm:
                made.peer_unsettled = frame.unsettled
        self.add(made)
        engine.owner.link_requested(engine, made)

    def closed(self, engine: Engine, endpoint: proton.Sender | proton.Receiver) -> None:
        """Handle the peer's Detach: the link ended, or was refused."""
        link = self.by_pointer.get(endpoint._impl)
        if link is None:
            return
        condition = peer_fields.condition(endpoint)
        _answer(link)
        engine.sessions.detached(link)
        engine.wake()
        if isinstance(link, ReceiverLink):
            link.release()
        # proton forgets outcomes that it has not written when it frees the link.
        lib.pn_transport_pending(engine.transport._impl)
        self._remove(engine, link, condition)

    def credit_given(self, endpoint: proton.Sender | proton.Receiver) -> None:
        """Handle the peer's Flow: call a sender link's owner, or ``on_flow`` of a receiver link."""
        link = self.by_pointer.get(endpoint._impl)
        if isinstance(link, ReceiverLink):
            link.flowed()
        elif link is not None and link.owner is not None:
            link.owner.credit_given(link)

    def session_ended(self, engine: Engine, session: proton.Session, *, apart: bool) -> None:
        """End the session's links: no Detach follows an End (section 2.5.6).

        A server ends all of them.  A client whose connection ends too ends only the links that the End
        refuses.  The others are dead, and stay in their senders and receivers, as after a lost connection.

        The End refuses the first link whose Attach has no answer, or all links if each has one.  It refuses
        none if it has no condition, or one of ``_PEER_PROBLEMS``.

        :param apart: the client's connection continues; then all links of the session end.
        """
        condition = peer_fields.condition(session)
        links = [link for pn, link in self.by_pointer.items() if lib.pn_link_session(pn) == session._impl]
        self._session_links = [weakref.ref(link.endpoint) for link in links]
        if apart and condition is None:
            condition = _NO_REASON
        serves = engine.settings.sasl_server is not None
        refused = links if serves or apart else _refused_by_end(links, condition)
        for link in links:
            if link not in refused:
                link.kill()
        for link in refused:
            if engine.close_reason is None:
                self._remove(engine, link, condition)

    def take_ended(self) -> EndedLinks:
        """Return, once, weak references to the links of the last ``session_ended``, for ``free_session``."""
        ended, self._session_links = self._session_links, []
        return ended

    def free_session(self, engine: Engine, session: proton.Session, links: EndedLinks) -> None:
        """Free a session that both sides have ended, which would otherwise stay until the Close.

        If its links are still referenced, ``free_sessions`` frees it later.  If too many sessions wait for
        that, the connection is aborted.

        The session must outlive references to its links.  proton regards a link without a Detach as attached
        for ever.  If its last reference is dropped after all others to the session, proton frees both, and
        the link twice.
        """
        self._ended.append((session, links))
        self.free_sessions()
        if len(self._ended) > _MOST_ENDED:
            engine.abort(proton.Condition("amqp:resource-limit-exceeded", "too many sessions have ended"))

    def free_sessions(self) -> None:
        """Free the ended sessions whose links are no longer referenced."""
        if not self._ended:
            return
        ended, self._ended = self._ended, []
        for session, links in ended:
            if all(link() is None for link in links):
                session.free()
            else:
                self._ended.append((session, links))

    def _remove(self, engine: Engine, link: Link, condition: proton.Condition | None) -> None:
        del self.by_pointer[link._pn]
        link.dead = True
        if link.owner is not None:
            link.owner.link_closed(link, condition)  # type: ignore[arg-type]
        endpoint = link.endpoint
        link.kill()
        if engine.close_reason is not None:
            return  # its owner has ended the connection, and with it proton's objects
        endpoint.free()
        if (then := self._on_free.pop(link, None)) is not None:
            then()


def _attach(engine: Engine, link: Link) -> AttachFrame | None:
    """Return the peer's Attach, which has just arrived; ``None`` if it cannot be read or has no name."""
    name = peer_fields.link_name(link)
    return engine.incoming.attach(name, from_receiver=isinstance(link, SenderLink))


def _answer(link: Link) -> None:
    """Answer the peer's Detach, with ``closed`` only if the peer's had it."""
    if not link.endpoint.state & proton.Endpoint.REMOTE_CLOSED:
        link.endpoint.detach()
    else:
        if isinstance(link, SenderLink):
            link.closed_by_peer = True
        link.endpoint.close()


def _refused_by_end(links: Sequence[Link], condition: proton.Condition | None) -> Sequence[Link]:
    """Return the links that a peer refuses with the condition of an End.

    RabbitMQ's AMQP 1.0 plugin refuses a link by an End.  The refused link is the first unanswered one,
    because peers answer Attaches in order.
    """
    if condition is None or condition.name in _PEER_PROBLEMS:
        return ()
    unanswered = [link for link in links if link.endpoint.state & proton.Endpoint.REMOTE_UNINIT]
    return unanswered[:1] or links


def repeat_credit(engine: Engine) -> None:
    """Repeat the credit of each receiver link in a Flow, for a peer that forgets it.

    A link that is draining, or has no credit for further messages, is left out.
    proton sends a Flow only for a change, so the credit is lowered by one, and restored at once.
    """
    links = [pn for pn in _receivers(engine.connection) if lib.pn_link_credit(pn) > lib.pn_link_queued(pn)]
    for change in (-1, 1):
        for pn in links:
            lib.pn_link_flow(pn, change)
        lib.pn_transport_pending(engine.transport._impl)
    engine.wake()


def _receivers(connection: proton.Connection) -> Iterator[Any]:
    """Yield the receivers, by pointer, that both sides have attached and that are not draining."""
    attached = proton.Endpoint.LOCAL_ACTIVE | proton.Endpoint.REMOTE_ACTIVE
    pn = lib.pn_link_head(connection._impl, attached)
    while pn:
        if lib.pn_link_is_receiver(pn) and not lib.pn_link_get_drain(pn):
            yield pn
        pn = lib.pn_link_next(pn, attached)
