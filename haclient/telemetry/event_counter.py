"""Turns events into measurements for a metrics library.

A connection is counted in one of two states.  As in the telemetry files, it is ``RECONNECTING`` even before
its first connect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from haclient import events
from haclient.cluster_url.endpoint import Endpoint
from haclient.events import Event
from haclient.telemetry.connection_tracker import CONNECTED, ConnectionTracker, Ended
from haclient.telemetry.redact import Redactor
from haclient.telemetry.sink import OTHER, Names

RECONNECTING = "reconnecting"
_ENDS_OF_BLOCK = (events.Unblocked, events.Disconnected, events.GaveUp, events.Closed)
CONNECT, RECONNECT = "connect", "reconnect"


@dataclass(frozen=True, slots=True)
class EndpointLabel:
    """An endpoint as a label; port 0 stands for all endpoints without a label of their own."""

    host: str
    port: int


class Measures(Protocol):
    """The measurements.  Durations are seconds."""

    def attempt(self, label: EndpointLabel, ended: Ended) -> None:
        """Measure an attempt that ended."""

    def episode(self, kind: str, duration: float, cause: str | None) -> None:
        """Measure an episode that ended.

        :param kind: ``CONNECT`` for the first of a connection, or ``RECONNECT``.
        :param cause: why it gave up; ``None`` for a usable connection.
        """

    def disconnected(self, label: EndpointLabel, condition: str | None, unsettled: int) -> None:
        """Count a lost connection."""

    def redirected(self, *, followed: bool) -> None:
        """Count a redirect by a passive member."""

    def backing_off(self, delay: float, *, server_requested: bool) -> None:
        """Measure a wait between two rounds, at its start."""

    def replayed(self, messages: int) -> None:
        """Count messages sent again."""

    def blocked(self) -> None:
        """Count a connection whose primary accepts no messages."""

    def unblocked(self, duration: float) -> None:
        """Measure how long a primary accepted no messages, when that or the connection ended."""

    def state(self, old: str | None, new: str | None) -> None:
        """Count a change of state; ``None`` is before the first event of a connection, and after its end."""

    def dropped_events(self, count: int) -> None:
        """Count events dropped because a listener was too slow."""


@dataclass(slots=True)
class Labels:
    """The label values in use so far, shared by all listeners of a sink."""

    endpoints: Names = field(default_factory=Names)
    conditions: Names = field(default_factory=Names)

    def endpoint(self, endpoint: Endpoint, redactor: Redactor) -> EndpointLabel:
        """Return an endpoint as a label."""
        host = redactor.name(endpoint.host)
        if host is None or self.endpoints.known(f"{host}:{endpoint.port}") == OTHER:
            return EndpointLabel(OTHER, 0)
        return EndpointLabel(host, endpoint.port)

    def condition(self, condition: str | None, redactor: Redactor) -> str | None:
        """Return a condition as a label."""
        return None if condition is None else self.conditions.known(redactor.condition(condition))


@dataclass(slots=True)
class _Connection:
    tracker: ConnectionTracker = field(default_factory=ConnectionTracker)
    state: str | None = None
    blocked_at: float | None = None


class EventCounter:
    """The listener of one factory."""

    def __init__(self, measures: Measures, labels: Labels, redactor: Redactor) -> None:
        self._measures = measures
        self._labels = labels
        self._redactor = redactor
        self._connections: dict[int, _Connection] = {}

    def __call__(self, event: Event) -> None:
        """Measure one event."""
        measures = self._measures
        connection = self._connections.setdefault(event.stamp.connection, _Connection())
        for ended in connection.tracker.update(event):
            measures.attempt(self._labels.endpoint(ended.endpoint, self._redactor), ended)
        if connection.tracker.dropped_events:
            measures.dropped_events(connection.tracker.dropped_events)
        self._move(connection, event)
        self._block(connection, event)
        match event:
            case events.Connected():
                measures.episode(CONNECT, event.duration, None)
            case events.Reconnected():
                if not event.planned:
                    measures.episode(RECONNECT, event.duration, None)
                measures.replayed(event.replayed)
            case events.GaveUp():
                measures.episode(kind_of(event), event.duration, event.cause)
            case events.Disconnected() if event.kind is not events.LossKind.RENEWAL:
                label = self._labels.endpoint(event.endpoint, self._redactor)
                condition = self._labels.condition(event.condition, self._redactor)
                measures.disconnected(label, condition, event.unsettled)
            case events.Redirected():
                measures.redirected(followed=event.followed)
            case events.BackingOff():
                measures.backing_off(event.delay, server_requested=event.retry_after is not None)

    def _block(self, connection: _Connection, event: Event) -> None:
        now, since = event.stamp.monotonic, connection.blocked_at
        if isinstance(event, events.Blocked):
            connection.blocked_at = now
            if since is None:
                self._measures.blocked()
        elif since is not None and isinstance(event, _ENDS_OF_BLOCK):
            connection.blocked_at = None
            self._measures.unblocked(now - since)

    def _move(self, connection: _Connection, event: Event) -> None:
        new = connection.state or RECONNECTING
        match event:
            case events.Connected() | events.Reconnected():
                new = CONNECTED
            case events.Disconnected():
                new = RECONNECTING
            case events.Closed() | events.GaveUp():
                del self._connections[event.stamp.connection]
                self._measures.state(connection.state, None)
                return
        if new != connection.state:
            self._measures.state(connection.state, new)
            connection.state = new


def kind_of(event: Event) -> str:
    """Return the kind of an event's episode."""
    return CONNECT if event.stamp.episode <= 1 else RECONNECT
