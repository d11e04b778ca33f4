"""The one link that carries the events of all queues to a replica.

Theory of operation
-------------------
Each source with events to send is in ``_ready`` once. The sources take turns, and each sends a few events per
turn. So the cost of a message does not depend on the number of queues, and no queue waits for another's whole
backlog. The number and size of unacknowledged events are bounded. Beyond the bound, or if the connection is
congested, events stay with their sources.

Rules
-----
* The events of one source keep their order; between sources there is no order.
* No source sends while others wait for their turn: ``free`` is true only if none waits.
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

# Unacknowledged bytes sent to a replica, which it may have to hold in memory until its store has them. Far
# more than a disk commits at once; one message may always be in flight.
_WINDOW = 16 * 1024 * 1024
# The cost of an event to a replica in addition to its own bytes, so that many small events are bounded too.
_OVERHEAD = 512
# Events that one source sends before the next source's turn.
_MOST_IN_A_ROW = 64


class OutgoingConnection(Protocol):
    """The connection that leads to the replica."""

    congested: bool

    def sent(self, size: int) -> None:
        """Count bytes given to proton."""

    def leaving(self) -> int | None:
        """Return how many bytes have left so far, while others wait to leave; ``None`` if none wait."""

    def close(self, why: str) -> None:
        """Close the connection, unless it is closed."""


class Source(Protocol):
    """A sender of events, such as a queue feed."""

    scheduled: bool
    """True while this source waits for its turn; only the link changes it."""

    @property
    def pending(self) -> bool:
        """Return whether this source has events to send."""

    def send_some(self, most: int) -> None:
        """Send up to ``most`` events while the link accepts them."""

    def settled(self, number: int | None, outcome: Outcome | None) -> None:
        """Handle the replica's settlement of an event; ``number`` is the one given to ``DataLink.send``."""


class DataLink:
    """The owner of the link; it exists before the replica attaches the link.

    :param fail: called with a reason when the replica detaches the link.
    """

    def __init__(self, connection: OutgoingConnection, fail: Callable[[str], None]) -> None:
        self._connection = connection
        self._fail = fail
        self._link: SenderLink | None = None
        self._ready: deque[Source] = deque()
        self._in_flight = 0
        self.largest = sys.maxsize
        """Size of the largest event that the replica accepts, in bytes; a larger event would end the link."""

    def attach(self, link: SenderLink) -> None:
        """Use the link that the replica attached."""
        self._link = link
        self.largest = int(link.endpoint.remote_max_message_size or sys.maxsize)
        link.owner = self

    def close(self) -> None:
        """Stop sending."""
        self._link = None
        self._ready.clear()

    # -- sending --------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Unacknowledged bytes, including ``_OVERHEAD`` for each event."""
        return self._in_flight

    @property
    def takes(self) -> bool:
        """Return whether the link accepts an event now."""
        link = self._link
        return (
            link is not None
            and self._in_flight < _WINDOW
            and not self._connection.congested
            and link.credit > 0
        )

    @property
    def free(self) -> bool:
        """Return whether the link accepts an event now and no source waits for its turn."""
        # Repeats ``takes`` instead of calling it: this runs once per message.
        link = self._link
        return (
            not self._ready
            and link is not None
            and self._in_flight < _WINDOW
            and not self._connection.congested
            and link.credit > 0
        )

    def send(self, source: Source, number: int | None, event: bytes) -> None:
        """Send an event; the source must have checked that the link accepts it."""
        assert self._link is not None, "it takes nothing before it is attached"
        size = len(event)
        charge = size + _OVERHEAD
        self._in_flight += charge
        self._link.send(event, (source, number, charge))
        self._connection.sent(size)

    def schedule(self, source: Source) -> None:
        """Queue a source for its turn, unless it is queued; ``pump`` starts sending."""
        if not source.scheduled:
            source.scheduled = True
            self._ready.append(source)

    def pump(self) -> None:
        """Send events until the link accepts no more or no source has any."""
        ready = self._ready
        while ready and self.takes:
            source = ready.popleft()
            source.send_some(_MOST_IN_A_ROW)
            if source.pending:
                ready.append(source)
            else:
                source.scheduled = False

    def end(self, queue: bytes) -> None:
        """Report that no further events of a queue follow."""
        self.schedule(_Ended(self, wire.encode_event(queue, wire.ENDED, {})))
        self.pump()

    # -- the link's owner -----------------------------------------------------------------------

    def link_opened(self, link: SenderLink) -> None:
        """Ignored: the replica attached the link."""

    def link_closed(self, link: SenderLink, condition: proton.Condition | None) -> None:
        """Fail the replica, which needs its data link."""
        self._link = None
        self._fail(f"it detached its data link: {condition}" if condition else "it detached its data link")

    def credit_given(self, link: SenderLink) -> None:
        """Send more events."""
        self.pump()

    def settled(
        self, link: SenderLink, token: tuple[Source, int | None, int], outcome: Outcome | None
    ) -> None:
        """Handle the settlement of an event that the replica has stored or refused."""
        source, number, charge = token
        self._in_flight -= charge
        source.settled(number, outcome)
        # Not after each settlement: half a window at a time suffices for the disk at the replica.
        if self._ready and self._in_flight <= _WINDOW // 2:
            self.pump()


class _Ended:
    """The final event of a queue."""

    def __init__(self, link: DataLink, event: bytes) -> None:
        self.scheduled = False
        self.pending = True
        self._link = link
        self._event = event

    def send_some(self, most: int) -> None:
        """Send the event."""
        self.pending = False
        self._link.send(self, None, self._event)

    def settled(self, number: int | None, outcome: Any) -> None:
        """Ignore the settlement: nothing waits for this event."""
