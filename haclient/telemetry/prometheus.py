"""A Prometheus sink: counters, histograms and two gauges of connections.

    connect(url, on_event=PrometheusSink())

Names follow Prometheus's conventions: base units, ``_total`` for counters, one namespace.  Labels have few
values (``sink``): an ``endpoint`` is ``host:port``, a ``result`` is ``connected`` or a kind of failure.
A sink may serve all factories of a process; a second one on the same registry needs another namespace.

Source: prometheus.io, "Metric and label naming" and "Instrumentation"; needs the extra ``metrics``.
"""

from __future__ import annotations

from haclient.telemetry.connection_tracker import Ended
from haclient.telemetry.event_counter import EndpointLabel, EventCounter, Labels
from haclient.telemetry.redact import Redactor
from haclient.telemetry.sink import OTHER, EventCallback
from haclient.version import install_extra

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
except ModuleNotFoundError as error:
    message = f"{__name__} needs prometheus-client: {install_extra('metrics')}"
    raise ModuleNotFoundError(message, name=error.name) from error

# Seconds: from a dial on the same host to the longest deadline used in practice.
DURATIONS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class PrometheusSink:
    """Counts the events of factories; give it as ``on_event``.

    :param registry: where the metrics are registered.
    :param namespace: the first part of their names.
    :raises ValueError: when the registry has such metrics already.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY, *, namespace: str = "haclient") -> None:
        self._measures = _Measures(registry, namespace)
        self._labels = Labels()

    def listener(self, redactor: Redactor) -> EventCallback:
        """See ``sink.Sink``."""
        return EventCounter(self._measures, self._labels, redactor)


class _Measures:
    def __init__(self, registry: CollectorRegistry, namespace: str) -> None:
        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(name, meaning, labels, namespace=namespace, registry=registry)

        def histogram(name: str, meaning: str, *labels: str) -> Histogram:
            return Histogram(
                name,
                meaning,
                labels,
                namespace=namespace,
                unit="seconds",
                registry=registry,
                buckets=DURATIONS,
            )

        self._attempts = counter("attempts_total", "Attempts that ended.", "endpoint", "result")
        self._attempt_seconds = histogram("attempt_duration_seconds", "From the dial to the end.", "result")
        self._episode_seconds = histogram(
            "episode_duration_seconds", "From the loss, or the start, to a usable connection.", "episode"
        )
        self._gave_up = counter("gave_up_total", "Episodes without a primary.", "episode", "cause")
        self._lost = counter("connections_lost_total", "Connections lost.", "endpoint", "condition")
        self._unsettled = counter("unsettled_messages_total", "Messages that were unsettled at a loss.")
        self._replayed = counter("replayed_messages_total", "Messages sent again after a loss.")
        self._redirects = counter("redirects_total", "Redirects by passive members.", "followed")
        self._backoff = histogram("backoff_delay_seconds", "Waits between two rounds.", "retry_after")
        self._blocked_seconds = histogram("blocked_duration_seconds", "While the primary took no messages.")
        self._dropped_events = counter("dropped_events_total", "Events that this sink was too slow for.")

        def gauge(name: str, meaning: str, *labels: str) -> Gauge:
            return Gauge(
                name, meaning, labels, namespace=namespace, registry=registry, multiprocess_mode="livesum"
            )

        self._connections = gauge("connections", "Connections by their state.", "state")
        self._blocked = gauge("blocked_connections", "Connections whose primary takes no messages.")

    def attempt(self, label: EndpointLabel, ended: Ended) -> None:
        self._attempts.labels(_name(label), ended.result).inc()
        if ended.duration is not None:
            self._attempt_seconds.labels(ended.result).observe(ended.duration)

    def episode(self, kind: str, duration: float, cause: str | None) -> None:
        if cause is None:
            self._episode_seconds.labels(kind).observe(duration)
        else:
            self._gave_up.labels(kind, cause).inc()

    def disconnected(self, label: EndpointLabel, condition: str | None, unsettled: int) -> None:
        self._lost.labels(_name(label), condition or "").inc()
        self._unsettled.inc(unsettled)

    def redirected(self, *, followed: bool) -> None:
        self._redirects.labels(_bool_label(value=followed)).inc()

    def backing_off(self, delay: float, *, server_requested: bool) -> None:
        self._backoff.labels(_bool_label(value=server_requested)).observe(delay)

    def replayed(self, messages: int) -> None:
        self._replayed.inc(messages)

    def blocked(self) -> None:
        self._blocked.inc()

    def unblocked(self, duration: float) -> None:
        self._blocked.dec()
        self._blocked_seconds.observe(duration)

    def state(self, old: str | None, new: str | None) -> None:
        if old is not None:
            self._connections.labels(old).dec()
        if new is not None:
            self._connections.labels(new).inc()

    def dropped_events(self, count: int) -> None:
        self._dropped_events.inc(count)


def _name(label: EndpointLabel) -> str:
    return f"{label.host}:{label.port}" if label.port else OTHER


def _bool_label(*, value: bool) -> str:
    return "true" if value else "false"
