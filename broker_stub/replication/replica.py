r"""The primary's view of one backup: its control link, its data link, its queue feeds, and its phase.

Phases
------
    catching up --sent all--> final catch-up --acknowledged--> waiting --nothing old outstanding--> ready
         \______________________ dropped (link lost, refused, stalled) ______________/

* While a replica catches up, no message waits for it. The final catch-up begins when every queue feed has
  sent the messages that the replica lacked. It ends when the replica has acknowledged everything sent by
  then. Few messages arrive in that time, so the first message that waits for the replica has no long backlog
  before it.
* Dequeues up to that moment that did not wait for the replica are acknowledged before it is ready.
* From ``waiting`` on, every new message waits for the replica's acknowledgement (rule 4 of ``generation``:
  first wait, then hand over the generation).
* The wiring is sent in pieces, each made when the replica can take it. The pieces show the moment of joining.
  Each later change is a command after the last piece.
* The cost of a message, command or acknowledgement does not depend on the number of queues. ``_lacking``
  holds the queues whose content is not sent yet; each queue leaves it once.
* Progress is counted in ticks, never by the clock (``commit_watch``), and in every phase: while a replica
  catches up, it always owes something.
* A large message may take longer than a timeout to send and to commit. Two signs count as progress before its
  acknowledgement: bytes that leave while others wait, and the backup's report that the commit makes progress.
  They count for at most ``_MOST_UNFINISHED`` ticks, so that a backup that reports forever is dropped.
* If a queue cannot be copied, only this queue is set aside. The replica lacks it and stays in the first phase
  until the queue is copied.
* A replica counts as ready as soon as the generation is *sent*. It may have stored the generation even if its
  acknowledgement never arrives, so dropping it then needs rule 2.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import proton

from broker_stub.queueing.message import Message
from broker_stub.queueing.queue import Queue
from broker_stub.replication import wire
from broker_stub.replication.backlog import Backlog
from broker_stub.replication.data_link import DataLink, OutgoingConnection
from broker_stub.replication.queue_feed import QueueFeed
from haclient.engine.links import SenderLink
from haclient.outcome import Outcome
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.replication")

# Unexecuted pieces of the wiring, at most: bounds the work done at once.
_PIECES = 4
# Queues listed in a status or in telemetry, at most: a replica may lack all of them.
_MOST_REPORTED = 10
# Consecutive ticks with progress but no acknowledgement, at most: five minutes with a timeout of 10 s, as for
# a command. The largest message, 256 MiB, takes that long if network and disk have 1 MB a second.
_MOST_UNFINISHED = 300


class Phase(enum.StrEnum):
    """The phases of a replica."""

    CATCHING_UP = "catching-up"
    FINAL_CATCH_UP = "last-lap"
    WAITING = "waiting"
    READY = "ready"
    DROPPED = "dropped"


class ReplicaOwner(Protocol):
    """The primary, as its replicas see it."""

    def acknowledged(self, message: Message) -> None:
        """Handle the acknowledgement of a message that waits for a replica."""

    def replica_started_waiting(self, replica: Replica) -> None:
        """Note that new messages wait for this replica from now on."""

    def replica_caught_up(self, replica: Replica) -> None:
        """Make the replica ready: it has acknowledged everything settled before messages waited for it."""

    def queue_set_aside(self, replica: Replica, queue: Queue, *, copied: bool) -> None:
        """Report a queue that is not copied to the replica for now, or that was copied after all."""

    def replica_failed(self, replica: Replica, reason: str) -> None:
        """Drop a failed replica."""


class Replica:
    """One backup, as the primary sees it.

    :param name: its member name.
    """

    def __init__(self, name: str, owner: ReplicaOwner, connection: OutgoingConnection) -> None:
        self.name = name
        self.waiting = False
        """True if new messages wait for its acknowledgement."""
        self._phase = Phase.CATCHING_UP
        self._owner = owner
        self._connection = connection
        self.data = DataLink(connection, self.fail)
        self.lag = 0
        """Number of unacknowledged events, sent or not, except events that nothing waits for."""
        self._feeds: dict[bytes, QueueFeed] = {}
        self._lacking: dict[bytes, Queue] = {}
        self._control: SenderLink | None = None
        self._pieces: Iterator[Mapping[str, Any]] | None = None
        self._commands: deque[tuple[bytes, asyncio.Future[None]]] = deque()
        self._executing: deque[asyncio.Future[None]] = deque()
        """One future for each command sent."""
        self._wired = False
        self._draining: set[tuple[QueueFeed, int]] = set()
        self._moved = False
        self._commit_goes_on = False
        self._left: int | None = None
        self._unfinished = 0
        self._idle_ticks = 0
        self._due = 0
        self.backlog = Backlog()
        self.set_aside: dict[bytes, str] = {}
        """Reasons why queues that it lacks are not copied now, by ``wire.key``."""
        self._reported: set[bytes] = set()
        """Keys of the set-aside queues that were reported to the owner."""

    @property
    def phase(self) -> Phase:
        """Return the phase of this replica."""
        return self._phase

    @phase.setter
    def phase(self, phase: Phase) -> None:
        self._phase = phase
        # Cached, because it is read for every message.
        self.waiting = phase in (Phase.WAITING, Phase.READY)

    def tick(self) -> int:
        """Check for progress.

        Return the number of consecutive checks at which it owed something and made none.
        """
        lacks = not self._wired or len(self._lacking) > len(self.set_aside) or self.data.in_flight
        catches_up = self.phase is Phase.CATCHING_UP and lacks
        owes = catches_up or self._due or self._draining or self._executing or self._commands
        before, self._left = self._left, self._connection.leaving()
        leaves = before is not None and self._left not in (None, before)
        goes_on = leaves or self._commit_goes_on
        self._unfinished = 0 if self._moved or not owes else self._unfinished + goes_on
        moved = self._moved or (goes_on and self._unfinished <= _MOST_UNFINISHED)
        self._idle_ticks = self._idle_ticks + 1 if owes and not moved else 0
        self._moved = self._commit_goes_on = False
        return self._idle_ticks

    def commit_goes_on(self) -> None:
        """Note the backup's report that a large commit makes progress."""
        self._commit_goes_on = True

    # -- commands ---------------------------------------------------------------------------------

    def begin(
        self, control: SenderLink, wiring: Iterator[Mapping[str, Any]], queues: Iterable[Queue]
    ) -> None:
        """Send the wiring over the attached control link.

        :param wiring: the pieces of the wiring.
        :param queues: the replicated queues; each is fed when the replica reports the ids it has.
        """
        self._control = control
        self._lacking = {wire.key(queue.identity): queue for queue in queues}
        self._pieces = wiring
        self.command("wired", {}).add_done_callback(self._wiring_done)

    def _wiring_done(self, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and done.exception() is None:
            self._wired = True
            self.progressed()

    def command(self, operation: str, arguments: Mapping[str, Any]) -> asyncio.Future[None]:
        """Send a command; the future completes when the replica has executed it durably.

        If the replica is dropped first, the future raises ``ReplicaLostError``.
        """
        waiter = self._waiter()
        if self.phase is Phase.DROPPED:
            waiter.set_exception(ReplicaLostError(self.name))
            return waiter
        self._commands.append((wire.encode_command(operation, arguments), waiter))
        self._send_commands()
        return waiter

    @staticmethod
    def _waiter() -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter.add_done_callback(_retrieve)
        return waiter

    def _send_commands(self) -> None:
        control, executing = self._control, self._executing
        while control is not None and self._pieces is not None and control.credit > 0:
            if len(executing) >= _PIECES:
                return
            piece = next(self._pieces, None)
            if piece is None:
                self._pieces = None
            else:
                executing.append(self._waiter())
                control.send(wire.encode_command("wiring", piece), None)
        while control is not None and self._commands and control.credit > 0:
            command, waiter = self._commands.popleft()
            executing.append(waiter)
            control.send(command, None)

    # -- queues ---------------------------------------------------------------------------------

    def add(self, queue: Queue) -> None:
        """Replicate a new queue; it is fed when the replica reports that it has the queue."""
        key = wire.key(queue.identity)
        self._lacking[key] = queue
        self._add_feed(queue, key)

    def _add_feed(self, queue: Queue, key: bytes) -> QueueFeed:
        feed = self._feeds[key] = QueueFeed(self, queue, key)
        queue.observe(feed)
        return feed

    def begin_queue(self, key: bytes, have: Iterable[tuple[int, int]]) -> None:
        """Feed a queue from the ids that the replica reports; if the queue is gone, end its events."""
        self._moved = True
        feed, queue = self._feeds.get(key), self._lacking.get(key)
        if feed is None and queue is not None:
            feed = self._add_feed(queue, key)
        if feed is None:
            self.data.end(key)
            return
        try:
            feed.begin(have)
        except Exception as error:
            logger.exception("the content of %r cannot be sent to %s", feed.queue.name, self.name)
            self.feed_failed(feed, f"it cannot be sent: {error}")

    def remove(self, queue: Queue) -> asyncio.Future[None]:
        """Stop replicating a deleted queue; return the future of the command that deletes it."""
        command = self.command("queue-deleted", {"identity": queue.identity})
        key = wire.key(queue.identity)
        self._lacking.pop(key, None)
        self.set_aside.pop(key, None)
        self._reported.discard(key)
        feed = self._feeds.pop(key, None)
        if feed is not None:
            queue.unobserve(feed)
            if feed.end():
                self.data.end(key)
        self.progressed()
        return command

    def feed_caught_up(self, feed: QueueFeed) -> None:
        """Note that all messages of a queue that the replica lacked are sent."""
        self._lacking.pop(feed.key, None)
        self.set_aside.pop(feed.key, None)
        if feed.key in self._reported:
            self._reported.remove(feed.key)
            self._owner.queue_set_aside(self, feed.queue, copied=True)
        self.progressed()

    def feed_failed(self, feed: QueueFeed, reason: str) -> None:
        """Set a queue aside that cannot be copied, until the replica reports its ids again.

        The replica lacks the queue until then, so it receives no generation. A replica that messages wait for
        is dropped, and leaves the in-sync set first.
        """
        if self.waiting:
            self.fail(f"{feed.queue.name!r} cannot be copied: {reason}")
        elif self._feeds.get(feed.key) is feed:
            logger.warning("%r is not copied to %s for now: %s", feed.queue.name, self.name, reason)
            self.phase = Phase.CATCHING_UP
            self._draining.clear()
            del self._feeds[feed.key]
            self._lacking[feed.key] = feed.queue
            self.set_aside[feed.key] = reason
            feed.queue.unobserve(feed)
            feed.end()
            self.data.end(feed.key)
            # A full disk sets all queues aside, each time the replica joins again.
            if feed.key not in self._reported and len(self._reported) < _MOST_REPORTED:
                self._reported.add(feed.key)
                self._owner.queue_set_aside(self, feed.queue, copied=False)

    def queues_set_aside(self) -> dict[str, str]:
        """Return the reasons of set-aside queues by name, for the first ``_MOST_REPORTED`` queues."""
        some = itertools.islice(self.set_aside.items(), _MOST_REPORTED)
        return {self._lacking[key].name: reason for key, reason in some}

    def pump(self) -> None:
        """Send more commands and events: the connection has capacity again."""
        # A large message on a slow network is progress; but a replica that clients wait for must also
        # acknowledge.
        self._moved = self._moved or not self.waiting
        self._send_commands()
        self.data.pump()

    # -- progress -------------------------------------------------------------------------------

    def progressed(self) -> None:
        """Begin the final catch-up once the wiring and all missing messages are sent."""
        if self.phase is Phase.CATCHING_UP and self._wired and not self._lacking:
            self.phase = Phase.FINAL_CATCH_UP
            self._draining = self._in_flight()
            self._check_drained()

    def _send_site_progress(self) -> None:
        """Send the current site progress; later changes travel with their causes."""
        for feed in self._feeds.values():
            if feed.queue.site_progress is not None:
                feed.send_site_progress()

    def _in_flight(self) -> set[tuple[QueueFeed, int]]:
        return {(b, number) for b in self._feeds.values() for number in b.unacknowledged}

    def expect(self) -> None:
        """Count a message that waits for this replica."""
        self._due += 1

    def acknowledged(self, feed: QueueFeed, number: int, message: Message | None) -> None:
        """Handle the acknowledgement of a message, or its removal from the queue."""
        self._moved = True
        if self._draining:
            self._draining.discard((feed, number))
            self._check_drained()
        if message is not None:
            self._due -= 1
            self._owner.acknowledged(message)

    def _check_drained(self) -> None:
        if not self._draining and self.phase is Phase.FINAL_CATCH_UP:
            for feed in self._feeds.values():
                feed.collect_ids()
            self.phase = Phase.WAITING
            self._send_site_progress()
            self._draining = self._in_flight()
            logger.info("%s has caught up, %d messages are unacknowledged", self.name, len(self._draining))
            self._owner.replica_started_waiting(self)
        if not self._draining and self.phase is Phase.WAITING:
            self._owner.replica_caught_up(self)

    # -- the end --------------------------------------------------------------------------------

    def fail(self, reason: str) -> None:
        """Ask the owner to drop this replica, unless that is done."""
        if self.phase is not Phase.DROPPED:
            self._owner.replica_failed(self, reason)

    def close(self, why: str) -> None:
        """Close the connection, so that the backup learns that it was dropped and joins again."""
        self._connection.close(why)

    def drop(self) -> list[Message]:
        """Stop feeding; return the messages that wait for this replica: the caller must acknowledge them."""
        self.phase = Phase.DROPPED
        self._draining.clear()
        waiting = [message for feed in self._feeds.values() for message in feed.drop()]
        self._feeds.clear()
        self._lacking.clear()
        self._pieces = None
        self.data.close()
        for waiter in (*self._executing, *(waiter for _, waiter in self._commands)):
            if not waiter.done():
                waiter.set_exception(ReplicaLostError(self.name))
        self._executing.clear()
        self._commands.clear()
        return waiting

    # -- the control link's owner ---------------------------------------------------------------

    def link_opened(self, link: SenderLink) -> None:
        """Ignored: the replica attached the link."""

    def link_closed(self, link: SenderLink, condition: proton.Condition | None) -> None:
        """Fail the replica, which needs its control link."""
        self._control = None
        self.fail("it detached its control link")

    def credit_given(self, link: SenderLink) -> None:
        """Send more commands."""
        self._send_commands()

    def settled(self, link: SenderLink, token: None, outcome: Outcome | None) -> None:
        """Complete the oldest command; fail the replica if it refused the command."""
        if outcome is None or not outcome.accepted:
            self.fail("it refused a command")
        elif self._executing:
            self._moved = True
            waiter = self._executing.popleft()
            if not waiter.done():
                waiter.set_result(None)
            self._send_commands()


class ReplicaLostError(Exception):
    """The replica was dropped before it executed a command."""


def _retrieve(waiter: asyncio.Future[None]) -> None:
    """Retrieve the exception of a command that is not awaited, so that asyncio logs no warning."""
    if not waiter.cancelled():
        waiter.exception()
