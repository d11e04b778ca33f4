"""One connection of the application: searches, uses the session found, and searches again after a loss.

Theory of operation
-------------------
``_supervise`` is the one task of a connection.  It runs a search (``episode``), which ends with an adopted
session that has every link attached.  When that session ends, it calls ``on_disconnected`` on the links and
searches again.  It stops when the application closes the connection or the search gives up.

The application sees one connection throughout; ``session_number`` counts its sessions.  Its links are in a
``link_set``, its events go through an ``event_publisher``, and a ``container_id`` identifies it in each Open.
If the policy asks for a warm ``standby``, the connection keeps one beside the live session and passes it to
the next search.  A ``renewal`` ends the session before its token expires; the next search begins at the same
primary.

A parked session has no generation until the first Attach reports it.  If that generation is older than the
newest known one, the peer is a stale primary and the session is dropped.

    CONNECTING -> CONNECTED <-> RECONNECTING
         |            |             |
         +------------+-------------+--> CLOSED (by the application) or FAILED (gave up)
"""

from __future__ import annotations

import asyncio
import enum
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace

import proton

from haclient import events
from haclient.cluster_url.endpoint import Endpoint
from haclient.core import episode as episodes
from haclient.core import failures
from haclient.core.attempt import Attempt, ConnectParams
from haclient.core.cluster import Shared
from haclient.core.container_id import OPEN_CONNECTIONS, ContainerId
from haclient.core.event_publisher import EventPublisher
from haclient.core.link_set import LinkSet
from haclient.core.quirks import workarounds
from haclient.core.renewal.quiesce import end, quiesce
from haclient.core.renewal.schedule import Renewal
from haclient.core.standby import Standby
from haclient.core.waiting import WaitWarnings
from haclient.discovery import decision as decide
from haclient.discovery.attempt_summary import describe_failures
from haclient.discovery.evidence import Claimed, Failure, FailureReason, PrimaryLost
from haclient.discovery.search import Search
from haclient.engine import peer_fields
from haclient.engine.lingering import LingeringSocket
from haclient.engine.links import ReceiverLink, SenderLink
from haclient.engine.owner import CloseReason
from haclient.engine.protocol import Engine
from haclient.errors import ConnectionClosed, ConnectionGaveUp, HaclientError
from haclient.printable.log import get_logger
from haclient.retry.backoff import Backoff
from haclient.retry.stability import Stability

logger = get_logger("haclient")

_CLOSED = "the connection is closed"
_GAVE_UP = "no primary was found"
_CLOSED_HERE = "it was closed"
_LOOP_ENDED = "its event loop ended before it was closed"


class State(enum.Enum):
    """The states of a connection, as the application sees them."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    CLOSED = "closed"
    FAILED = "failed"


class ConnectionCore:
    """A connection that outlives its sockets.  Belongs to one event loop."""

    def __init__(self, shared: Shared, number: int) -> None:
        self.number = number
        self.state = State.CONNECTING
        self.endpoint: Endpoint | None = None
        self.generation: int | None = None
        self.session_number = 0
        self.error: HaclientError | None = None
        self.on_closed: Callable[[], None] = lambda: None
        self._shared = shared
        self._loop = asyncio.get_running_loop()
        self.name = events.connection_name(shared.client_id, number)
        self._warnings = WaitWarnings(self._loop, self.name, self._describe_waiting)
        self._events = EventPublisher(self._loop, shared.publish, shared.client_id, number)
        self.links = LinkSet(
            self._loop,
            shared.options,
            f"{shared.name_prefix}-{number}",
            self.name,
            self._read_generation,
            on_waiting=self._warnings.call_waits,
            rng=shared.rng,
            reporter=self._events,
        )
        self._container_id = ContainerId(shared.client_id, shared.options.client_id, number, self._pins_id)
        self._policy = shared.options.policy()
        self._backoff = Backoff(self._policy, shared.rng, shared.fixed_delays)
        self._standby = Standby(shared.cluster, self._policy, self._connect_params, shared.rng)
        self._renewal = Renewal(shared, self._renew, self.name)
        self._is_renewed = False  # the session ends for its token alone
        self._supplied: dict[Endpoint, ConnectParams] = {}  # for the attempt after a renewal
        self._search: Search | None = None
        self._engine: Engine | None = None
        self._lingering: LingeringSocket | None = None
        self._session_end: asyncio.Future[CloseReason] | None = None
        self._first = self._loop.create_future()
        self._task: asyncio.Task[None] | None = None
        self._stability = Stability(self._policy.stable_after)
        self._topology_version = 0
        self._peer_close: tuple[Endpoint, Failure] | None = None
        self._unstable: Endpoint | None = None
        self._was_parked = self._is_proven = False
        self._cluster_id: str | None = None
        self._callable_error: Exception | None = None  # raised during the first connect

    # -- the application's side ---------------------------------------------------------------

    async def open(self) -> None:
        """Connect.

        :raises ConnectionGaveUp: (or a more exact subclass) if no primary was found.
        :raises Exception: raised by the application's callable for credentials, unless it is an ``OSError``.
        """
        self._task = self._loop.create_task(self._supervise(), name=f"haclient connection {self.number}")
        try:
            await asyncio.shield(self._first)
        except asyncio.CancelledError:
            await self.close()
            raise

    async def close(self) -> None:
        """Close for good, waiting for the peer at most ``close_timeout`` in any state.

        If cancelled, closes every socket immediately.  ``Closed`` is published in any case.
        """
        end = self._loop.time() + self._shared.options.close_timeout
        try:
            if self.state not in (State.CLOSED, State.FAILED):
                unsettled = self.links.unsettled
                self._set_closed(ConnectionClosed(_CLOSED))
                try:
                    await self._end_session(end)
                finally:
                    self._events.unsettled(unsettled, _CLOSED_HERE)
                    self._events.connection_closed()
            if (lingering := self._lingering) is not None:
                await asyncio.wait([lingering.closed], timeout=end - self._loop.time())
                lingering.abort()
        except BaseException:
            self.abort()
            raise

    async def _end_session(self, end: float) -> None:
        engine, session_end = self._engine, self._session_end
        if engine is not None and session_end is not None:
            engine.close()
            await asyncio.wait([session_end], timeout=end - self._loop.time())
            engine.abort()
        await self._end_task()
        self._engine = None  # the application may keep links, and these refer to this connection

    def abort(self, reason: str = _CLOSED_HERE) -> None:
        """Close for good, without notifying the peer and without waiting."""
        if self.state not in (State.CLOSED, State.FAILED):
            unsettled = self.links.unsettled
            self._set_closed(ConnectionClosed(_CLOSED))
            self._events.unsettled(unsettled, reason)
            self._events.connection_closed()
        for open_socket in (self._engine, self._lingering):
            if open_socket is not None:
                open_socket.abort()
        self._engine = None
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    def warn_never_closed(self) -> None:
        """Issue a ``ResourceWarning`` if messages have no outcome."""
        if count := self.links.unsettled:
            text = f"{self.name}: the connection was never closed, and {count} messages have no outcome"
            warnings.warn(text, ResourceWarning, stacklevel=1)

    # -- episodes -----------------------------------------------------------------------------

    async def _supervise(self) -> None:
        try:
            spare: Attempt | None = None
            while True:
                # Keep no reference to the attempt: it would keep the ended engine during the next search.
                endpoint = (await self._find(spare)).endpoint
                self._standby.start(endpoint)
                assert self._session_end is not None
                reason = await self._session_end
                spare = await self._standby.stop()
                if spare is not None and (self.error is not None or self._is_renewed):
                    spare.cancel()  # at a renewal it has the former token
                    spare = None
                if self.error is not None:
                    return
                self._drop(reason)
        except episodes.GaveUpError as failure:
            self._give_up(failure.verdict)
        except asyncio.CancelledError:
            # ``asyncio.run`` cancels every task at its end; nothing else would close the socket then.
            await asyncio.sleep(0)  # another task that is being cancelled may close the connection first
            if self.error is None:
                try:
                    self.warn_never_closed()
                finally:
                    self.abort(_LOOP_ENDED)
            raise
        except Exception as error:  # a defect in this package must not leave the application waiting
            logger.exception("%s: the connection failed", self.name)
            self._fail_inside(error)
        finally:
            # If the loop never ended this task, the garbage collector does, and may have freed proton's
            # objects.
            if not isinstance(sys.exception(), GeneratorExit):
                self._shared.cluster.stale_primaries.disconnected(self.number)
                if self._engine is not None:
                    self._engine.abort()
                await self._standby.close()

    async def _find(self, spare: Attempt | None) -> Attempt:
        shared = self._shared
        self._events.next_episode()
        if self.session_number == 0:
            self._events.began = self._loop.time()  # after a loss, ``_drop`` has set it
        self._warnings.search_began()
        peer_close, self._peer_close = self._peer_close, None
        self._search = search = Search(
            policy=self._policy,
            backoff=self._backoff,
            now=self._events.began,
            first=self.session_number == 0,
            planned=self._is_renewed,
            credentials=shared.credentials,
            unstable=self._unstable,
            peer_close=peer_close,
            refusals=shared.cluster.refusals,
            dial_times=shared.cluster.dial_times,
            answers=shared.cluster.answers,
        )
        self._events.deadline = search.deadline
        episode = episodes.Episode(shared.cluster, search, self._connect_params, self._events, self)
        if spare is not None:
            episode.resume(spare)
        return await episode.run()

    async def _connect_params(self, endpoint: Endpoint) -> ConnectParams:
        """Return the factory's parameters, with the identity of this connection."""
        params = self._supplied.pop(endpoint, None) or await self._shared.params_provider(endpoint)
        if params.error is not None:
            return self._without_credentials(params, params.error)
        return self._container_id.apply(params)

    def _pins_id(self) -> bool:
        return self.links.pin_container_id or bool(self._search and self._search.reservation)

    def _without_credentials(self, params: ConnectParams, error: Exception) -> ConnectParams:
        """End the first connect with the error of the application's callable; retry after a loss.

        An ``OSError`` (``TimeoutError`` is one) means that the source of credentials is temporarily
        unavailable.
        """
        if self.session_number == 0 and not isinstance(error, OSError) and params.refusal is not None:
            self._callable_error = self._callable_error or error
            return replace(params, refusal=replace(params.refusal, kind=FailureReason.AUTHENTICATION))
        text = "%s: the application's callable for credentials raised %s; the client calls it again"
        logger.warning(text, self.name, type(error).__name__)
        return params

    def attach_ahead(self, attempt: Attempt) -> None:
        """Attach links over a parked attempt, as many as the member parks with it."""
        engine, session = attempt.engine, attempt.begun
        assert engine is not None
        assert session is not None
        self.links.attach_ahead(engine, session)

    def adopt(self, attempt: Attempt) -> None:
        """Use the session that the search found."""
        if self.error is not None:  # a member admitted a parked attempt just after ``close`` ended the search
            attempt.cancel()
            return
        self._session_end = self._loop.create_future()
        engine, session = attempt.adopt(self)
        if engine.close_reason is not None:
            self._session_end.set_result(engine.close_reason)
        self._engine = engine
        self.endpoint = attempt.endpoint
        properties = engine.peer_properties
        self._was_parked, self._is_proven = attempt.parked, attempt.proven
        self._cluster_id = episodes.cluster_of(properties)
        self.generation = None if attempt.parked else episodes.generation_of(properties)
        if self.generation is not None:
            self._shared.cluster.stale_primaries.connected(self.number)
        member = (attempt.endpoint, self._cluster_id, self.generation)
        self._stability.usable(member, self._loop.time())
        self._topology_version = self._shared.cluster.topology.version
        self.session_number += 1
        self.state = State.CONNECTED
        self._warnings.search_ended()
        replayed = self.links.on_connected(engine, session, attempt.endpoint)
        workarounds.apply(engine, self._loop, self._shared.options.vhost)
        self._announce(attempt.endpoint, replayed)
        self._events.watch(engine.incoming.limits, attempt.endpoint)
        self._search, self._is_renewed, self._supplied = None, False, {}
        assert attempt.params is not None
        self._renewal.start(attempt.endpoint, attempt.params)
        if not self._first.done():
            self._first.set_result(None)

    def _announce(self, endpoint: Endpoint, replayed: int) -> None:
        found, attempts = (endpoint, self.generation, self._cluster_id), self._attempts_made
        if self.session_number == 1:
            self._events.connected(*found, attempts=attempts)
        else:
            renewed = self._is_renewed
            self._events.reconnected(*found, attempts=attempts, replayed=replayed, renewed=renewed)

    def _describe_waiting(self) -> str:
        """Describe the waiting calls and messages, and the last failed attempts; empty if nothing waits."""
        calls, messages = self.links.waiting + (not self._first.done()), self.links.unsettled
        if not calls and not messages:
            return ""
        answers = describe_failures(self._shared.cluster.topology.failures)
        return f"{calls} calls and {messages} messages wait" + (f"; {answers}" if answers else "")

    async def _renew(self, params: ConnectParams, seconds: float) -> str:
        """Log in with a new token within these seconds; return why it was refused, if it was."""
        if self.links.claims is not None:
            return await self.links.claims.renew(params.settings.password or "", self.links.all)
        engine, session_end = self._engine, self._session_end
        await quiesce(lambda: tuple(self.links.all), seconds, self.name)
        if engine is not None and engine is self._engine and session_end is not None and self.endpoint:
            self._is_renewed, self._supplied = not session_end.done(), {self.endpoint: params}
            await end(engine, session_end, self._shared.options.close_timeout)
        return ""

    def _drop(self, reason: CloseReason) -> None:
        self._shared.cluster.stale_primaries.disconnected(self.number)
        self._renewal.stop()
        self._engine = self._session_end = None
        self.state = State.RECONNECTING
        assert self.endpoint is not None
        self._events.began = now = self._loop.time()
        self._unstable = None if self._stability.was_stable(now) else self.endpoint
        if self._stability.begins_anew(now):
            self._backoff.reset()
        unsettled = self.links.on_disconnected(reason)
        self._events.disconnected(self.endpoint, reason, unsettled=unsettled, renewed=self._is_renewed)
        if self._is_renewed and (self._peer_close is None or self._peer_close[1].condition is None):
            self._unstable = None
            return
        self._shared.cluster.learn(PrimaryLost(self.endpoint, self._topology_version))
        if self._peer_close is not None and (target := self._peer_close[1].redirect) is not None:
            self._follow(self.endpoint, target)

    def _follow(self, source: Endpoint, target: Endpoint) -> None:
        """Start the search at the successor that the lost primary named."""
        shared, cluster = self._shared, self._shared.cluster
        refused = cluster.topology.may_follow(source, target, self._policy, credentials=shared.credentials)
        self._events.successor_named(source, target, refused)
        if refused is None and cluster.topology.primary is None:
            cluster.learn(Claimed(target, None, None, cluster.topology.version, usable=False))

    def _give_up(self, verdict: decide.GiveUp) -> None:
        attempts = (*self._events.unresolved_names.values(), *verdict.attempts)
        verdict = replace(verdict, attempts=attempts)
        last = episodes.last_failure(attempts)
        self._events.unsettled(self.links.unsettled, _GAVE_UP)
        self._events.gave_up(verdict.detail, verdict.reason.value, last, attempts=self._attempts_made)
        if self._callable_error is not None and not self._first.done():
            self._first.set_exception(self._callable_error)
            self._first.exception()
        self._set_failed(episodes.give_up_error(verdict, self._loop.time()))

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the connection."""
        return self._loop

    @property
    def gave_up(self) -> bool:
        """Return whether the search ended without a session.  Its last attempts are reported after that."""
        return self._search is not None and self._search.gave_up

    @property
    def is_dialling(self) -> bool:
        """Return whether an attempt of the search is under way, not counting parked ones."""
        return self._search is not None and self._search.dials > 0

    @property
    def _attempts_made(self) -> int:
        return 0 if self._search is None else self._search.attempts

    def _fail_inside(self, error: Exception) -> None:
        reason = f"internal error: {type(error).__name__}"
        try:
            self._events.unsettled(self.links.unsettled, reason)
            self._events.gave_up(reason, events.INTERNAL_ERROR, None, attempts=self._attempts_made)
        finally:
            self._set_failed(ConnectionGaveUp(f"internal error: {error!r}"))

    def _set_failed(self, error: HaclientError) -> None:
        self._set_closed(error)
        self.state = State.FAILED

    def _set_closed(self, error: HaclientError) -> None:
        self.state = State.CLOSED
        self.error = error
        self._renewal.stop()
        self._events.close()
        self._warnings.search_ended()
        self.links.fail(error)
        if not self._first.done():
            self._first.set_exception(error)
            self._first.exception()
        self.on_closed()
        OPEN_CONNECTIONS.remove(self._engine)

    async def _end_task(self) -> None:
        task = self._task
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])

    def _read_generation(self, link: SenderLink | ReceiverLink) -> None:
        """Read the generation from the first answered Attach, if the session was parked."""
        if not self._was_parked or self._engine is None:
            return
        generation = episodes.generation_of(peer_fields.properties(link.endpoint))
        if generation is None or generation == self.generation:
            return
        self.generation = generation
        cluster, known, proven = self._cluster_id, self._shared.cluster, self._is_proven
        assert self.endpoint is not None
        if not known.topology.is_stale(generation, cluster, proven=proven):
            known.learn(Claimed(self.endpoint, generation, cluster, self._topology_version, proven=proven))
            known.stale_primaries.connected(self.number)
            return
        highest = known.topology.highest(cluster, proven=proven)
        detail = f"generation {generation} is not the newest of cluster {cluster}"
        self._engine.abort(proton.Condition("haclient:stale-primary", detail))
        if known.stale_served(self._loop.time()):
            self._events.generations_forgotten(self.endpoint, generation, cluster, highest)

    # -- the engine's side --------------------------------------------------------------------

    def opened(self, engine: Engine) -> None:
        """Do nothing: the Open arrived before the adoption."""

    def session_opened(self, engine: Engine, session: proton.Session) -> None:
        """Do nothing: the Begin was answered before the adoption.

        Sessions that the peer begins get no answer.
        """

    def link_requested(self, engine: Engine, link: SenderLink | ReceiverLink) -> None:
        """Refuse a link that the peer attaches on its own."""
        engine.refuse(link, proton.Condition("amqp:not-allowed", "this client opens its own links"))

    def peer_closed(self, engine: Engine, condition: proton.Condition | None) -> None:
        """End the session at the primary's Close, without waiting for its socket to close.

        The client answers the Close and sends the outcomes given before it, while the next search begins.
        """
        assert self.endpoint is not None
        self._peer_close = self.endpoint, failures.from_close(condition, self.endpoint)
        self._finish(CloseReason(condition, by_peer=True))
        engine.leave()
        if self._lingering is not None:  # keep one at most: two Closes came within moments
            self._lingering.abort()
        self._lingering = engine.lingering

    def writable_again(self, engine: Engine) -> None:
        """Let every link send again: the socket takes bytes."""
        self.links.writable_again()

    def ended(self, engine: Engine, reason: CloseReason) -> None:
        """End the session: the socket is closed."""
        self._finish(reason)

    def _finish(self, reason: CloseReason) -> None:
        if self._session_end is not None and not self._session_end.done():
            self._session_end.set_result(reason)
