"""The links of one connection: they outlive its sessions, and are attached again over each new one.

A link fails alone in three cases: its ``attach`` raises (the application's ``configure``), its Attach is
larger than the peer's frames, or it ends the connection again and again (``suspects``).  A link that the peer
temporarily refuses is attached again (``attach``).  A link beyond the peer's limit waits while another link
is being closed, and fails otherwise.

Source: AMQP 1.0 part 2, section 2.6.1 (names of links).
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import proton

from haclient.cluster_url.endpoint import Endpoint
from haclient.cluster_url.options import Options
from haclient.core.attach import claims, subscriptions
from haclient.core.attach.answers import AnswerWatch
from haclient.core.attach.names import LinkNames
from haclient.core.attach.queue import AttachQueue
from haclient.core.attach.refusals import link_error
from haclient.core.attach.retries import Reattachment, Reporter, attach_or_fail, fail_unattached
from haclient.core.attach.source import GLOBAL, PLAIN, SourceParams
from haclient.core.attach.suspect_messages import SuspectMessages, ends_connections
from haclient.core.attach.suspects import Suspects
from haclient.core.attach.target import target_capabilities
from haclient.core.attach.trials import LinkCore, NotYetError
from haclient.core.receiver import MAX_CREDIT, ReceiverCore
from haclient.core.sender import SenderCore
from haclient.core.waiting import in_parallel
from haclient.engine.extra_sessions import TooManyLinksError
from haclient.engine.links import ReceiverLink, SenderLink
from haclient.engine.owner import CloseReason
from haclient.engine.protocol import Engine
from haclient.engine.settings import MAX_PARKED_LINKS
from haclient.error_catalog.arguments import check_callable, check_flag, check_text, check_whole
from haclient.error_catalog.base import quoted
from haclient.errors import HaclientError, LinkClosed, another
from haclient.printable.log import get_logger

logger = get_logger("haclient")

L = TypeVar("L", SenderCore, ReceiverCore)

# Times ``attempt_timeout``: a peer that answers no Attach for so long loses its session.
_ANSWER_PATIENCE = 3
# The condition of peers for links beyond their limits.
_TOO_MANY = "amqp:resource-limit-exceeded"


class LinkSet:
    """Creates the links of a connection, and attaches them over its sessions.

    :param connection_name: name of the connection in log lines.
    :param name_prefix: prefix of link names that the application does not choose.
    :param on_attached: called at the peer's answer to each Attach.
    :param on_waiting: called when something begins to wait for a session.
    :param rng: random source for the delays of links that are attached again.
    :param reporter: publishes the reports of links.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: Options,
        name_prefix: str,
        connection_name: str,
        on_attached: Callable[[SenderLink | ReceiverLink], None],
        *,
        on_waiting: Callable[[], None],
        rng: random.Random,
        reporter: Reporter,
    ) -> None:
        self._loop = loop
        self._options = options
        self._name_prefix = name_prefix
        self._connection_name = connection_name
        self._reporter = reporter
        self._on_attached = on_attached
        self._on_waiting = on_waiting
        self.all: dict[LinkCore, None] = {}
        """The links that have not ended."""
        self._names = LinkNames(name_prefix)
        self._error: HaclientError | None = None
        self.claims: claims.Claims | None = None
        """The tokens of the session, if the primary takes them by ``$cbs``."""
        self._engine: Engine | None = None
        self._session: proton.Session | None = None
        self._reattachment = Reattachment(loop, options, rng, self._attach_again, reporter)
        self._suspects: Suspects[LinkCore] = Suspects(options.reattach_timeout)
        self._suspect_messages = SuspectMessages(self._senders)
        self._queue: AttachQueue[LinkCore] = AttachQueue(loop, self._attach, options.attempt_timeout)
        self._answers = AnswerWatch(
            loop, _ANSWER_PATIENCE * options.attempt_timeout, self._waits_for_answer, self._end_session
        )
        # Links beyond the peer's limit, while another link is being closed or tried.
        self._without_handle: dict[LinkCore, None] = {}
        # Links already attached over a parked connection, which may become the session.
        self._attached_ahead: dict[LinkCore, Engine] = {}

    # -- the application's side ---------------------------------------------------------------

    def create_sender(
        self,
        address: str | None,
        *,
        name: str | None = None,
        capabilities: Sequence[str] = (),
        configure: Callable[[proton.Sender], None] | None = None,
    ) -> SenderCore:
        """Create a sender; its ``opened`` is done when the primary accepts the link.

        :raises ValueError: if the connection has a sender of this name, or the address is empty.
        :raises TypeError: for an argument of an invalid type.
        """
        check_text("address", address, optional=True)
        check_callable("configure", configure)
        if address == "":
            raise ValueError("address: it is a name, or None for the anonymous terminus, and not empty")
        core = SenderCore(
            self._loop,
            self._names.choose(SenderCore, name),
            address,
            window=self._options.window,
            at_most_once=self._options.delivery == "at-most-once",
            configure=configure,
            capabilities=target_capabilities(capabilities),
        )
        return self._register_named(core)

    def create_receiver(
        self,
        address: str | None,
        *,
        name: str | None = None,
        credit: int | None = None,
        dynamic: bool = False,
        browse: bool = False,
        configure: Callable[[proton.Receiver], None] | None = None,
        source: SourceParams = PLAIN,
        confirm: bool = False,
    ) -> ReceiverCore:
        """Create a receiver; its ``opened`` is done when the primary accepts the link.

        :param credit: ``None`` for the option ``credit``; 0 lets the application grant all credit.
        :param confirm: ask the peer to confirm accepted deliveries (rcv-settle-mode *second*).
        :raises ValueError: if the connection has a receiver of this name, the credit is out of range, or a
            dynamic node is given an address.
        :raises TypeError: for an argument of an invalid type.
        """
        check_text("address", address, optional=True)
        check_callable("configure", configure)
        for argument, flag in (("dynamic", dynamic), ("browse", browse), ("confirm", confirm)):
            check_flag(argument, flag)
        if dynamic and address is not None:
            raise ValueError("dynamic: the primary names the node, so the address is None")
        credit = self._options.credit if credit is None else check_whole("credit", credit)
        if not 0 <= credit <= MAX_CREDIT:
            raise ValueError(f"credit is 0 to {MAX_CREDIT}, not {credit}")
        core = ReceiverCore(
            self._loop,
            self._names.choose(ReceiverCore, name),
            address,
            credit=credit,
            dynamic=dynamic,
            browse=browse,
            configure=configure,
            source=source,
            confirm=confirm,
        )
        return self._register_named(core)

    def subscribe(
        self,
        topic: str,
        *,
        name: str | None,
        durable: bool,
        shared: bool,
        credit: int | None,
        source: SourceParams,
        configure: Callable[[proton.Receiver], None] | None,
        confirm: bool = False,
    ) -> ReceiverCore:
        """Create a receiver of a subscription; only a durable or shared one has a name.

        :raises ValueError: if the name or client id is missing, or the name is useless, invalid or in use.
        :raises TypeError: for an argument of an invalid type.
        """
        check_text("topic", topic)
        check_text("name", name, optional=True)
        check_flag("durable", durable)
        check_flag("shared", shared)
        capabilities = subscriptions.subscription_capabilities(
            source.capabilities, durable=durable, shared=shared, client_id=self._options.client_id
        )
        link = subscriptions.link_name(name, capabilities, durable=durable, in_use=self._is_receiver)
        return self.create_receiver(
            topic,
            name=link,
            credit=credit,
            configure=configure,
            confirm=confirm,
            source=replace(source, capabilities=capabilities, durable=durable),
        )

    def unsubscribe(self, name: str, topic: str | None) -> subscriptions.Removal:
        """Begin to remove a durable subscription.

        :param topic: topic of a global subscription, which needs it; otherwise ``None``.
        :raises ValueError: if its receiver is open, the name is invalid, or topic and client id are missing.
        """
        check_text("name", name, optional=True)
        check_text("topic", topic, optional=True)
        subscriptions.check_name(name)
        source = subscriptions.removal_source(topic, self._options.client_id)
        link = name if source.is_lookup else f"{name}|{GLOBAL}"
        if self._is_receiver(link):
            raise ValueError(f"the subscription {quoted(name)} has a receiver: close it first")
        address = name if topic is None else topic
        return subscriptions.Removal(self.create_receiver(address, name=link, credit=0, source=source))

    def _senders(self) -> Iterator[SenderCore]:
        return (link for link in self.all if isinstance(link, SenderCore))

    def _is_receiver(self, name: str) -> bool:
        return (ReceiverCore, name) in self._names

    def register(self, core: L) -> L:
        """Add a link, and attach it if there is a session.

        :raises HaclientError: if the connection is closed.
        """
        if self._error is not None:
            raise another(self._error)
        core.on_attached = partial(self._attached, core)
        core.on_detached = partial(self._detached, core)
        core.on_closed = partial(self._remove, core, core.on_closed)
        self.all[core] = None
        core.on_waiting = self._on_waiting
        if isinstance(core, SenderCore):
            core.suspects = self._suspect_messages
        else:
            core.on_stale = self._reporter.delivery_stale
        engine, session = self._engine, self._session
        if engine is not None and session is not None and engine.close_reason is None:
            try:
                self._attach_first(core, engine, session)
            except BaseException:  # raised by the application's ``configure``
                del self.all[core]
                self._reattachment.forget(core)
                raise
        self._on_waiting()
        return core

    def _register_named(self, core: L) -> L:
        key = type(core), core.name
        self._names.add(key)
        core.on_closed = partial(self._names.remove, key)
        try:
            return self.register(core)
        except BaseException:
            self._names.remove(key)
            raise

    def _remove(self, core: LinkCore, then: Callable[[], None]) -> None:
        then()
        self.all.pop(core, None)
        self._reattachment.forget(core)
        self._suspects.acquit(core)
        self._queue.remove(core)
        self._without_handle.pop(core, None)
        if self._suspect_messages.one_by_one:
            self._suspect_messages.go_on()
        if isinstance(core, SenderCore) and self._error is None:  # else the connection reports them
            self._reporter.unsettled(core.abandoned, str(core.error), link=core.name, address=core.address)

    @property
    def unsettled(self) -> int:
        """Number of messages of all senders without an outcome."""
        return sum(link.unsettled for link in tuple(self.all))  # any thread may ask

    @property
    def senders(self) -> int:
        """Number of senders that have not ended, attached or not."""
        return sum(isinstance(link, SenderCore) for link in tuple(self.all))

    @property
    def receivers(self) -> int:
        """Number of receivers that have not ended, attached or not."""
        return sum(isinstance(link, ReceiverCore) for link in tuple(self.all))

    @property
    def pin_container_id(self) -> bool:
        """Return whether the container id must stay: a receiver may have state under it at the peer."""
        return any(link.pins_container_id for link in self.all if isinstance(link, ReceiverCore))

    @property
    def starved(self) -> bool:
        """Return whether messages of a sender wait because the primary gives no credit."""
        return any(link.starved for link in self.all if isinstance(link, SenderCore))

    @property
    def blocked(self) -> bool:
        """Return whether messages of a sender wait because the primary's session window is closed."""
        return any(link.blocked and link.ledger for link in self.all if isinstance(link, SenderCore))

    @property
    def waiting(self) -> int:
        """Number of calls that wait to open, send, flush or receive; waits for outcomes do not count."""
        return sum(link.waiting for link in self.all)

    async def flush(self) -> None:
        """Wait until all messages submitted before are settled or withdrawn.

        :raises HaclientError: if a sender ended before some of them had an outcome.
        """
        await in_parallel(link.flush() for link in self.all if isinstance(link, SenderCore))

    # -- the connection's side ----------------------------------------------------------------

    def attach_ahead(self, engine: Engine, session: proton.Session) -> None:
        """Attach up to ``MAX_PARKED_LINKS`` links over a parked connection; others wait for its Begin."""
        links = () if self._suspects.one_by_one or claims.are_needed(engine) else self.all
        ready = (link for link in links if link.may_attach_ahead and not self._reattachment.is_apart(link))
        self._attached_ahead = dict.fromkeys(itertools.islice(ready, MAX_PARKED_LINKS), engine)
        for link in self._attached_ahead:
            self._attach_guarded(link, engine, session)

    def on_connected(self, engine: Engine, session: proton.Session, endpoint: Endpoint) -> int:
        """Attach every link over a new session; return the number of messages that will be sent again."""
        self._engine, self._session = engine, session
        engine.sessions.on_free = self._attach_waiting
        self.claims = claims.begin(engine, session, f"{self._name_prefix}-cbs", self._options.attempt_timeout)
        self._reattachment.session_began(endpoint, self.all)
        replayed = sum(link.to_replay for link in self.all)
        missing = [link for link in self.all if self._attached_ahead.get(link) is not engine]
        self._attached_ahead.clear()
        self._suspect_messages.session_began()
        self._queue.begin(missing, one_by_one=self._suspects.one_by_one)
        self._answers.begin()
        return replayed

    def on_disconnected(self, reason: CloseReason) -> int:
        """Prepare every link for the next session; return the number of unsettled messages."""
        self._end_claims()
        self._engine = self._session = None
        self._queue.clear()
        self._without_handle.clear()
        self._answers.stop()
        self._reattachment.session_ended()
        refused = self._reattachment.refused_by_end  # the refused link is known; the others are not accused
        unanswered = [link for link in self.all if link.unanswered and not refused]
        unsettled = self.unsettled
        guilty = self._suspect_messages.session_ended(reason, unanswered=bool(unanswered))
        if guilty is not None:
            sender, entry = guilty
            sender.give_up(entry, ends_connections(len(entry.data), sender.address, reason))
        for link in tuple(self.all):
            link.on_disconnected()
        if self._suspect_messages.one_by_one:
            self._suspect_messages.go_on()  # some suspects may have been given up
        self._fail_guilty(unanswered, reason)
        return unsettled

    def writable_again(self) -> None:
        """Let every link send again: the socket takes bytes."""
        for link in tuple(self.all):
            link.writable_again()

    def fail(self, error: HaclientError) -> None:
        """End every link with this error; no link can be created any more."""
        self._error = error
        self._end_claims()
        self._engine = self._session = None
        self._queue.clear()
        self._without_handle.clear()
        self._answers.stop()
        for link in tuple(self.all):
            link.fail(error)
        self.all.clear()
        self._attached_ahead.clear()
        self._reattachment.session_ended()

    def _end_claims(self) -> None:
        if self.claims is not None:
            self.claims.stop()
            self.claims = None

    def _fail_guilty(self, unanswered: list[LinkCore], reason: CloseReason) -> None:
        now = self._loop.time()
        link = self._suspects.session_ended(unanswered, reason.condition, now, by_peer=reason.by_peer)
        if link is not None:
            text = f"{reason}; so ended each connection that it was attached over"
            name = reason.condition.name if reason.condition else None
            link.fail(
                link_error(f"the link to {quoted(link.address)} failed: {text}", name, opened=link.was_open)
            )

    def _waits_for_answer(self) -> int:
        return sum(link.was_open and link.unanswered for link in self.all)

    def _end_session(self, condition: proton.Condition) -> None:
        if self._engine is not None:
            self._engine.abort(condition)

    def _attached(self, core: LinkCore, link: SenderLink | ReceiverLink) -> None:
        self._on_attached(link)
        self._answers.answered()
        self._suspects.acquit(core)
        self._queue.remove(core)
        engine, session = self._engine, self._session
        if engine is not None and session is not None and self._reattachment.has_moved(core):
            self._attach_first(core, engine, session)
        self._attach_waiting()

    def _detached(
        self, core: LinkCore, link: SenderLink | ReceiverLink, condition: proton.Condition | None
    ) -> HaclientError | None:
        error = self._reattachment.detached(core, link, condition)
        self._answers.answered()
        self._suspects.acquit(core)
        self._queue.remove(core)
        return error

    def _attach_first(self, link: LinkCore, engine: Engine, session: proton.Session) -> None:
        kind = SenderLink if isinstance(link, SenderCore) else ReceiverLink
        if engine.when_free(kind, link.name, partial(self._attach_when_free, link, engine)):
            return
        if self._queue.one_by_one or self.claims is not None:
            self._queue.add(link)
        elif (own := self._session_of(link, engine, session)) is not None:
            attach_or_fail(link, engine, own)

    def _attach_when_free(self, link: LinkCore, engine: Engine) -> None:
        if link in self.all and self._engine is engine:
            self._queue.add(link)

    def _attach_again(self, link: LinkCore) -> bool:
        if self._engine is not None and self._engine.close_reason is None:
            if not self._engine.writable:
                # The earlier Detach is not written yet, and proton would send the Attach of the same name
                # before it.
                return False
            self._queue.add(link)
        return True

    def _attach(self, link: LinkCore) -> None:
        engine, session, claimed = self._engine, self._session, self.claims
        if engine is not None and session is not None and engine.close_reason is None:
            if claimed and claimed.must_wait(link, partial(self._attach_when_free, link, engine)):
                return
            own = self._session_of(link, engine, session)
            if own is not None:
                self._attach_guarded(link, engine, own)
                self._answers.begin()

    def _attach_guarded(self, link: LinkCore, engine: Engine, session: proton.Session) -> None:
        try:
            attach_or_fail(link, engine, session)
        except Exception as error:  # raised by the application's ``configure``
            logger.exception("%s: the link to %r cannot be attached", self._connection_name, link.address)
            link.fail(LinkClosed(f"the link cannot be attached again: {type(error).__name__}"))

    def _session_of(self, link: LinkCore, engine: Engine, shared: proton.Session) -> proton.Session | None:
        """Return the session to attach a link over; ``None`` if the link waits or has failed."""
        try:
            own = self._reattachment.session_of(link, engine, shared)
            if own is None and link.refusal is not None:
                link.fail(link.refusal)
            return own
        except NotYetError:
            self._without_handle[link] = None
        except TooManyLinksError as error:
            if engine.sessions.will_be_free(engine):
                self._without_handle[link] = None
            else:
                fail_unattached(link, str(error), _TOO_MANY)
        return None

    def _attach_waiting(self) -> None:
        """Attach the links that wait for a handle, until one must wait again."""
        while self._without_handle:
            link = next(iter(self._without_handle))
            del self._without_handle[link]
            self._attach(link)
            if link in self._without_handle:
                break
