"""Derives the end of each attempt of a connection from its events.

A successful attempt has no event of its own: it is the last one started at the endpoint that is now
connected.  Pending attempts end when the connection gives up or is closed.  After dropped events, and in a
new episode, no attempt counts as pending.
"""

from __future__ import annotations

from dataclasses import dataclass

from haclient import events
from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import AttemptRecord, Failure, FailureReason
from haclient.events import Event

CONNECTED = "connected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An attempt that ended.

    :param number: within the episode; 0 for a name without an address, which was not dialled.
    :param began: monotonic seconds, as ``ended``.
    :param failure: why it failed; ``None`` for an attempt that connected.
    """

    number: int
    endpoint: Endpoint
    began: float
    ended: float
    failure: Failure | None = None

    @property
    def duration(self) -> float | None:
        """Return seconds; ``None`` if nothing was dialled."""
        return self.ended - self.began if self.number else None

    @property
    def result(self) -> str:
        """Return ``CONNECTED``, or the kind of failure."""
        return CONNECTED if self.failure is None else self.failure.kind.value


class ConnectionTracker:
    """The attempts of one connection.

    :ivar dropped_events: events that were dropped just before the last one.
    """

    def __init__(self) -> None:
        self.dropped_events = 0
        self._sequence = 0
        self._episode = 0
        self._pending: dict[int, events.AttemptStarted] = {}

    def update(self, event: Event) -> list[Ended]:
        """Read the next event; return the attempts that ended with it."""
        stamp = event.stamp
        self.dropped_events = stamp.sequence - self._sequence - 1
        self._sequence = stamp.sequence
        if self.dropped_events or stamp.episode > self._episode:
            self._pending.clear()
        self._episode = stamp.episode
        match event:
            case events.AttemptStarted():
                self._pending[event.attempt] = event
            case events.AttemptFailed(record=record):
                return [self._failed(record)]
            case events.Redirected(record=record) if (
                record and record.failure.kind is FailureReason.REDIRECTED
            ):
                return [self._failed(record)]
            case events.Connected() | events.Reconnected():
                return self._succeeded(event)
            case events.GaveUp() | events.Closed():
                return self._stopped(stamp.monotonic)
            case events.Disconnected():
                self._pending.clear()
        return []

    def _failed(self, record: AttemptRecord) -> Ended:
        self._pending.pop(record.number, None)
        return Ended(
            number=record.number,
            endpoint=record.endpoint,
            began=record.started,
            ended=record.ended,
            failure=record.failure,
        )

    def _succeeded(self, event: events.Connected | events.Reconnected) -> list[Ended]:
        for number, started in reversed(self._pending.items()):
            if started.endpoint == event.endpoint:
                del self._pending[number]
                return [_ended(started, event.stamp.monotonic, None)]
        return []

    def _stopped(self, now: float) -> list[Ended]:
        stopped = Failure(kind=FailureReason.STOPPED)
        ended = [_ended(started, now, stopped) for started in self._pending.values()]
        self._pending.clear()
        return ended


def _ended(started: events.AttemptStarted, now: float, failure: Failure | None) -> Ended:
    return Ended(
        number=started.attempt,
        endpoint=started.endpoint,
        began=started.stamp.monotonic,
        ended=now,
        failure=failure,
    )
