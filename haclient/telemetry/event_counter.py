"""Events as measurements, for whatever library counts them.

A connection is in one of two states that are counted; it is ``RECONNECTING`` before its first connect too, as
in the telemetry files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from haclient import events
from haclient.cluster_url.endpoint import Endpoint
from haclient.events import Event
from haclient.telemetry.connection_tracker import CONNECTED, Ended, Track
from haclient.telemetry.redact import Veil
from haclient.telemetry.sink import OTHER, Names

RECONNECTING = "reconnecting"
CONNECT, RECONNECT = "connect", "reconnect"


@dataclass(frozen=True, slots=True)
class Place:
    """An endpoint, as a label may name it; port 0 stands for those without a name of their own."""

    host: str
    port: int


class Measures(Protocol):
    """What is measured.  Durations are seconds."""

    def attempt(self, place: Place, ended: Ended) -> None:
        """An attempt is over."""

    def episode(self, kind: str, duration: float, cause: str | None) -> None:
        """An episode is over.

        :param kind: ``CONNECT`` for the first of a connection, or ``RECONNECT``.
        :param cause: why it gave up; ``None`` for a usable connection.
        """

    def lost(self, place: Place, condition: str | None, unsettled: int) -> None:
        """A connection was lost."""

    def redirected(self, *, followed: bool) -> None:
        """A passive member named another endpoint."""

    def backing_off(self, delay: float, *, hinted: bool) -> None:
        """A wait between two rounds began."""

    def replayed(self, messages: int) -> None:
        """Messages are sent again."""

    def state(self, old: str | None, new: str | None) -> None:
        """A connection is in another state; ``None`` is before its first event, and after its end."""

    def unheard(self, count: int) -> None:
        """Events were dropped, because a listener was too slow."""


@dataclass(slots=True)
class Labels:
    """The values that labels have so far; one for all listeners of a sink."""

    places: Names = field(default_factory=Names)
    conditions: Names = field(default_factory=Names)

    def place(self, endpoint: Endpoint, veil: Veil) -> Place:
        """An endpoint as a label."""
        host = veil.name(endpoint.host)
        if host is None or self.places.known(f"{host}:{endpoint.port}") == OTHER:
            return Place(OTHER, 0)
        return Place(host, endpoint.port)

    def condition(self, condition: str | None, veil: Veil) -> str | None:
        """A condition as a label."""
        return None if condition is None else self.conditions.known(veil.condition(condition))


@dataclass(slots=True)
class _Connection:
    track: Track = field(default_factory=Track)
    state: str | None = None


class Tally:
    """The listener of one factory."""

    def __init__(self, measures: Measures, labels: Labels, veil: Veil) -> None:
        self._measures = measures
        self._labels = labels
        self._veil = veil
        self._connections: dict[int, _Connection] = {}

    def __call__(self, event: Event) -> None:
        """Measure one event."""
        measures = self._measures
        connection = self._connections.setdefault(event.stamp.connection, _Connection())
        for ended in connection.track.take(event):
            measures.attempt(self._labels.place(ended.endpoint, self._veil), ended)
        if connection.track.unheard:
            measures.unheard(connection.track.unheard)
        self._move(connection, event)
        match event:
            case events.Connected():
                measures.episode(CONNECT, event.duration, None)
            case events.Reconnected():
                measures.episode(RECONNECT, event.duration, None)
                measures.replayed(event.replayed)
            case events.GaveUp():
                measures.episode(kind_of(event), event.duration, event.cause)
            case events.Lost():
                place = self._labels.place(event.endpoint, self._veil)
                condition = self._labels.condition(event.condition, self._veil)
                measures.lost(place, condition, event.unsettled)
            case events.Redirected():
                measures.redirected(followed=event.followed)
            case events.BackingOff():
                measures.backing_off(event.delay, hinted=event.hint is not None)

    def _move(self, connection: _Connection, event: Event) -> None:
        new = connection.state or RECONNECTING
        match event:
            case events.Connected() | events.Reconnected():
                new = CONNECTED
            case events.Lost():
                new = RECONNECTING
            case events.Closed() | events.GaveUp():
                del self._connections[event.stamp.connection]
                self._measures.state(connection.state, None)
                return
        if new != connection.state:
            self._measures.state(connection.state, new)
            connection.state = new


def kind_of(event: Event) -> str:
    """Which kind of episode an event is part of."""
    return CONNECT if event.stamp.episode <= 1 else RECONNECT
