"""The links of one connection: which there are, and what the peer's Attach, Flow, Detach and End do to them.

Rules
-----
* A link is here from its making until it is over, and is dead before its owner hears of the end.
* A link that the peer attached first belongs to whoever the owner of the connection gives it to.
* An engine is given with each call and not kept: nothing here holds it once its connection is over.

Sources: AMQP 1.0 part 2 (transport), sections 2.5.6 (End) and 2.6 (links).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import proton
from cproton_ffi import lib

from haclient.engine.links import Link, ReceiverLink, SenderLink

if TYPE_CHECKING:
    from haclient.engine.protocol import Engine

# Conditions of an End that say nothing of a link (DESIGN section 4, rule 5, for a Close).
_TROUBLES_OF_THE_PEER = frozenset(
    {"amqp:internal-error", "amqp:resource-limit-exceeded", "amqp:connection:forced"}
)


class LinkTable:
    """The links that are not over, by proton's pointer."""

    __slots__ = ("by_pointer",)

    def __init__(self) -> None:
        self.by_pointer: dict[Any, Link] = {}

    def add(self, link: Link) -> None:
        """A link is made here."""
        self.by_pointer[link._pn] = link

    def opened(self, engine: Engine, endpoint: proton.Sender | proton.Receiver) -> None:
        """The peer attached a link, or answered the Attach."""
        link = self.by_pointer.get(endpoint._impl)
        if link is not None:
            if link.owner is not None:
                link.owner.link_opened(link)  # type: ignore[arg-type]
            return
        made: Link
        if isinstance(endpoint, proton.Sender):
            made = SenderLink(engine, endpoint, None)
        else:
            made = ReceiverLink(engine, endpoint, None)
        self.add(made)
        engine.owner.link_requested(engine, made)

    def closed(self, engine: Engine, endpoint: proton.Sender | proton.Receiver) -> None:
        """The peer detached a link, or refused it."""
        link = self.by_pointer.get(endpoint._impl)
        if link is None:
            return
        condition = endpoint.remote_condition
        link.endpoint.close()
        engine.wake()
        if isinstance(link, ReceiverLink):
            link.release()
        self._remove(link, condition)

    def credit_given(self, endpoint: proton.Sender | proton.Receiver) -> None:
        """The peer sent a Flow."""
        link = self.by_pointer.get(endpoint._impl)
        if isinstance(link, SenderLink) and link.owner is not None:
            link.owner.credit_given(link)

    def session_ended(self, engine: Engine, session: proton.Session) -> None:
        """An End takes the session's links with it, without a Detach (section 2.5.6).

        A client's links that are not told of it go on: their connection ends next, as after a loss.
        """
        condition = session.remote_condition
        links = [link for pn, link in self.by_pointer.items() if lib.pn_link_session(pn) == session._impl]
        serves = engine.settings.sasl_server is not None
        for link in links if serves else _refused_by_end(links, condition):
            self._remove(link, condition)

    def _remove(self, link: Link, condition: proton.Condition | None) -> None:
        del self.by_pointer[link._pn]
        link.dead = True
        if link.owner is not None:
            link.owner.link_closed(link, condition)  # type: ignore[arg-type]
        link.kill()
        link.endpoint.free()


def _refused_by_end(links: Sequence[Link], condition: proton.Condition | None) -> Sequence[Link]:
    """The links that a peer means with the condition of an End.

    A peer that knows no better refuses a link so (RabbitMQ's AMQP 1.0 plugin): it is the first one that
    has no answer yet, for Attaches are answered in order.
    """
    if condition is None or condition.name in _TROUBLES_OF_THE_PEER:
        return ()
    unanswered = [link for link in links if link.endpoint.state & proton.Endpoint.REMOTE_UNINIT]
    return unanswered[:1] or links
