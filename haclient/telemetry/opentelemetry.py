"""An OpenTelemetry sink: metrics of connections, and a span for each episode.

    connect(url, on_event=OpenTelemetrySink())

The span of a connection's first episode is ``connect``, of the others ``reconnect``.  It lasts from the lost
connection (or the first attempt) to the next usable connection, with an event for each attempt, redirect and
wait.  Times follow the events' monotonic clock, so a change of the wall clock distorts no span.

Attributes have OpenTelemetry's names if they exist, otherwise the names in the telemetry files (``schema``).
Spans and traces of messages: ``haclient.tracing``.

Source: OpenTelemetry semantic conventions 1.43, messaging and general; needs the extra ``metrics``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from haclient import events
from haclient.cluster_url.endpoint import Endpoint
from haclient.events import Event, Stamp
from haclient.telemetry.connection_tracker import ConnectionTracker, Ended
from haclient.telemetry.event_counter import RECONNECT, EndpointLabel, EventCounter, Labels, kind_of
from haclient.telemetry.jsonl import long
from haclient.telemetry.redact import Redactor
from haclient.telemetry.sink import EventCallback
from haclient.version import install_extra

try:
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context
except ModuleNotFoundError as error:
    message = f"{__name__} needs opentelemetry-api: {install_extra('metrics')}"
    raise ModuleNotFoundError(message, name=error.name) from error

SCOPE = "haclient"
# A custom value, because the conventions list products, not the protocol.
SYSTEM = {"messaging.system": "amqp"}
# Seconds: the boundaries of the conventions, and higher ones for episodes.
OPERATION_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
EPISODE_SECONDS = (*OPERATION_SECONDS, 30.0, 60.0, 300.0)

Attribute = str | int | float | bool
Attributes = dict[str, Attribute]


class OpenTelemetrySink:
    """Measures and traces the events of factories; give it as ``on_event``.

    :param tracer_provider: makes the spans; the global one by default.
    :param meter_provider: makes the instruments; the global one by default.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._measures = _Measures(metrics.get_meter(SCOPE, meter_provider=meter_provider))
        self._labels = Labels()

    def listener(self, redactor: Redactor) -> EventCallback:
        """See ``sink.Sink``."""
        counter = EventCounter(self._measures, self._labels, redactor)
        episodes = _Episodes(self._tracer, redactor)

        def listen(event: Event) -> None:
            try:
                counter(event)
            finally:
                episodes(event)

        return listen


# -- metrics --------------------------------------------------------------------------------------


class _Measures:
    def __init__(self, meter: metrics.Meter) -> None:
        def name(suffix: str) -> str:
            return f"haclient.connection.{suffix}"

        self._attempts = meter.create_histogram(
            name("attempt.duration"),
            "s",
            "From the dial of an attempt to its end.",
            explicit_bucket_boundaries_advisory=OPERATION_SECONDS,
        )
        self._episodes = meter.create_histogram(
            name("episode.duration"),
            "s",
            "From the loss, or the start, to a usable connection, or to giving up.",
            explicit_bucket_boundaries_advisory=EPISODE_SECONDS,
        )
        self._backoff = meter.create_histogram(
            name("backoff.delay"),
            "s",
            "Waits between two rounds.",
            explicit_bucket_boundaries_advisory=OPERATION_SECONDS,
        )
        self._lost = meter.create_counter(name("lost"), "{connection}", "Connections lost.")
        self._unsettled = meter.create_counter(
            name("unsettled"), "{message}", "Messages that were unsettled at a loss."
        )
        self._replayed = meter.create_counter(
            name("replayed"), "{message}", "Messages sent again after a loss."
        )
        self._redirects = meter.create_counter(
            name("redirects"), "{redirect}", "Redirects by passive members."
        )
        self._dropped_events = meter.create_counter(
            name("dropped"), "{event}", "Events that this sink was too slow for."
        )
        self._count = meter.create_up_down_counter(
            name("count"), "{connection}", "Connections by their state."
        )
        self._blocked = meter.create_up_down_counter(
            name("blocked"), "{connection}", "Connections whose primary takes no messages."
        )
        self._blocked_seconds = meter.create_histogram(
            name("blocked.duration"),
            "s",
            "While the primary took no messages.",
            explicit_bucket_boundaries_advisory=EPISODE_SECONDS,
        )

    def attempt(self, label: EndpointLabel, ended: Ended) -> None:
        if ended.duration is not None:
            self._attempts.record(ended.duration, {**_server(label), **_error(ended)})

    def episode(self, kind: str, duration: float, cause: str | None) -> None:
        failed = {} if cause is None else {"error.type": cause}
        self._episodes.record(duration, {**SYSTEM, "haclient.episode": kind, **failed})

    def disconnected(self, label: EndpointLabel, condition: str | None, unsettled: int) -> None:
        why = {} if condition is None else {"haclient.close.condition": condition}
        self._lost.add(1, {**_server(label), **why})
        self._unsettled.add(unsettled, SYSTEM)

    def redirected(self, *, followed: bool) -> None:
        self._redirects.add(1, {**SYSTEM, "haclient.redirect.followed": followed})

    def backing_off(self, delay: float, *, server_requested: bool) -> None:
        self._backoff.record(delay, {**SYSTEM, "haclient.backoff.retry_after": server_requested})

    def replayed(self, messages: int) -> None:
        self._replayed.add(messages, SYSTEM)

    def blocked(self) -> None:
        self._blocked.add(1, SYSTEM)

    def unblocked(self, duration: float) -> None:
        self._blocked.add(-1, SYSTEM)
        self._blocked_seconds.record(duration, SYSTEM)

    def state(self, old: str | None, new: str | None) -> None:
        for state, change in ((old, -1), (new, 1)):
            if state is not None:
                self._count.add(change, {**SYSTEM, "haclient.state": state})

    def dropped_events(self, count: int) -> None:
        self._dropped_events.add(count, SYSTEM)


def _server(label: EndpointLabel) -> Attributes:
    port: Attributes = {"server.port": label.port} if label.port else {}
    return {**SYSTEM, "server.address": label.host, **port}


def _error(ended: Ended) -> Attributes:
    return {} if ended.failure is None else {"error.type": ended.result}


# -- spans ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Episode:
    """A running episode: its span, and the clock of its events."""

    span: trace.Span
    time: float
    monotonic: float

    def at(self, monotonic: float) -> int:
        """Return nanoseconds since the Unix epoch."""
        return int((self.time + monotonic - self.monotonic) * 1e9)

    def add(self, name: str, monotonic: float, attributes: Mapping[str, Attribute | None]) -> None:
        self.span.add_event(name, _present(attributes), self.at(monotonic))


@dataclass(slots=True)
class _Connection:
    tracker: ConnectionTracker = field(default_factory=ConnectionTracker)
    episode: _Episode | None = None
    usable: bool = False

    def end(self, stamp: Stamp) -> None:
        """End the span of the episode."""
        if self.episode is not None:
            self.episode.span.end(self.episode.at(stamp.monotonic))
            self.episode = None


_OUTSIDE_EPISODES = (
    events.LinkRetrying,
    events.Blocked,
    events.Unblocked,
    events.Unsettled,
    events.DeliveryStale,
)


class _Episodes:
    """Makes the spans of one factory."""

    def __init__(self, tracer: trace.Tracer, redactor: Redactor) -> None:
        self._tracer = tracer
        self._redactor = redactor
        self._connections: dict[int, _Connection] = {}

    def __call__(self, event: Event) -> None:
        """Write one event into the span of its episode."""
        connection = self._connections.setdefault(event.stamp.connection, _Connection())
        ended = connection.tracker.update(event)
        if isinstance(event, events.Disconnected):
            self._disconnected(connection, event)
            return
        if isinstance(event, _OUTSIDE_EPISODES):
            return
        if connection.episode is None and not connection.usable and not isinstance(event, events.Closed):
            connection.episode = self._start(kind_of(event), event.stamp, event.stamp.episode)
        if connection.episode is not None:
            for each in ended:
                connection.episode.add("attempt", each.ended, self._attempt(each))
            self._write(connection, connection.episode, event)
        if isinstance(event, events.Closed | events.GaveUp):
            del self._connections[event.stamp.connection]

    def _start(self, kind: str, stamp: Stamp, episode: int) -> _Episode:
        attributes: Attributes = {
            **SYSTEM,
            "messaging.client.id": stamp.client_id,
            "haclient.connection.number": stamp.connection,
            "haclient.outage.number": episode,
        }
        span = self._tracer.start_span(
            kind,
            Context(),  # an episode belongs to no request
            trace.SpanKind.CLIENT,
            attributes,
            start_time=int(stamp.time * 1e9),
        )
        return _Episode(span, stamp.time, stamp.monotonic)

    def _disconnected(self, connection: _Connection, event: events.Disconnected) -> None:
        connection.end(event.stamp)  # in case the event of its end was dropped
        connection.usable = False
        connection.episode = self._start(RECONNECT, event.stamp, event.stamp.episode + 1)
        facts = {
            **self._server_of(event.endpoint),
            "haclient.close.condition": self._redactor.condition(event.condition),
            "haclient.unsettled": event.unsettled,
        }
        connection.episode.add("lost", event.stamp.monotonic, facts)

    def _write(self, connection: _Connection, episode: _Episode, event: Event) -> None:
        now = event.stamp.monotonic
        match event:
            case events.Parked():
                episode.add(
                    "parked",
                    now,
                    {**self._server_of(event.endpoint), "haclient.attempt.number": event.attempt},
                )
            case events.Redirected():
                episode.add("redirect", now, self._redirect(event))
            case events.BackingOff():
                episode.add("backoff", now, _backoff(event))
            case events.Connected() | events.Reconnected():
                episode.span.set_attributes(_present(self._connected(event)))
                connection.end(event.stamp)
                connection.usable = True
            case events.GaveUp():
                episode.span.set_attributes(
                    {"error.type": event.cause, "haclient.attempt.number": event.attempts}
                )
                episode.span.set_status(trace.StatusCode.ERROR, event.cause)
                connection.end(event.stamp)
            case events.Closed():
                episode.add("closed", now, {})
                connection.end(event.stamp)

    def _server_of(self, endpoint: Endpoint) -> dict[str, Attribute | None]:
        return {"server.address": self._redactor.name(endpoint.host), "server.port": endpoint.port}

    def _attempt(self, ended: Ended) -> dict[str, Attribute | None]:
        attempt: dict[str, Attribute | None] = {
            **self._server_of(ended.endpoint),
            **_error(ended),
            "haclient.attempt.number": ended.number,
            "haclient.attempt.duration": ended.duration,
        }
        if ended.failure is not None:
            attempt["haclient.close.condition"] = self._redactor.condition(ended.failure.condition)
            attempt["haclient.retry_after"] = ended.failure.retry_after
        return attempt

    def _redirect(self, event: events.Redirected) -> dict[str, Attribute | None]:
        return {
            **self._server_of(event.by),
            "haclient.redirect.address": self._redactor.name(event.target.host),
            "haclient.redirect.port": event.target.port,
            "haclient.redirect.followed": event.followed,
        }

    def _connected(self, event: events.Connected | events.Reconnected) -> dict[str, Attribute | None]:
        return {
            **self._server_of(event.endpoint),
            "haclient.cluster": self._redactor.name(event.cluster),
            "haclient.generation": long(event.generation),
            "haclient.attempt.number": event.attempts,
            "haclient.replayed": event.replayed if isinstance(event, events.Reconnected) else 0,
        }


def _backoff(event: events.BackingOff) -> dict[str, Attribute | None]:
    return {
        "haclient.backoff.delay": event.delay,
        "haclient.backoff.base": event.base,
        "haclient.backoff.round": event.round,
        "haclient.retry_after": event.retry_after,
    }


def _present(attributes: Mapping[str, Attribute | None]) -> Attributes:
    return {name: value for name, value in attributes.items() if value is not None}
