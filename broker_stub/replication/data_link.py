"""The one link that carries the events of all queues to a replica.

Theory of operation
-------------------
Whoever has events to send is in ``_ready``, once; each in its turn sends a few.  So a message costs the same
however many queues there are, and no queue waits for the whole backlog of another.  What is sent but not
acknowledged is bounded, by the credit of the link and by its size; behind that, and behind a connection that
takes no more, events stay with their sources.

Rules
-----
* The events of one source keep their order; those of different ones have none.
* Nobody sends past those who wait: ``free`` says that nobody does.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import proton

from broker_stub.replication import wire
from haclient.engine.links import SenderLink
from haclient.outcome import Outcome

# Bytes on their way to a replica, and not acknowledged: what it may have to hold in memory before its store
# has them.  Much more than a disk commits at once, and one message may always be on its way.
_WINDOW = 16 * 1024 * 1024
# What an event costs a replica beside its own bytes, so that many small ones are bounded, too.
_OVERHEAD = 512
# Events of one source before it is the next one's turn.
_MOST_IN_A_ROW = 64


class OutgoingConnection(Protocol):
    """The connection that leads to the replica."""

    congested: bool

    def sent(self, size: int) -> None:
        """Count what was given to proton."""

    def leaving(self) -> int | None:
        """Return how many bytes have left so far, while others wait to leave; ``None`` if none wait."""

    def close(self, why: str) -> None:
        """End the connection, if it has not ended."""


class Source(Protocol):
    """Something that has events to send."""

    scheduled: bool
    """Whether it waits for its turn; only the link changes it."""

    @property
    def pending(self) -> bool:
        """Whether there is something to send."""

    def send_some(self, most: int) -> None:
        """Send up to so many events, as long as the link takes them."""

    def settled(self, number: int | None, outcome: Outcome | None) -> None:
        """The replica has settled an event; ``number`` as it was given to ``DataLink.send``."""


class DataLink:
    """The owner of the link; it exists before the replica attaches it.

    :param fail: called with the reason when the replica gives the link up.
    """

    def __init__(self, connection: OutgoingConnection, fail: Callable[[str], None]) -> None:
        self._connection = connection
        self._fail = fail
        self._link: SenderLink | None = None
        self._ready: deque[Source] = deque()
        self._in_flight = 0
        self.largest = sys.maxsize
        """Bytes of an event that the replica takes: one larger would end the link."""

    def attach(self, link: SenderLink) -> None:
        """The replica attached it."""
        self._link = link
        self.largest = int(link.endpoint.remote_max_message_size or sys.maxsize)
        link.owner = self

    def close(self) -> None:
        """Nothing is sent any more."""
        self._link = None
        self._ready.clear()

    # -- sending --------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Bytes that were sent and are not acknowledged, with what an event costs beside its own."""
        return self._in_flight

    @property
    def takes(self) -> bool:
        """Whether an event may be sent now."""
        link = self._link
        return (
            link is not None
            and self._in_flight < _WINDOW
            and not self._connection.congested
            and link.credit > 0
        )

    @property
    def free(self) -> bool:
        """Whether an event may be sent now, and nobody waits for a turn."""
        # Not by ``takes``: this is asked for every message.
        link = self._link
        return (
            not self._ready
            and link is not None
            and self._in_flight < _WINDOW
            and not self._connection.congested
            and link.credit > 0
        )

    def send(self, source: Source, number: int | None, event: bytes) -> None:
        """Send an event; its source asked whether the link takes it."""
        assert self._link is not None, "it takes nothing before it is attached"
        size = len(event)
        charge = size + _OVERHEAD
        self._in_flight += charge
        self._link.send(event, (source, number, charge))
        self._connection.sent(size)

    def schedule(self, source: Source) -> None:
        """Give a source its turn, when it is; ``pump`` begins with it."""
        if not source.scheduled:
            source.scheduled = True
            self._ready.append(source)

    def pump(self) -> None:
        """Send what can be sent."""
        ready = self._ready
        while ready and self.takes:
            source = ready.popleft()
            source.send_some(_MOST_IN_A_ROW)
            if source.pending:
                ready.append(source)
            else:
                source.scheduled = False

    def end(self, queue: bytes) -> None:
        """Say that nothing of a queue will follow."""
        self.schedule(_Ended(self, wire.encode_event(queue, wire.ENDED, {})))
        self.pump()

    # -- the link's owner -----------------------------------------------------------------------

    def link_opened(self, link: SenderLink) -> None:
        """The replica attached first."""

    def link_closed(self, link: SenderLink, condition: proton.Condition | None) -> None:
        """Without it it is no replica."""
        self._link = None
        self._fail(f"it detached its data link: {condition}" if condition else "it detached its data link")

    def credit_given(self, link: SenderLink) -> None:
        """The replica takes more."""
        self.pump()

    def settled(
        self, link: SenderLink, token: tuple[Source, int | None, int], outcome: Outcome | None
    ) -> None:
        """The replica has an event durably, or refuses it."""
        source, number, charge = token
        self._in_flight -= charge
        source.settled(number, outcome)
        # Not for each: half a window at a time is enough for the disk at the other end.
        if self._ready and self._in_flight <= _WINDOW // 2:
            self.pump()


class _Ended:
    """The last word about a queue."""

    def __init__(self, link: DataLink, event: bytes) -> None:
        self.scheduled = False
        self.pending = True
        self._link = link
        self._event = event

    def send_some(self, most: int) -> None:
        """Send it."""
        self.pending = False
        self._link.send(self, None, self._event)

    def settled(self, number: int | None, outcome: Any) -> None:
        """Nobody waits for it."""
