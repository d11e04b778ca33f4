"""Publishes the events of one connection, each with its stamp.

The episode reports its search here (``episode.Observer``), the connection everything else.  Sequence numbers
have no gaps, and every event carries the number of the current episode.

When the first round of an episode fails, the publisher logs a warning with every endpoint and its answer.
After a loss it does so only if no endpoint answered in AMQP: every failover begins with a backup that is not
primary yet.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import proton

from haclient import events
from haclient.cluster_url.endpoint import Endpoint
from haclient.core.failures import loss_kind
from haclient.discovery import decision as decide
from haclient.discovery.attempt_summary import describe_failures
from haclient.discovery.evidence import AttemptRecord, Failure, FailureReason
from haclient.engine.owner import CloseReason
from haclient.engine.wire.session_limits import SessionLimits
from haclient.printable.log import get_logger

logger = get_logger("haclient")

# Seconds: beyond a day, the deadline is logged as a duration and not as a time of day.
_DAY = 86400.0
# Seconds: a busy peer closes its window for moments, but operators should soon hear of longer blocks.
_BLOCKED_AFTER = 1.0
_RENEWAL = "the client logs in with a new token"
# Failures at an endpoint where nothing speaks AMQP with the client.
_NO_AMQP = frozenset(
    {
        FailureReason.UNRESOLVED,
        FailureReason.REFUSED,
        FailureReason.UNREACHABLE,
        FailureReason.TIMED_OUT,
        FailureReason.ENDED,
        FailureReason.NOT_AMQP,
        FailureReason.TLS_FAILED,
        FailureReason.DISPLACED,
    }
)


class EventPublisher:
    """Publishes events on the event loop of its connection.

    :param connection: number of the connection.
    :ivar began: when the current episode began, by the loop's clock; a loss sets it for the next one.
    :ivar closed: the connection is closed; lookups that still run report nothing.
    :ivar deadline: when the current episode gives up, by the loop's clock; infinite without a deadline.
    :ivar unresolved_names: the names without an address in the current episode.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        publish: Callable[[int, events.Event], None],
        client_id: str,
        connection: int,
    ) -> None:
        self.began = 0.0
        self.closed = False
        self.deadline = math.inf
        self.unresolved_names: dict[Endpoint, AttemptRecord] = {}
        self._loop = loop
        self._publish = publish
        self._client_id = client_id
        self._connection = connection
        self._sequence = 0
        self._episode = 0
        # The last failure at each endpoint in the first round; ``None`` after that round.
        self._first_round: dict[Endpoint, Failure] | None = None
        self._block_watch: _BlockWatch | None = None

    def next_episode(self) -> None:
        """Begin the next episode."""
        self._episode += 1
        self._first_round = {}
        self.unresolved_names.clear()

    # -- reports of the search (``episode.Observer``) -----------------------------------------

    def attempt_started(self, number: int, endpoint: Endpoint) -> None:
        """Publish a dial."""
        self._emit(events.AttemptStarted, attempt=number, endpoint=endpoint)

    def attempt_failed(self, record: AttemptRecord) -> None:
        """Publish an attempt that failed."""
        self._note(record)
        self._emit(events.AttemptFailed, record=record)

    def attempt_parked(self, number: int, endpoint: Endpoint) -> None:
        """Publish an attempt that a member parks until it serves."""
        self._emit(events.Parked, attempt=number, endpoint=endpoint)

    def redirected(self, record: AttemptRecord) -> None:
        """Publish that a passive member redirected to another endpoint."""
        self._note(record)
        failure = record.failure
        assert failure.redirect is not None
        followed = failure.kind is FailureReason.REDIRECTED
        detail = "" if followed else failure.detail
        self._emit(
            events.Redirected,
            by=record.endpoint,
            target=failure.redirect,
            followed=followed,
            detail=detail,
            record=record,
        )

    def member_refused(self, by: Endpoint, member: Endpoint) -> None:
        """Publish that ``by`` announced a member that must not be given the credentials."""
        detail = (
            f"{member} is announced as a member and is not in the domain of one: list it in the URL, or set "
            "redirects=any, to send the credentials there"
        )
        self._emit(events.Redirected, by=by, target=member, followed=False, detail=detail)

    def backing_off(self, decision: decide.BackOff) -> None:
        """Publish the wait before the next round: no member served."""
        delay = decision.delay
        self._emit(
            events.BackingOff,
            delay=delay.delay,
            base=delay.base,
            retry_after=delay.retry_after,
            round=decision.round,
            floor=delay.floor,
        )
        if decision.round > 0:
            self._warn_of_first_round()

    def _note(self, record: AttemptRecord) -> None:
        if self._first_round is not None:
            self._first_round[record.endpoint] = record.failure

    def _warn_of_first_round(self) -> None:
        found, self._first_round = self._first_round, None
        if not found or (self._episode > 1 and any(each.kind not in _NO_AMQP for each in found.values())):
            return
        name = events.connection_name(self._client_id, self._connection)
        answers, limit = describe_failures(found.items()), self._describe_deadline()
        logger.warning("%s: no primary in the first round: %s; the client goes on %s", name, answers, limit)

    def _describe_deadline(self) -> str:
        if self.deadline == math.inf:
            return "without a deadline"
        seconds = self.deadline - self._loop.time()
        if seconds >= _DAY:
            return f"for {seconds:.0f} s"
        until = datetime.now().astimezone() + timedelta(seconds=seconds)
        return f"for {seconds:.1f} s, until {until:%H:%M:%S}"

    def generations_forgotten(
        self, endpoint: Endpoint, generation: int | None, cluster: str | None, highest: int | None
    ) -> None:
        """Publish that this stale primary may serve: for a long time only stale primaries have answered."""
        self._emit(
            events.GenerationsForgotten,
            endpoint=endpoint,
            generation=generation,
            cluster=cluster,
            highest=highest,
        )

    def unresolved(self, name: Endpoint, reason: str) -> None:
        """Publish a name without an address, even if another member was found meanwhile."""
        if self.closed:
            return
        failure = Failure(kind=FailureReason.UNRESOLVED, detail=reason)
        now = self._loop.time()
        record = AttemptRecord(number=0, endpoint=name, started=self.began, ended=now, failure=failure)
        self.unresolved_names[name] = record
        self.attempt_failed(record)

    # -- reports of the connection ------------------------------------------------------------

    def connected(
        self, endpoint: Endpoint, generation: int | None, cluster: str | None, *, attempts: int
    ) -> None:
        """Publish the first usable session."""
        now = self._loop.time()
        self._emit(
            events.Connected,
            at=now,
            cluster=cluster,
            endpoint=endpoint,
            generation=generation,
            attempts=attempts,
            duration=now - self.began,
        )

    def reconnected(
        self,
        endpoint: Endpoint,
        generation: int | None,
        cluster: str | None,
        *,
        attempts: int,
        replayed: int,
        renewed: bool,
    ) -> None:
        """Publish a usable session after a loss.

        :param renewed: whether the client had ended the former session itself, to log in with a new token.
        """
        now = self._loop.time()
        self._emit(
            events.Reconnected,
            at=now,
            cluster=cluster,
            endpoint=endpoint,
            generation=generation,
            attempts=attempts,
            duration=now - self.began,
            replayed=replayed,
            planned=renewed and attempts == 1,
        )

    def watch(self, limits: SessionLimits, endpoint: Endpoint) -> None:
        """Publish ``Blocked`` and ``Unblocked`` for this session from now on."""
        self._block_watch = _BlockWatch(
            self._loop,
            limits,
            began=lambda: self._emit(events.Blocked, endpoint=endpoint),
            ended=lambda duration: self._emit(events.Unblocked, endpoint=endpoint, duration=duration),
        )

    def close(self) -> None:
        """Stop publishing blocks and unresolved names: the connection is closed."""
        self.closed = True
        self._stop_watch()

    def _stop_watch(self) -> None:
        if self._block_watch is not None:
            self._block_watch.stop()
            self._block_watch = None

    def disconnected(self, endpoint: Endpoint, reason: CloseReason, *, unsettled: int, renewed: bool) -> None:
        """Publish a loss, with the time when it happened.

        :param renewed: whether the client ended the session itself, to log in with a new token.
        """
        self._stop_watch()
        self._emit(
            events.Disconnected,
            at=self.began,
            endpoint=endpoint,
            reason=_RENEWAL if renewed else str(reason),
            unsettled=unsettled,
            condition=None if reason.condition is None else str(reason.condition.name),
            kind=events.LossKind.RENEWAL if renewed else loss_kind(reason),
        )

    def link_retrying(
        self, *, link: str, address: str | None, delay: float, condition: proton.Condition, refusals: int
    ) -> None:
        """Publish that the primary refused a link, and when it is attached again."""
        self._emit(
            events.LinkRetrying,
            link=link,
            address=address,
            delay=delay,
            reason=condition.description or "",
            condition=condition.name,
            refusals=refusals,
        )

    def successor_named(self, by: Endpoint, target: Endpoint, refusal_reason: str | None) -> None:
        """Publish that the lost primary named its successor.

        :param refusal_reason: why the client does not follow; ``None`` if it does.
        """
        followed = refusal_reason is None
        self._emit(events.Redirected, by=by, target=target, followed=followed, detail=refusal_reason or "")

    def unsettled(self, count: int, reason: str, *, link: str = "", address: str | None = None) -> None:
        """Publish the messages without an outcome at the end of a sender or the connection, if any."""
        if count:
            self._emit(events.Unsettled, count=count, reason=reason, link=link, address=address)

    def delivery_stale(self, link: str, address: str | None, reason: str) -> None:
        """Publish that the ``with`` block of a delivery could not settle it, while the connection is open."""
        if not self.closed:
            self._emit(events.DeliveryStale, link=link, address=address, reason=reason)

    def gave_up(self, reason: str, cause: str, last: Failure | None, *, attempts: int) -> None:
        """Publish the end of a search without a session."""
        self._emit(
            events.GaveUp,
            reason=reason,
            last=last,
            cause=cause,
            attempts=attempts,
            duration=self._loop.time() - self.began,
        )

    def connection_closed(self) -> None:
        """Publish that the application closed the connection."""
        self._emit(events.Closed)

    def _emit(self, kind: Callable[..., events.Event], /, *, at: float | None = None, **facts: Any) -> None:
        """Publish an event.

        :param at: when it happened, by the loop's clock; ``None`` for now.
        """
        self._sequence += 1
        stamp = events.Stamp(
            client_id=self._client_id,
            connection=self._connection,
            sequence=self._sequence,
            time=time.time(),
            monotonic=self._loop.time() if at is None else at,
            episode=self._episode,
        )
        self._publish(self._connection, kind(stamp, **facts))


class _BlockWatch:
    """Watches one session's window, and ignores short closures: a busy peer may let it be used up.

    :param began: called when the window has been closed for ``_BLOCKED_AFTER``.
    :param ended: called when it opens again after that, with the seconds that it was closed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: SessionLimits,
        *,
        began: Callable[[], None],
        ended: Callable[[float], None],
    ) -> None:
        self._loop, self._limits, self._began, self._ended = loop, limits, began, ended
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_reported = False
        limits.on_window_change = self._changed
        if not limits.window_is_open:
            self._changed(is_open=False)

    def stop(self) -> None:
        """Report nothing more."""
        self._limits.on_window_change = None
        if self._timer is not None:
            self._timer.cancel()

    def _changed(self, is_open: bool) -> None:  # noqa: FBT001 - the one argument of a callback
        if not is_open:
            self._since = self._loop.time()
            self._timer = self._loop.call_later(_BLOCKED_AFTER, self._report)
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._is_reported:
            self._is_reported = False
            self._ended(self._loop.time() - self._since)

    def _report(self) -> None:
        self._timer, self._is_reported = None, True
        self._began()
