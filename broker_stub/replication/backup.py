"""The backup's side: finds the primary through ``haclient`` and keeps its local state equal to the primary's.

Theory of operation
-------------------
``run`` repeats for ever: find the primary (a member that is not primary answers this connection with
redirect or refusal), erase the own generation, follow the control link and one feed a queue
until the connection is lost.  What arrives is applied to the queues in memory and
given to the store in the same iteration of the event loop; it is acknowledged when the store has
committed it.

Rules
-----
* The generation is erased before anything else is done with a primary (rule 4 of ``generation``).
* Commands are executed one after the other, each durably before the next one.
* An event that cannot be applied ends the session: local state that is not equal is worthless.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol

import proton

from broker_stub.amqp.conditions import RESOURCE_DELETED
from broker_stub.queueing.queue import Queue
from broker_stub.replication import wire
from broker_stub.store import StoreFailedError
from haclient import aio, events
from haclient.cluster_url.endpoint import Endpoint
from haclient.errors import HaclientError, LinkClosed, LinkRefused

logger = logging.getLogger("broker_stub.replication")

CAPABILITY = "haclient:replicate"
CONTROL = "$replication"
DELETED = RESOURCE_DELETED
HAVE = "haclient:have"
NAME = "haclient:member"
# Messages on their way to a backup at most; each is acknowledged on its own.
_CREDIT = 5000
LONGEST_PAUSE = 1.0
"""Seconds between two searches, at most: the clients parked at this member wait for its search."""
# Seconds until a cancellation that was swallowed is repeated.
_CANCEL_AGAIN = 0.1


class ReplicationTarget(Protocol):
    """The local copy that a backup keeps: queues, wiring, store, generation."""

    async def lost_primary(self) -> None:
        """No primary is followed: ``connecting``."""

    def refusal_reason(self, generation: int) -> str | None:
        """Why a primary of that generation must not be followed."""

    async def begin_catch_up(self, primary: Endpoint | None, generation: int) -> None:
        """A primary is found: erase the generation, ``catchup``."""

    async def set_wiring(self, wiring: Mapping[str, Any]) -> None:
        """The whole wiring; what is not in it is deleted."""

    async def change_wiring(self, operation: str, arguments: Mapping[str, Any]) -> None:
        """One change of it."""

    async def note_pending(self, generation: int, claim: str) -> None:
        """Write down a claim that the primary is about to make."""

    async def take_generation(self, generation: int, others: tuple[str, ...]) -> None:
        """The primary handed over its generation: ``ready``."""

    def replicated_queues(self) -> tuple[Queue, ...]:
        """The queues whose messages are replicated."""

    def begin_queue(self, queue: Queue) -> list[tuple[int, int]]:
        """The ranges of ids that a queue keeps; clear what the primary sends anew."""

    def apply(self, queue: Queue, event: wire.ReplicatedMessage | wire.Event) -> int:
        """Apply an event to a queue; the store's sequence number of it."""

    async def committed(self, sequence: int) -> None:
        """Wait until the store has committed up to there."""


class SessionEndedError(Exception):
    """The connection to the primary is lost, or the primary is not what it should be."""


class Backup:
    """Follows whichever member is primary.

    :param factory: of connections with ``CAPABILITY``, to the broker URL.
    :param name: this member's name.
    :param pause: seconds to wait before the next session, asked each time.
    """

    def __init__(
        self, target: ReplicationTarget, factory: aio.ConnectionFactory, name: str, pause: Callable[[], float]
    ) -> None:
        self._target = target
        self._pause = pause
        self._factory = factory
        self._name = name
        self._following: dict[str, asyncio.Task[None]] = {}
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Follow from now on."""
        self._task = asyncio.get_running_loop().create_task(self.run(), name="follow the primary")

    def search_with(self, factory: aio.ConnectionFactory) -> None:
        """Find the next primary with another factory; the one that is followed now stays."""
        self._factory = factory

    async def stop(self) -> None:
        """Follow no longer; returns when nothing more is applied.

        A task group that ends with errors swallows a cancellation in the same iteration of the loop,
        which is just when a primary dies and this member is promoted: hence the flag, and hence
        it is cancelled until it has ended.
        """
        self._stopping = True
        if self._task is not None:
            while not self._task.done():
                self._task.cancel()
                await asyncio.wait([self._task], timeout=_CANCEL_AGAIN)

    async def run(self) -> None:
        """Until ``stop``."""
        while not self._stopping:
            try:
                async with self._factory.connect() as connection:
                    await self._session(connection)
            except* (SessionEndedError, HaclientError, ValueError) as over:
                for reason in over.exceptions:
                    logger.info("following no primary: %s", reason)
            except* StoreFailedError:
                self._stopping = True  # the member ends
            except* Exception:
                # Whatever went wrong with this primary, the next one must be found.
                logger.exception("following the primary failed")
            if not self._stopping:
                await self._target.lost_primary()
                await asyncio.sleep(self._pause())

    async def _session(self, connection: aio.Connection) -> None:
        generation = connection.generation or 0
        refusal_reason = self._target.refusal_reason(generation)
        if refusal_reason is not None:
            raise SessionEndedError(refusal_reason)
        logger.info("following %s, generation %d", connection.endpoint, generation)
        connection_events = connection.events()
        await self._target.begin_catch_up(connection.endpoint, generation)
        self._following.clear()
        async with asyncio.TaskGroup() as group:
            group.create_task(_until_lost(connection_events), name="watch the primary")
            group.create_task(self._handle_commands(connection, group), name="control")

    # -- commands ---------------------------------------------------------------------------------

    async def _handle_commands(self, connection: aio.Connection, group: asyncio.TaskGroup) -> None:
        def add_member_name(link: proton.Receiver) -> None:
            link.properties = {proton.symbol(NAME): self._name}

        control = await connection.create_receiver(CONTROL, credit=100, configure=add_member_name)
        async for delivery in control:
            command = wire.decode(delivery.data)
            if not isinstance(command, wire.Event):
                raise SessionEndedError("the primary sent a message on the control link")
            await self._handle_command(command)
            self._follow_queues(connection, group)
            await delivery.accept()

    async def _handle_command(self, command: wire.Event) -> None:
        arguments = command.arguments
        match command.operation:
            case "wiring":
                await self._target.set_wiring(arguments)
            case "pending":
                await self._target.note_pending(int(arguments["number"]), str(arguments["claim"]))
            case "number":
                others = tuple(str(name) for name in arguments["ready"])
                await self._target.take_generation(int(arguments["number"]), others)
            case operation:
                await self._target.change_wiring(operation, arguments)

    def _follow_queues(self, connection: aio.Connection, group: asyncio.TaskGroup) -> None:
        wanted = {queue.identity: queue for queue in self._target.replicated_queues()}
        for identity in self._following.keys() - wanted.keys():
            self._following.pop(identity).cancel()
        for identity in wanted.keys() - self._following.keys():
            task = group.create_task(self._browse(connection, wanted[identity]), name=f"browse {identity}")
            self._following[identity] = task

    # -- queues ---------------------------------------------------------------------------------

    async def _browse(self, connection: aio.Connection, queue: Queue) -> None:
        try:
            await self._follow(connection, queue)
        except* (LinkClosed, LinkRefused) as lost:
            # The primary has deleted the queue before it saw the attach; the command that says so follows.
            _, others = lost.split(lambda error: getattr(error, "condition", None) == DELETED)
            if others is not None:
                raise

    async def _follow(self, connection: aio.Connection, queue: Queue) -> None:
        def add_ranges(link: proton.Receiver) -> None:
            have = [number for span in self._target.begin_queue(queue) for number in span]
            link.properties = {proton.symbol(HAVE): [proton.ulong(number) for number in have]}

        address = f"{CONTROL}/{queue.identity}"
        receiver = await connection.create_receiver(address, credit=_CREDIT, configure=add_ranges)
        applied: deque[tuple[int, aio.Delivery]] = deque()
        arrived = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            acknowledging = group.create_task(self._acknowledge(applied, arrived))
            async for delivery in receiver:
                event = wire.decode(delivery.data)
                applied.append((self._target.apply(queue, event), delivery))
                arrived.set()
            acknowledging.cancel()

    async def _acknowledge(self, applied: deque[tuple[int, aio.Delivery]], arrived: asyncio.Event) -> None:
        while True:
            await arrived.wait()
            arrived.clear()
            while applied:
                await self._target.committed(applied[0][0])
                sequence = applied[0][0]
                while applied and applied[0][0] <= sequence:
                    await applied.popleft()[1].accept()


async def _until_lost(connection_events: AsyncIterator[events.Event]) -> None:
    async for event in connection_events:
        if isinstance(event, events.Disconnected):
            raise SessionEndedError(event.reason)
    raise SessionEndedError("the connection is closed")
