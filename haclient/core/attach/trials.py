"""First Attaches to a peer that refuses a link by an End, which ends the session with all of its links.

Rules
-----
* A link that was never open is attached in a session of its own, so that a refusal ends no other link.  After
  a loss it uses the shared session, like every link that was open before.
* It stays in its session as long as there are few (``ExtraSessions.may_stay_apart``).
* Beyond that a sender is only tried in its own session.  Once accepted it is detached, and attached over a
  shared session two round trips later.  If every session is in use, it waits for the links being tried.
* Beyond that a receiver is attached over the shared session at once.  Its Detach would delete a queue that
  goes with its last consumer (RabbitMQ 4.0.5, with the message in it).  An exclusive queue might go to
  another client.
"""

from __future__ import annotations

import proton

from haclient.core.quirks import workarounds
from haclient.core.receiver import ReceiverCore
from haclient.core.sender import SenderCore
from haclient.engine.protocol import Engine

LinkCore = SenderCore | ReceiverCore


class NotYetError(Exception):
    """Raised if the link must wait until another one is answered, or a session has ended."""


class Trials:
    """New links of the present session that are attached in sessions of their own."""

    def __init__(self) -> None:
        # Value: true if the link moves to a shared session once it is accepted.
        self._moves: dict[LinkCore, bool] = {}

    def __contains__(self, link: object) -> bool:
        return link in self._moves

    def begin(self, link: LinkCore, engine: Engine) -> proton.Session | None:
        """Begin a session for a link that is to be tried; ``None`` if it uses the shared session.

        :raises NotYetError: if the trial must wait.
        """
        is_sender = isinstance(link, SenderCore)
        if not is_sender and not isinstance(link, ReceiverCore):  # a drop-in link has its own sessions
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
        """Return whether a link was accepted and must now move to a shared session."""
        return link.was_open and self._moves.get(link, False)

    def forget(self, link: LinkCore) -> None:
        """Forget a link that is closed or refused, or leaves its session."""
        self._moves.pop(link, None)

    def clear(self) -> None:
        """Forget all links: the session ended."""
        self._moves.clear()
