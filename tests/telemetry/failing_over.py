"""One failover of a real pair, watched by a sink, for the tests of sinks."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import haclient
from haclient import aio
from haclient.discovery.evidence import FailureReason
from haclient.events import AttemptFailed, Closed, Connected, Event, Reconnected, Redirected
from haclient.telemetry.sink import Sink
from tests.members import Members
from tests.telemetry.lines import until

FAST = "backoff_base=0.01&backoff_max=0.1"


@dataclass
class Watched:
    """The client's own events of the failover."""

    events: list[Event] = field(default_factory=list)

    def of(self, *kinds: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kinds)]

    @property
    def results(self) -> Counter[str]:
        """Count the results of the attempts; a success has the event of the connection."""
        failed = [
            event.record.failure.kind.value for event in self.events if isinstance(event, AttemptFailed)
        ]
        redirected = [
            event.record.failure.kind.value
            for event in self.events
            if isinstance(event, Redirected)
            and event.record is not None
            and event.record.failure.kind is FailureReason.REDIRECTED
        ]
        return Counter([*failed, *redirected, *("connected" for _ in self.of(Connected, Reconnected))])

    @property
    def durations(self) -> list[float]:
        """Return the durations of the episodes in seconds."""
        return [event.duration for event in self.events if isinstance(event, Connected | Reconnected)]


async def fail_over(members: Members, sink: Sink, *, body: str = "x", password: str | None = None) -> Watched:
    """Connect by way of the passive member, kill the primary, promote the other, go on, close."""
    users = {} if password is None else {"app": password}
    primary, passive = members.pair(users=users, anonymous=password is None)
    credentials = None if password is None else haclient.Credentials(user="app", password=password)
    watched = Watched()
    url = f"amqp://{passive.address},{primary.address}?{FAST}"
    async with aio.connect(
        url, credentials=credentials, on_event=(sink, watched.events.append)
    ) as connection:
        sender = await connection.create_sender("q")
        await sender.send(haclient.Message(body=body))
        await asyncio.to_thread(primary.kill)
        pending = await sender.submit(haclient.Message(body=body))
        await asyncio.to_thread(passive.promote)
        await pending
    await until(lambda: watched.of(Closed))
    return watched
