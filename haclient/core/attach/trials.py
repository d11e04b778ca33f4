"""First Attaches to a peer that refuses a link by an End, which ends the session with all of its links.

Rules
-----
* A link that was never open is attached alone, in a session apart: a refusal ends no other link.  After a
  loss it uses the shared session, as every link that was open.
* It stays in its session as long as there are few (``ExtraSessions.may_stay_apart``).
* Beyond that a sender is only tried apart: once accepted it is detached, and attached over a shared session,
  two round trips later.  If every session is in use, it waits for the answers to those that are being tried.
* A receiver is not: its Detach deletes a queue that is to go with its last consumer (RabbitMQ 4.0.5, with the
  message in it), and may give an exclusive one to somebody else.  It is attached over the shared session.
"""

from __future__ import annotations

import proton

from haclient.core.quirks import workarounds
from haclient.core.receiver import ReceiverCore
from haclient.core.sender import SenderCore
from haclient.engine.protocol import Engine

LinkCore = SenderCore | ReceiverCore


class NotYetError(Exception):
    """The link waits until another one is answered, or a session has ended."""


class Trials:
    """The links of the present session that are in sessions apart because they are new."""

    def __init__(self) -> None:
        # Whether each of them is to be attached over a shared session once it is accepted.
        self._moves: dict[LinkCore, bool] = {}

    def __contains__(self, link: object) -> bool:
        return link in self._moves

    def begin(self, link: LinkCore, engine: Engine) -> proton.Session | None:
        """Begin a session for a link that is to be tried; ``None`` for one that uses the shared session.

        :raises NotYetError: when it is to be tried later.
        """
        is_sender = isinstance(link, SenderCore)
        if not is_sender and not isinstance(link, ReceiverCore):  # the drop-in's, which has its own sessions
            return None
        if link.was_open or not workarounds.refuses_by_end(engine):
            return None
        stays = engine.sessions.may_stay_apart(engine)
        if not (stays or is_sender):
            return None
        session = engine.sessions.begin_apart(engine)
        if session is not None:
            self._moves[link] = not stays
        elif engine.sessions.are_closing or any(each.unanswered for each in self._moves):
            raise NotYetError
        return session

    def is_to_move(self, link: LinkCore) -> bool:
        """Return whether a link was accepted, and leaves its session now."""
        return link.was_open and self._moves.get(link, False)

    def forget(self, link: LinkCore) -> None:
        """The link is closed, refused, or leaves its session."""
        self._moves.pop(link, None)

    def clear(self) -> None:
        """The session ended."""
        self._moves.clear()
