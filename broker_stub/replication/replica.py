r"""The primary's view of one backup: its control link, its queue feeds, and its phase.

Phases
------
    catching up --sent all--> final catch-up --acknowledged--> waiting --nothing old outstanding--> ready
         \______________________ dropped (link lost, refused, stalled) ______________/

* While it catches up, no message waits for it.  The final catch-up begins when every queue feed has sent
  what the replica lacked, and ends when the replica has acknowledged what was sent by then.  What arrived
  in that time is little, so the first message that waits for the replica is not behind a long backlog.
* From ``waiting`` on, every new message waits for its acknowledgement (rule 4 of ``generation``:
  first wait, then hand over the generation).
* It counts as ready from the moment the generation is *sent*: it may have stored it even if
  its acknowledgement never arrives, and so dropping it then needs rule 2.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import proton

from broker_stub.queueing.message import Message
from broker_stub.queueing.queue import Queue
from broker_stub.replication import wire
from broker_stub.replication.queue_feed import QueueFeed
from haclient.engine.links import SenderLink
from haclient.outcome import Outcome

logger = logging.getLogger("broker_stub.replication")

# As much as the engine gives the socket in one iteration of the loop: the rest waits in the outboxes.
_BURST = 256 * 1024


class Phase(enum.StrEnum):
    """How far a replica is."""

    CATCHING_UP = "catching-up"
    FINAL_CATCH_UP = "last-lap"
    WAITING = "waiting"
    READY = "ready"
    DROPPED = "dropped"


class OutgoingConnection(Protocol):
    """The connection that leads to the replica."""

    congested: bool

    def sent(self, size: int) -> None:
        """Count what was given to proton."""

    def close(self, why: str) -> None:
        """End the connection, if it has not ended."""


class ReplicaOwner(Protocol):
    """The primary, as its replicas see it."""

    def acknowledged(self, message: Message) -> None:
        """A replica has acknowledged a message that waits for it."""

    def replica_started_waiting(self, replica: Replica) -> None:
        """From now on new messages wait for its acknowledgement."""

    def replica_caught_up(self, replica: Replica) -> None:
        """Everything settled before it was waited for is acknowledged: it may have the generation."""

    def replica_failed(self, replica: Replica, reason: str) -> None:
        """The replica is to be dropped."""


class Replica:
    """One backup.

    :param name: its member name.
    :param clock: monotonic seconds.
    """

    def __init__(
        self, name: str, owner: ReplicaOwner, connection: OutgoingConnection, clock: Callable[[], float]
    ) -> None:
        self.name = name
        self.phase = Phase.CATCHING_UP
        self._owner = owner
        self._connection = connection
        self._clock = clock
        self._feeds: dict[str, QueueFeed] = {}
        self._control: SenderLink | None = None
        self._commands: deque[bytes] = deque()
        self._command_waiters: deque[asyncio.Future[None]] = deque()
        self._wired = False
        self._draining: set[tuple[QueueFeed, int]] = set()
        self._moved_at = clock()
        self._due = 0

    @property
    def waiting(self) -> bool:
        """Whether new messages wait for its acknowledgement."""
        return self.phase in (Phase.WAITING, Phase.READY)

    @property
    def congested(self) -> bool:
        """Whether its connection takes no more now."""
        return self._connection.congested

    @property
    def lag(self) -> int:
        """Messages that it has not acknowledged."""
        return sum(len(feed.unacknowledged) for feed in self._feeds.values())

    def stalled_for(self) -> float:
        """Seconds without any acknowledgement although some are due; 0 when none is."""
        return self._clock() - self._moved_at if self._due or self._command_waiters else 0.0

    # -- commands ---------------------------------------------------------------------------------

    def begin(self, control: SenderLink, wiring: Mapping[str, Any]) -> None:
        """Its control link is attached: the wiring is sent first."""
        self._control = control
        self.command("wiring", wiring).add_done_callback(self._wiring_done)

    def _wiring_done(self, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and done.exception() is None:
            self._wired = True
            self.progressed()

    def command(self, operation: str, arguments: Mapping[str, Any]) -> asyncio.Future[None]:
        """Send a command; the future is done when the replica has it durably, or ``ReplicaLostError``."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter.add_done_callback(_retrieve)
        if self.phase is Phase.DROPPED:
            waiter.set_exception(ReplicaLostError(self.name))
            return waiter
        if not self._command_waiters:
            self._moved_at = self._clock()
        self._command_waiters.append(waiter)
        self._commands.append(wire.encode_command(operation, arguments))
        self._send_commands()
        return waiter

    def _send_commands(self) -> None:
        control = self._control
        while control is not None and self._commands and control.credit > 0:
            control.send(self._commands.popleft(), None)

    # -- queues ---------------------------------------------------------------------------------

    def add(self, queue: Queue) -> None:
        """Replicate a queue from now on; it is fed when the replica attaches to it."""
        feed = QueueFeed(self, queue)
        self._feeds[queue.identity] = feed
        queue.observe(feed)

    def remove(self, queue: Queue) -> asyncio.Future[None]:
        """The queue is deleted; the future is that of the command which says so."""
        command = self.command("queue-deleted", {"identity": queue.identity})
        feed = self._feeds.pop(queue.identity, None)
        if feed is not None:
            queue.unobserve(feed)
            feed.end()
            command.add_done_callback(lambda _command: feed.close())
            self.progressed()
        return command

    def feed(self, identity: str) -> QueueFeed | None:
        """The queue feed of a queue, by its identity."""
        return self._feeds.get(identity)

    def pump(self) -> None:
        """The connection takes more."""
        self._send_commands()
        for feed in self._feeds.values():
            feed.pump()

    # -- progress -------------------------------------------------------------------------------

    def progressed(self) -> None:
        """The wiring is there, or a queue feed has reached the end of its catch-up."""
        if self.phase is not Phase.CATCHING_UP or not self._wired:
            return
        if all(feed.caught_up for feed in self._feeds.values()):
            self.phase = Phase.FINAL_CATCH_UP
            self._draining = self._in_flight()
            self._check_drained()

    def _send_site_progress(self) -> None:
        """The site progress until now; later changes travel with their causes."""
        for feed in self._feeds.values():
            if feed.queue.site_progress is not None:
                feed.send_site_progress()

    def _in_flight(self) -> set[tuple[QueueFeed, int]]:
        return {(b, number) for b in self._feeds.values() for number in b.unacknowledged}

    def expect(self) -> None:
        """A message waits for this replica: its time to answer runs."""
        if not self._due:
            self._moved_at = self._clock()
        self._due += 1

    def acknowledged(self, feed: QueueFeed, number: int, message: Message | None) -> None:
        """The replica has a message, or the queue has it no more."""
        self._moved_at = self._clock()
        if self._draining:
            self._draining.discard((feed, number))
            self._check_drained()
        if message is not None:
            self._due -= 1
            self._owner.acknowledged(message)

    def sent(self, size: int) -> None:
        """Count what was given to its connection."""
        self._connection.sent(size)

    def _check_drained(self) -> None:
        if not self._draining and self.phase is Phase.FINAL_CATCH_UP:
            self.phase = Phase.WAITING
            self._send_site_progress()
            self._draining = self._in_flight()
            logger.info("%s has caught up, %d messages are unacknowledged", self.name, len(self._draining))
            self._owner.replica_started_waiting(self)
        if not self._draining and self.phase is Phase.WAITING:
            self._owner.replica_caught_up(self)

    # -- the end --------------------------------------------------------------------------------

    def fail(self, reason: str) -> None:
        """Something makes it unfit."""
        if self.phase is not Phase.DROPPED:
            self._owner.replica_failed(self, reason)

    def close(self, why: str) -> None:
        """Let it know that it was dropped: it has to come again."""
        self._connection.close(why)

    def drop(self) -> list[Message]:
        """Feed it no longer; the messages that wait for it: the caller must acknowledge them."""
        self.phase = Phase.DROPPED
        self._draining.clear()
        waiting: list[Message] = []
        for feed in self._feeds.values():
            feed.queue.unobserve(feed)
            waiting += feed.waited_for.values()
            feed.waited_for.clear()
        self._feeds.clear()
        for waiter in self._command_waiters:
            if not waiter.done():
                waiter.set_exception(ReplicaLostError(self.name))
        self._command_waiters.clear()
        return waiting

    # -- the control link's owner ---------------------------------------------------------------

    def link_opened(self, link: SenderLink) -> None:
        """The replica attached first."""

    def link_closed(self, link: SenderLink, condition: proton.Condition | None) -> None:
        """Without control it is no replica."""
        self._control = None
        self.fail("it detached its control link")

    def credit_given(self, link: SenderLink) -> None:
        """The replica takes commands."""
        self._send_commands()

    def settled(self, link: SenderLink, token: None, outcome: Outcome | None) -> None:
        """The oldest command is executed, or refused."""
        if outcome is None or not outcome.accepted:
            self.fail("it refused a command")
        elif self._command_waiters:
            self._moved_at = self._clock()
            waiter = self._command_waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)


class ReplicaLostError(Exception):
    """The replica was dropped before it executed a command."""


def _retrieve(waiter: asyncio.Future[None]) -> None:
    """A command that is not awaited may fail without a warning."""
    if not waiter.cancelled():
        waiter.exception()
