"""Links of one connection that a peer refused, and that are attached again over the same connection.

Rules
-----
* ``refusals`` decides which refusals are retried, and for how long; after a loss that time begins with the
  new session.  The delays come from ``retry.backoff``.  The last attempt is made when the time ends.
* While a link waits it has no credit and no deliveries; the ledger of a sender keeps its entries.
* If the peer refuses a link by an End, the link uses a session of its own from then on.  So the next End
  ends no other link.  If the peer is known to refuse so, a new link is tried that way at once (``trials``).
* A redirect to another address of the same peer is followed at once, ``max_redirects`` times over one
  connection at most.  A redirect to another peer is an error: links have no connection of their own.
* The end of the connection ends every wait; the next session attaches every link.

Source: AMQP 1.0 part 2, sections 2.6.3 (refused links) and 2.8.18 (the redirect of a link).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import proton

from haclient.cluster_url.endpoint import Endpoint
from haclient.cluster_url.options import Options
from haclient.core import failures
from haclient.core.attach.refusals import NOT_FOUND, closed_by_peer, link_error, retry_seconds
from haclient.core.attach.trials import LinkCore, Trials
from haclient.core.sender import SenderCore
from haclient.engine.links import Link
from haclient.engine.protocol import Engine
from haclient.engine.wire.attach_size import FRAME_SIZE_TOO_SMALL, AttachTooLarge
from haclient.error_catalog.base import brief, quoted
from haclient.errors import HaclientError, LinkRefused
from haclient.retry.backoff import Backoff

# Seconds between checks whether a full socket takes bytes again.
_SOCKET_FULL = 0.1

LINK_REDIRECT = "amqp:link:redirect"
_DECLARE = "; declare the queue or exchange first"


class Reporter(Protocol):
    """Receives the reports of links."""

    def link_retrying(
        self, *, link: str, address: str | None, delay: float, condition: proton.Condition, refusals: int
    ) -> None:
        """Report that the primary refused a link, and when it is attached again."""

    def unsettled(self, count: int, reason: str, *, link: str = "", address: str | None = None) -> None:
        """Report messages without an outcome at the end of a sender, if there are any."""

    def delivery_stale(self, link: str, address: str | None, reason: str) -> None:
        """Report that the ``with`` block of a delivery could not settle it."""


@dataclass(slots=True)
class _Wait:
    """The retries of a link that was refused over the present connection."""

    backoff: Backoff
    began: float
    refusals: int = 0
    redirects: int = 0
    timer: asyncio.TimerHandle | None = None
    with_connection: bool = False
    """True if its connection ends, too, and the next one attaches it."""


class Reattachment:
    """Attaches refused links again.

    :param attach: attaches a link over the present connection; ``False`` if that must wait.
    :ivar refused_by_end: the peer refused a link by the End of the shared session, and so of the connection.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: Options,
        rng: random.Random,
        attach: Callable[[LinkCore], bool],
        reporter: Reporter,
    ) -> None:
        self._loop = loop
        self._policy = options.policy()
        self._reattach_timeout = options.reattach_timeout
        self._rng = rng
        self._attach = attach
        self._reporter = reporter
        self.refused_by_end = False
        self._endpoint: Endpoint | None = None
        self._session_began = 0.0
        # Links that were open before the present session.
        self._returning: dict[LinkCore, None] = {}
        self._waits: dict[LinkCore, _Wait] = {}
        self._trials = Trials()
        # Links in a session of their own (tried, or refused by an End), with that session if it has begun.
        self._apart: dict[LinkCore, tuple[Engine, proton.Session] | None] = {}

    def session_began(self, endpoint: Endpoint, links: Iterable[LinkCore]) -> None:
        """Start the retry time of the links that were open before.

        :param endpoint: endpoint of the peer.
        """
        self.refused_by_end = False
        self._endpoint, self._session_began = endpoint, self._loop.time()
        self._returning = {link: None for link in links if link.was_open}

    def session_ended(self) -> None:
        """End every wait: the next session attaches every link."""
        for link, wait in self._waits.items():
            _cancel(wait)
            link.redirected_to = None
            if not wait.with_connection:
                link.refusal = None
        self._waits.clear()
        self._returning.clear()
        self._apart = dict.fromkeys(link for link in self._apart if link not in self._trials)
        self._trials.clear()

    def forget(self, link: LinkCore) -> None:
        """Forget a closed link."""
        wait = self._waits.pop(link, None)
        if wait is not None:
            _cancel(wait)
        self._returning.pop(link, None)
        self._leave(link)

    def _leave(self, link: LinkCore) -> None:
        """Release the session of its own, if the link has one."""
        self._trials.forget(link)
        own = self._apart.pop(link, None)
        if own is not None:
            engine, session = own
            engine.sessions.leave(engine, session)

    def has_moved(self, link: LinkCore) -> bool:
        """Detach an accepted link if it must move to a shared session; return whether it must.

        Call it at the peer's Attach.  If it returns True, attach the link again: it leaves the session of its
        own, where it was tried.  ``trials`` has the rules.
        """
        if not self._trials.is_to_move(link):
            return False
        assert isinstance(link, SenderCore)
        link.detach()
        self._leave(link)
        return True

    def is_apart(self, link: LinkCore) -> bool:
        """Return whether the link has a session of its own."""
        return link in self._apart

    def session_of(self, link: LinkCore, engine: Engine, shared: proton.Session) -> proton.Session | None:
        """Return the session to attach a link over.

        :returns: ``None`` if the link was refused and the peer allows no separate session for it.
        :raises TooManyLinksError: if the peer allows no further link.
        :raises NotYetError: if the link must wait for the end of another link's trial.
        """
        if link not in self._apart:
            tried = self._trials.begin(link, engine)
            if tried is None:
                return engine.sessions.with_free_handle(engine, shared)
            self._apart[link] = engine, tried
            return tried
        own = self._apart[link]
        if own is None:
            session = engine.sessions.begin_apart(engine)
            if session is None:
                return None if link.refusal is not None else engine.sessions.with_free_handle(engine, shared)
            own = self._apart[link] = engine, session
        return own[1]

    def detached(
        self, link: LinkCore, pointer: Link, condition: proton.Condition | None
    ) -> HaclientError | None:
        """Decide about a link that the peer refused or detached.

        :returns: the error that closes it; ``None`` if it is attached again.
        """
        wait = self._waits.get(link)
        if wait is None:
            wait = self._waits[link] = _Wait(Backoff(self._policy, self._rng), self._session_began)
        wait.refusals += 1
        tried = link in self._trials
        ended = bool(pointer.endpoint.session.state & proton.Endpoint.REMOTE_CLOSED)
        if ended:
            self._on_end(link, wait)
        if condition is not None and condition.name == LINK_REDIRECT:
            return self._redirect(link, wait, condition)
        first = not link.was_open
        seconds = 0.0
        if first or link in self._returning:
            seconds = retry_seconds(condition, first=first, reattach_timeout=self._reattach_timeout)
        now = self._loop.time()
        left = wait.began + seconds - now
        addition = _count(wait, seconds)
        if tried and condition is not None and condition.name == NOT_FOUND:
            addition += _DECLARE
        error = closed_by_peer(condition, link.address, opened=not first, addition=addition)
        if condition is None or left <= 0:
            return error
        link.refusal = error
        self._retry(link, wait, min(wait.backoff.next().delay, left), condition)
        return None

    def _on_end(self, link: LinkCore, wait: _Wait) -> None:
        apart, self._apart[link] = link in self._apart, None
        self._trials.forget(link)
        wait.with_connection = not apart
        self.refused_by_end |= not apart
        if apart and link.refusal is None and link.was_open:
            # The link was in use.  In the shared session the End would have ended its connection, and the
            # link would have been attached again.
            self._returning[link] = None
            wait.began = self._loop.time()

    def _redirect(self, link: LinkCore, wait: _Wait, condition: proton.Condition) -> HaclientError | None:
        assert self._endpoint is not None
        info: Mapping[Any, Any] = condition.info if isinstance(condition.info, Mapping) else {}
        target, address = _target(info, self._endpoint)
        wait.redirects += 1
        if target is not None and _same(target, self._endpoint) and address is not None:
            if wait.redirects <= self._policy.max_redirects:
                link.redirected_to = address
                self._retry(link, wait, 0.0, condition)
                return None
            reason = f"redirected more than {self._policy.max_redirects} times"
        else:
            reason = "redirected to another peer" if target else "the redirect names no usable target"
        where = brief(f"{target or ''}/{address or ''}")
        return LinkRefused(
            f"the primary refused the link to {quoted(link.address)} ({reason}: {where})",
            condition.name,
            redirect=target,
            redirect_address=address,
        )

    def _retry(self, link: LinkCore, wait: _Wait, delay: float, condition: proton.Condition) -> None:
        if not wait.with_connection:
            wait.timer = self._loop.call_later(delay, self._attach_now, link, wait)
        self._reporter.link_retrying(
            link=link.name,
            address=link.address if link.redirected_to is None else link.redirected_to,
            delay=delay,
            condition=condition,
            refusals=wait.refusals,
        )

    def _attach_now(self, link: LinkCore, wait: _Wait) -> None:
        if not self._attach(link):
            wait.timer = self._loop.call_later(_SOCKET_FULL, self._attach_now, link, wait)


def _cancel(wait: _Wait) -> None:
    if wait.timer is not None:
        wait.timer.cancel()


def _count(wait: _Wait, seconds: float) -> str:
    return f", refused {wait.refusals} times" if seconds and wait.refusals > 1 else ""


def _target(info: Mapping[Any, Any], peer: Endpoint) -> tuple[Endpoint | None, str | None]:
    """Return the target of a link redirect; without a host, it is another address of the same peer."""
    fields = {str(key): value for key, value in info.items()}
    address = fields.get("address")
    if not fields.get("network-host") and not fields.get("hostname"):
        info = {**info, "network-host": peer.host}
    named = address if isinstance(address, str) and address and "\0" not in address else None
    return failures.redirect_target(info, peer), named


def _same(target: Endpoint, peer: Endpoint) -> bool:
    """Return whether both are one host and port; a name may stand for the address it was resolved to."""
    return target.port == peer.port and target.host in {peer.host, peer.tls_name.lower()}


def attach_or_fail(link: LinkCore, engine: Engine, session: proton.Session) -> None:
    """Attach a link, or end it if that fails."""
    try:
        link.attach(engine, session)
    except LinkRefused as error:
        link.fail(error)
    except AttachTooLarge as error:
        fail_unattached(link, str(error), FRAME_SIZE_TOO_SMALL)


def fail_unattached(link: LinkCore, reason: str, condition: str) -> None:
    """End a link that cannot be attached."""
    message = f"the link to {quoted(link.address)} cannot be attached: {reason}"
    link.fail(link_error(message, condition, opened=link.was_open))
