"""The links of one connection, and what the peer's Attach, Flow, Detach and End do to them.

Rules
-----
* A link is in the table from its creation to its end, and is dead before its owner is called about the end.
* A link that was closed here stays in it until the peer answers its Detach: only then is its name free.
* The owner of the connection assigns an owner to a link that the peer attached first.
* An owner may end the connection in any call; what follows the call looks whether it did.
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

# Conditions of an End that say nothing of a link (docs/internals/discovery.md, rule 5, for a Close).
_TROUBLES_OF_THE_PEER = frozenset(
    {"amqp:internal-error", "amqp:resource-limit-exceeded", "amqp:connection:forced"}
)

# Sessions that have ended with links that somebody still refers to: more is a defect of whoever does.
_MOST_ENDED = 10_000
_NO_REASON = proton.Condition("amqp:internal-error", "the peer ended the session without a reason")

_LinkReference = weakref.ReferenceType[proton.Link]
EndedLinks = list[_LinkReference]
"""The links that ended with a session."""


class LinkTable:
    """The live links, by proton's pointer."""

    __slots__ = ("_ended", "_of_ended", "_then", "by_pointer")

    def __init__(self) -> None:
        self.by_pointer: dict[Any, Link] = {}
        self._of_ended: list[_LinkReference] = []
        """The links that ended with the session that ends now."""
        self._ended: list[tuple[proton.Session, list[_LinkReference]]] = []
        """Sessions with links that somebody still refers to."""
        self._then: dict[Link, Callable[[], None]] = {}

    def __len__(self) -> int:
        return len(self.by_pointer)

    def clear(self) -> None:
        """Forget all of them: the connection ended."""
        self.by_pointer.clear()
        self._then.clear()
        self._ended.clear()

    def when_free(self, kind: type[Link], name: str, then: Callable[[], None]) -> bool:
        """Call a function when the peer has answered the Detach of the link that had this name.

        It is not called if the connection ends before.

        :returns: whether there is such a link.
        """
        wanted = name.encode()
        for link in self.by_pointer.values():
            if isinstance(link, kind) and link.closed_here and peer_fields.link_name(link) == wanted:
                self._then[link] = then
                return True
        return False

    def add(self, link: Link) -> None:
        """Add a new link."""
        self.by_pointer[link._pn] = link

    def check_size(self, link: Link, transport: proton.Transport) -> None:
        """Drop a link whose Attach is larger than the peer's frames.

        :raises AttachTooLarge: when it is.
        """
        try:
            attach_size.check(link.endpoint, transport)
        except attach_size.AttachTooLarge:
            self.drop(link)
            raise

    def drop(self, link: Link) -> None:
        """Remove a link that was created and is not attached."""
        del self.by_pointer[link._pn]
        link.kill()
        link.endpoint.free()

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
        self._remove(engine, link, condition)

    def credit_given(self, endpoint: proton.Sender | proton.Receiver) -> None:
        """Handle the peer's Flow."""
        link = self.by_pointer.get(endpoint._impl)
        if isinstance(link, ReceiverLink):
            link.flowed()
        elif link is not None and link.owner is not None:
            link.owner.credit_given(link)

    def session_ended(self, engine: Engine, session: proton.Session, *, apart: bool) -> None:
        """End the session's links: no Detach follows an End (section 2.5.6).

        On a client only the links that the End refuses are ended; the others are dead and stay in their
        senders and receivers, as their connection ends next, as after a loss.

        :param apart: the client's connection goes on.
        """
        condition = peer_fields.condition(session)
        links = [link for pn, link in self.by_pointer.items() if lib.pn_link_session(pn) == session._impl]
        self._of_ended = [weakref.ref(link.endpoint) for link in links]
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
        """Return the links that ended in ``session_ended``, for ``free_session``."""
        ended, self._of_ended = self._of_ended, []
        return ended

    def free_session(self, engine: Engine, session: proton.Session, links: EndedLinks) -> None:
        """Free a session that both sides have ended: it would stay until the Close.

        But not before its links.  To proton a link that had no Detach is attached for ever; when the last
        reference to such a link goes after all others to its session, proton frees both, and the link again.
        """
        self._ended.append((session, links))
        self.free_sessions()
        if len(self._ended) > _MOST_ENDED:
            engine.abort(proton.Condition("amqp:resource-limit-exceeded", "too many sessions have ended"))

    def free_sessions(self) -> None:
        """Free the ended sessions to whose links nobody refers any more."""
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
        link.kill()
        if engine.close_reason is not None:
            return  # its owner has ended the connection, and with it proton's objects
        link.endpoint.free()
        if (then := self._then.pop(link, None)) is not None:
            then()


def _attach(engine: Engine, link: Link) -> AttachFrame | None:
    """The peer's Attach, which has just arrived; ``None`` if it cannot be read, as one without a name."""
    name = peer_fields.link_name(link)
    return engine.incoming.attach(name, from_receiver=isinstance(link, SenderLink))


def _answer(link: Link) -> None:
    """Answer the peer's Detach: close only what the peer closed."""
    if not link.endpoint.state & proton.Endpoint.REMOTE_CLOSED:
        link.endpoint.detach()
    else:
        if isinstance(link, SenderLink):
            link.closed_by_peer = True
        link.endpoint.close()


def _refused_by_end(links: Sequence[Link], condition: proton.Condition | None) -> Sequence[Link]:
    """The links that a peer refuses with the condition of an End.

    RabbitMQ's AMQP 1.0 plugin refuses a link by an End.  It is the first link without an answer, because
    peers answer Attaches in order.
    """
    if condition is None or condition.name in _TROUBLES_OF_THE_PEER:
        return ()
    unanswered = [link for link in links if link.endpoint.state & proton.Endpoint.REMOTE_UNINIT]
    return unanswered[:1] or links


def repeat_credit(engine: Engine) -> None:
    """Send a Flow with the credit of each receiver link again.

    proton sends a Flow for a change only: so this lowers the credit by one, and restores it at once.
    """
    links = [pn for pn in _receivers(engine.connection) if lib.pn_link_credit(pn) > lib.pn_link_queued(pn)]
    for change in (-1, 1):
        for pn in links:
            lib.pn_link_flow(pn, change)
        lib.pn_transport_pending(engine.transport._impl)
    engine.wake()


def _receivers(connection: proton.Connection) -> Iterator[Any]:
    """The receivers that both sides have attached, and that do not drain, by pointer."""
    attached = proton.Endpoint.LOCAL_ACTIVE | proton.Endpoint.REMOTE_ACTIVE
    pn = lib.pn_link_head(connection._impl, attached)
    while pn:
        if lib.pn_link_is_receiver(pn) and not lib.pn_link_get_drain(pn):
            yield pn
        pn = lib.pn_link_next(pn, attached)
