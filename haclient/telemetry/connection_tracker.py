"""What a listener must remember of one connection, to know which attempt ended how.

A successful attempt has no event of its own: it is the one that was started last at the endpoint that is
connected now.  Those under way when the connection gives up or is closed have ended then.  After events
that were lost, and in a new episode, nothing is under way that is known.
"""

from __future__ import annotations

from dataclasses import dataclass

from haclient import events
from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import AttemptRecord, FailureReason
from haclient.events import Event

CONNECTED = "connected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An attempt that is over.

    :param number: within the episode; 0 for a name without an address, which was not dialled.
    :param result: ``CONNECTED``, or the kind of miss.
    :param began: monotonic seconds, as ``ended``.
    :param condition: the AMQP condition as the peer wrote it.
    :param hint: seconds that the server asked to wait.
    """

    number: int
    endpoint: Endpoint
    result: str
    began: float
    ended: float
    condition: str | None = None
    hint: float | None = None

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.ended - self.began


class Track:
    """The attempts of one connection.

    :ivar unheard: events that were lost just before the last one.
    """

    def __init__(self) -> None:
        self.unheard = 0
        self._sequence = 0
        self._episode = 0
        self._under_way: dict[int, events.AttemptStarted] = {}

    def take(self, event: Event) -> list[Ended]:
        """Go on with the next event; the attempts that ended with it."""
        stamp = event.stamp
        self.unheard = stamp.sequence - self._sequence - 1
        self._sequence = stamp.sequence
        if self.unheard or stamp.episode > self._episode:
            self._under_way.clear()
        self._episode = stamp.episode
        match event:
            case events.AttemptStarted():
                self._under_way[event.attempt] = event
            case events.AttemptFailed(record=record):
                return [self._missed(record)]
            case events.Redirected(record=record) if record and record.miss.kind is FailureReason.REDIRECTED:
                return [self._missed(record)]
            case events.Connected() | events.Reconnected():
                return self._succeeded(event)
            case events.GaveUp() | events.Closed():
                return self._stopped(stamp.monotonic)
            case events.Lost():
                self._under_way.clear()
        return []

    def _missed(self, record: AttemptRecord) -> Ended:
        self._under_way.pop(record.number, None)
        miss = record.miss
        return Ended(
            number=record.number,
            endpoint=record.endpoint,
            result=miss.kind.value,
            began=record.started,
            ended=record.ended,
            condition=miss.condition,
            hint=miss.retry_after,
        )

    def _succeeded(self, event: events.Connected | events.Reconnected) -> list[Ended]:
        for number, started in reversed(self._under_way.items()):
            if started.endpoint == event.endpoint:
                del self._under_way[number]
                return [_ended(started, CONNECTED, event.stamp.monotonic)]
        return []

    def _stopped(self, now: float) -> list[Ended]:
        ended = [_ended(started, FailureReason.STOPPED.value, now) for started in self._under_way.values()]
        self._under_way.clear()
        return ended


def _ended(started: events.AttemptStarted, result: str, now: float) -> Ended:
    return Ended(
        number=started.attempt,
        endpoint=started.endpoint,
        result=result,
        began=started.stamp.monotonic,
        ended=now,
    )
