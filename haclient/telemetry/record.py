"""The recorder: a subscription to a factory's events that turns them into telemetry lines.

Rules
-----
* ``put`` only queues; everything else runs on the writer's thread (``writer``).
* An attempt is one line, at its end; parking writes none.  A successful one has no event of its own: it is
  the last one started at the endpoint that is now connected.  Pending attempts end as ``stopped`` when the
  connection gives up or is closed.
* ``lost`` begins an episode and carries its number, and so do all later lines.
* Lines are numbered per connection.  Dropped events (the queue was full) are numbered too, so that the gap is
  visible.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from haclient import events
from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import Failure
from haclient.events import Event, Stamp
from haclient.telemetry import writer
from haclient.telemetry.connection_tracker import ConnectionTracker, Ended
from haclient.telemetry.jsonl import Lines, Subject, Value, long
from haclient.telemetry.redact import Redactor
from haclient.telemetry.schema import Kind
from haclient.telemetry.settings import TelemetrySettings
from haclient.telemetry.writer import Alive

SOURCE = "haclient"
CONNECTED, RECONNECTING = "connected", "reconnecting"

Facts = dict[str, Value]


@dataclass(slots=True)
class _Connection:
    """The recorder's state of a connection."""

    client_id: str
    number: int
    subject: Subject
    outage: int = 1
    sequence: int = 0
    state: str = RECONNECTING
    endpoint: Endpoint | None = None
    generation: int | None = None
    tracker: ConnectionTracker = field(default_factory=ConnectionTracker)


class Recorder:
    """Writes the events of one factory's connections (a ``Subscription`` and a ``Source``).

    :param backoff_max: seconds, and ``backoff_strategy``: for the ``backoff`` lines.
    :param redactor: knows the secrets that must not be written.
    :ivar dropped: all events that found the queue full; ``reported``: the part already reported in a line.
    """

    def __init__(
        self,
        settings: TelemetrySettings,
        redactor: Redactor,
        *,
        backoff_max: float,
        backoff_strategy: str = "full",
    ) -> None:
        self.dropped = 0
        self.reported = 0
        self._channel = writer.channel(settings, SOURCE)
        self._redactor = redactor
        self._backoff_max = backoff_max
        self._backoff_strategy = backoff_strategy
        self._cluster: str | None = None
        self._lines: Lines = self._channel.lines()
        self._redacted = 0  # the redactor's revision that the attributes of the lines reflect
        self._connections: dict[int, _Connection] = {}
        self._channel.add(self)

    def put(self, event: Event) -> None:
        """Queue one event, without blocking."""
        self._channel.put(self, event)

    def end(self) -> None:
        """Do nothing: the queued events are still written."""

    # -- on the writer's thread ---------------------------------------------------------------

    def lines(self, entry: Event | Alive) -> Iterator[str]:
        """Return the lines of one event."""
        if self._redacted != self._redactor.revision:
            self._redacted = self._redactor.revision
            self._channel.withhold(self._redactor)
        if isinstance(entry, Alive):
            return self._alive(entry)
        connection = self._connection(entry.stamp)
        ended = connection.tracker.update(entry)
        # Dropped events are numbered too.
        connection.sequence += connection.tracker.dropped_events
        connection.outage = max(connection.outage, entry.stamp.episode)
        return _MAKERS[type(entry)](self, connection, entry, ended)

    def alive(self) -> Iterable[Alive]:
        """Return one entry for each connection that is neither closed nor given up."""
        return [Alive(number) for number in self._connections]

    def forked(self) -> None:
        """Drop the parent's connections in a forked child."""
        self.dropped = self.reported = 0
        self._lines = self._channel.lines()
        self._redacted = 0
        self._connections = {}

    def _connection(self, stamp: Stamp) -> _Connection:
        connection = self._connections.get(stamp.connection)
        if connection is None:
            constant: Facts = {
                "client_id": stamp.client_id,
                "connection": stamp.connection,
            }
            subject = self._lines.subject(f"{stamp.client_id}/{stamp.connection}", constant)
            connection = _Connection(stamp.client_id, stamp.connection, subject)
            self._connections[stamp.connection] = connection
        return connection

    def _line(
        self, kind: Kind, connection: _Connection, stamp: Stamp, endpoint: Endpoint | None, **facts: Value
    ) -> str:
        return self._write(kind, connection, stamp.time, stamp.monotonic, endpoint, facts)

    def _write(  # noqa: PLR0917  (the two callers are above and below)
        self,
        kind: Kind,
        connection: _Connection,
        now: float,
        monotonic: float,
        endpoint: Endpoint | None,
        facts: Facts,
    ) -> str:
        connection.sequence += 1
        everywhere: Facts = {
            "sequence": connection.sequence,
            "monotonic": monotonic,
            "cluster": self._cluster,
            "outage_id": f"{connection.client_id}/{connection.number}/{connection.outage}",
            "outage": connection.outage,
        }
        if endpoint is not None:
            everywhere["server_address"] = self._redactor.name(endpoint.host)
            everywhere["server_port"] = endpoint.port
        return self._lines.line(kind, connection.subject, now, everywhere | facts)

    # -- one for each kind of event -----------------------------------------------------------

    def _nothing(
        self,
        _connection: _Connection,
        _event: events.AttemptStarted
        | events.Parked
        | events.LinkRetrying
        | events.Blocked
        | events.Unblocked
        | events.DeliveryStale,
        _ended: list[Ended],
    ) -> Iterator[str]:
        # No line, so no gap in the numbers either.
        return iter(())

    def _attempt_failed(
        self, connection: _Connection, event: events.AttemptFailed, ended: list[Ended]
    ) -> Iterator[str]:
        return self._attempts(connection, event.stamp, ended)

    def _redirected(
        self, connection: _Connection, event: events.Redirected, ended: list[Ended]
    ) -> Iterator[str]:
        yield from self._attempts(connection, event.stamp, ended)
        yield self._line(
            Kind.REDIRECT,
            connection,
            event.stamp,
            event.by,
            redirect_address=self._redactor.name(event.target.host),
            redirect_port=event.target.port,
            redirect_followed=event.followed,
            reason=self._redactor.text(event.detail),
        )

    def _backing_off(
        self, connection: _Connection, event: events.BackingOff, _ended: list[Ended]
    ) -> Iterator[str]:
        yield self._line(
            Kind.BACKOFF,
            connection,
            event.stamp,
            None,
            backoff_base=event.base,
            backoff_floor=event.floor,
            backoff_delay=event.delay,
            backoff_round=event.round,
            backoff_strategy=self._backoff_strategy,
            backoff_max=self._backoff_max,
            retry_after=event.retry_after,
        )

    def _connected(
        self, connection: _Connection, event: events.Connected | events.Reconnected, ended: list[Ended]
    ) -> Iterator[str]:
        self._cluster = self._redactor.name(event.cluster) or self._cluster
        connection.state, connection.endpoint = CONNECTED, event.endpoint
        connection.generation = long(event.generation)
        yield from self._attempts(connection, event.stamp, ended, connection.generation)
        yield self._line(
            Kind.CONNECTED,
            connection,
            event.stamp,
            event.endpoint,
            outage_duration=event.duration,
            attempt=event.attempts,
            generation=connection.generation,
            replayed=event.replayed if isinstance(event, events.Reconnected) else 0,
        )

    def _disconnected(
        self, connection: _Connection, event: events.Disconnected, _ended: list[Ended]
    ) -> Iterator[str]:
        connection.state = RECONNECTING
        connection.outage = event.stamp.episode + 1
        yield self._line(
            Kind.LOST,
            connection,
            event.stamp,
            event.endpoint,
            condition=self._redactor.condition(event.condition),
            reason=self._redactor.close_reason(event.reason, event.condition),
            close_kind=event.kind.value,
            generation=connection.generation,
            unsettled=event.unsettled,
        )

    def _unsettled(
        self, connection: _Connection, event: events.Unsettled, _ended: list[Ended]
    ) -> Iterator[str]:
        # The reason may quote the peer, so it is omitted.
        queue = self._redactor.name(event.address)
        yield self._line(Kind.UNSETTLED, connection, event.stamp, None, unsettled=event.count, queue=queue)

    def _generations_forgotten(
        self, connection: _Connection, event: events.GenerationsForgotten, _ended: list[Ended]
    ) -> Iterator[str]:
        yield self._line(
            Kind.GENERATIONS_FORGOTTEN,
            connection,
            event.stamp,
            event.endpoint,
            generation=long(event.generation),
        )

    def _gave_up(self, connection: _Connection, event: events.GaveUp, ended: list[Ended]) -> Iterator[str]:
        yield from self._attempts(connection, event.stamp, ended)
        failure = event.last
        yield self._line(
            Kind.GAVE_UP,
            connection,
            event.stamp,
            None,
            outage_duration=event.duration,
            attempt=event.attempts,
            error_type=None if failure is None else failure.kind.value,
            condition=None if failure is None else self._redactor.condition(failure.condition),
            reason=self._redactor.text(event.cause),
        )
        del self._connections[connection.number]

    def _closed(self, connection: _Connection, event: events.Closed, ended: list[Ended]) -> Iterator[str]:
        yield from self._attempts(connection, event.stamp, ended)
        yield self._line(Kind.CLOSED, connection, event.stamp, connection.endpoint)
        del self._connections[connection.number]

    def _alive(self, alive: Alive) -> Iterator[str]:
        connection = self._connections.get(alive.connection)
        if connection is None:
            return
        facts: Facts = {"state": connection.state}
        endpoint = None
        if connection.state == CONNECTED:
            endpoint, facts["generation"] = connection.endpoint, connection.generation
        yield self._write(Kind.ALIVE, connection, time.time(), time.monotonic(), endpoint, facts)

    # -- attempts -----------------------------------------------------------------------------

    def _attempts(
        self, connection: _Connection, stamp: Stamp, ended: list[Ended], generation: int | None = None
    ) -> Iterator[str]:
        """Yield a line for each attempt that ended.

        :param generation: of the primary, for an attempt that connected.
        """
        for each in ended:
            yield self._line(
                Kind.ATTEMPT,
                connection,
                stamp,
                each.endpoint,
                attempt=each.number,
                attempt_duration=each.duration,
                **({"generation": generation} if each.failure is None else self._facts_of(each.failure)),
            )

    def _facts_of(self, failure: Failure) -> Facts:
        return {
            "error_type": failure.kind.value,
            "condition": self._redactor.condition(failure.condition),
            "reason": self._redactor.detail(failure),
            "retry_after": failure.retry_after,
        }


_MAKERS: dict[type[Any], Callable[[Recorder, _Connection, Any, list[Ended]], Iterator[str]]] = {
    events.AttemptStarted: Recorder._nothing,  # noqa: SLF001
    events.AttemptFailed: Recorder._attempt_failed,  # noqa: SLF001
    events.Parked: Recorder._nothing,  # noqa: SLF001
    events.Redirected: Recorder._redirected,  # noqa: SLF001
    events.LinkRetrying: Recorder._nothing,  # noqa: SLF001
    events.GenerationsForgotten: Recorder._generations_forgotten,  # noqa: SLF001
    events.Blocked: Recorder._nothing,  # noqa: SLF001
    events.Unblocked: Recorder._nothing,  # noqa: SLF001
    events.Unsettled: Recorder._unsettled,  # noqa: SLF001
    events.DeliveryStale: Recorder._nothing,  # noqa: SLF001
    events.BackingOff: Recorder._backing_off,  # noqa: SLF001
    events.Connected: Recorder._connected,  # noqa: SLF001
    events.Reconnected: Recorder._connected,  # noqa: SLF001
    events.Disconnected: Recorder._disconnected,  # noqa: SLF001
    events.GaveUp: Recorder._gave_up,  # noqa: SLF001
    events.Closed: Recorder._closed,  # noqa: SLF001
}
