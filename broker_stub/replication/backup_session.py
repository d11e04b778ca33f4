"""A backup follows one primary over one connection until the connection is lost.

Theory of operation
-------------------
The control link reports the queues and the generation. For each queue the backup reports the ids it has. The
data link then delivers the events of all reported queues. In one iteration of the event loop, arriving events
are applied to the queues in memory and given to the store. Each event is acknowledged once the store has
committed it.

Rules
-----
* The primary's Attach names its wire version, cluster and generation. The backup erases nothing before it has
  compared them. It reads nothing that the primary sends before it has erased its own generation (rules 4 and
  5 of ``generation``).
* Commands are executed one after another; each is durable before the next begins.
* Events of a queue may arrive between the backup's report and ``ended``. Events still in flight when the
  queue is deleted are accepted and dropped.
* An event that cannot be applied sets its queue aside: the event and its successors are rejected. After
  ``ended`` and a pause the backup empties the queue and reports that it has nothing. It has no generation
  then, because a primary first drops a ready replica.
* If ``ended`` arrives for a queue that is not deleted, the primary cannot send the queue. The backup requests
  it again in the same manner.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import proton

from broker_stub.amqp.conditions import INTERNAL_ERROR
from broker_stub.amqp.endpoints import parse_endpoint
from broker_stub.election.generation_steps import ArbiterRecord, PrimaryIdentity
from broker_stub.queueing.nodes import AddressRefusedError
from broker_stub.queueing.queue import Queue
from broker_stub.replication import wire
from broker_stub.store import StoreFailedError
from haclient import aio
from haclient.cluster_url.endpoint import Endpoint
from haclient.engine import peer_fields
from haclient.errors import WindowFull
from haclient.outcome import Outcome
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.replication")

# Unacknowledged events of all queues, at most; each is acknowledged on its own.
_CREDIT = 5000
_COMMANDS = 100
# Seconds until a failed copy of a queue is retried: the first and the longest pause.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
# Characters of the reason why an event cannot be applied, at most.
_LONGEST_REASON = 300
# Events taken from the link with one call; the rest waits on the link.
_EVENTS_PER_CALL = 200


class ReplicationTarget(Protocol):
    """The local copy that a backup maintains: queues, wiring, store, generation."""

    async def lost_primary(self) -> None:
        """Change the state to ``connecting``: no primary is followed."""

    async def refusal_reason(self, primary: PrimaryIdentity) -> str | None:
        """Return the reason to refuse this primary, or ``None``."""

    async def begin_catch_up(self, endpoint: Endpoint | None, primary: PrimaryIdentity) -> None:
        """Begin to follow a primary: erase the generation and change the state to ``catchup``."""

    async def add_wiring(self, piece: Mapping[str, Any]) -> None:
        """Apply one piece of the complete wiring."""

    async def complete_wiring(self) -> None:
        """Delete all queues, exchanges and bindings that no piece listed."""

    async def change_wiring(self, operation: str, arguments: Mapping[str, Any]) -> None:
        """Apply one change to the wiring."""

    async def note_pending(self, generation: int, claim: str) -> None:
        """Note durably a claim that the primary is about to make."""

    async def take_generation(self, record: ArbiterRecord, others: tuple[str, ...]) -> None:
        """Accept the generation that the primary hands over, and change the state to ``ready``."""

    def replicated_queues(self) -> tuple[Queue, ...]:
        """Return the queues whose messages are replicated."""

    def replicated_queue(self, identity: str) -> Queue | None:
        """Return the replicated queue with this identity."""

    def begin_queue(self, queue: Queue) -> list[tuple[int, int]]:
        """Return the ranges of ids that a queue keeps; clear the state that the primary will resend."""

    def apply(self, queue: Queue, event: wire.ReplicatedMessage | wire.Event) -> int:
        """Apply an event to a queue; return the store's sequence number."""

    async def committed(self, sequence: int) -> int:
        """Wait until the store has committed up to ``sequence``; return its last committed sequence."""


class SessionEndedError(Exception):
    """The connection to the primary was lost, or the primary broke the protocol."""


class FollowRefusedError(SessionEndedError):
    """This member and the primary do not belong together; an operator must act."""


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """The identity of this member.

    :param uuid: the UUID of its store, which no other member shares.
    """

    name: str
    uuid: str


class BackupSession:
    """One session of a backup with its primary, over one connection.

    :param own: this member's identity.
    """

    def __init__(self, target: ReplicationTarget, connection: aio.Connection, own: MemberIdentity) -> None:
        self._target = target
        self._connection = connection
        self._own = own
        self._cluster = ""
        self._queues: dict[bytes, Queue] = {}
        """Queues whose events the primary may send, by ``wire.key``."""
        self._applied: deque[tuple[int, aio.Delivery]] = deque()
        self._arrived = asyncio.Event()
        self._set_aside: set[bytes] = set()
        """Keys of queues whose events are rejected until ``ended``."""
        self._pauses: dict[bytes, float] = {}
        self._retries: asyncio.TaskGroup | None = None
        self._have: aio.Sender | None = None
        self._commit_reported: asyncio.Future[Outcome] | None = None

    def report_commit(self) -> None:
        """Report to the primary that a long commit makes progress; at most one report is in flight."""
        reported = self._commit_reported
        if self._have is not None and (reported is None or reported.done()):
            with contextlib.suppress(WindowFull):  # the reports in the window are answered first
                self._commit_reported = self._have.submit_nowait(wire.COMMIT_GOES_ON)
                self._commit_reported.add_done_callback(_retrieve)

    async def run(self) -> None:
        """Follow the primary until the connection ends.

        :raises SessionEndedError: if this primary must not be followed.
        """
        connection = self._connection
        control, primary, address = await self._attach_control()
        refusal_reason = await self._target.refusal_reason(primary)
        if refusal_reason is not None:
            raise FollowRefusedError(f"{connection.endpoint}: {refusal_reason}")
        logger.info("following %s, generation %d", connection.endpoint, primary.generation)
        self._cluster = primary.cluster
        await self._target.begin_catch_up(address or connection.endpoint, primary)
        data = await connection.create_receiver(wire.DATA, credit=_CREDIT)
        have = await connection.create_sender(wire.HAVE)
        self._have = have
        async with asyncio.TaskGroup() as group:
            self._retries = group
            group.create_task(self._execute_commands(control, have), name="control")
            group.create_task(self._apply_events(data), name="data")
            group.create_task(self._acknowledge(data), name="acknowledge")

    async def _attach_control(self) -> tuple[aio.Receiver, PrimaryIdentity, Endpoint | None]:
        attached: list[proton.Receiver] = []

        def introduce(link: proton.Receiver) -> None:
            link.properties = {
                proton.symbol(wire.MEMBER_PROPERTY): self._own.name,
                proton.symbol(wire.IDENTITY_PROPERTY): self._own.uuid,
                proton.symbol(wire.VERSION_PROPERTY): proton.uint(wire.VERSION),
            }
            attached.append(link)

        control = await self._connection.create_receiver(wire.CONTROL, credit=_COMMANDS, configure=introduce)
        said = peer_fields.properties(attached[-1])
        version = said.get(wire.VERSION_PROPERTY, 1)
        if version != wire.VERSION:
            raise FollowRefusedError(wire.other_version("the primary", version))
        cluster, generation = said.get(wire.CLUSTER_PROPERTY), said.get(wire.GENERATION_PROPERTY)
        if not isinstance(cluster, str) or not cluster or not isinstance(generation, int):
            raise FollowRefusedError("the primary does not say of which cluster and generation it is")
        return control, PrimaryIdentity(generation, cluster), _address(said.get(wire.ADDRESS_PROPERTY))

    # -- commands -------------------------------------------------------------------------------

    async def _execute_commands(self, control: aio.Receiver, have: aio.Sender) -> None:
        async for delivery in control:
            command = wire.decode(delivery.data)
            if not isinstance(command, wire.Event):
                raise SessionEndedError("the primary sent a message on the control link")
            try:
                await self._execute(command, have)
            except AddressRefusedError as error:
                raise SessionEndedError(f"the primary declares what cannot be: {error}") from error
            await delivery.accept()

    async def _execute(self, command: wire.Event, have: aio.Sender) -> None:
        target, arguments = self._target, command.arguments
        match command.operation:
            case "wiring":
                await target.add_wiring(arguments)
            case "wired":
                await target.complete_wiring()
                await self._report(have, target.replicated_queues())
            case "pending":
                await target.note_pending(
                    wire.number(arguments, "number"), wire.argument(arguments, "claim", str)
                )
            case "number":
                others = tuple(map(str, wire.argument(arguments, "ready", list)))
                record = ArbiterRecord(
                    wire.number(arguments, "number"),
                    wire.argument(arguments, "claim", str),
                    wire.argument(arguments, "cluster", str),
                )
                if record.cluster != self._cluster:
                    raise SessionEndedError(
                        f"the primary is of cluster {self._cluster}, and says {record.cluster}"
                    )
                await target.take_generation(record, others)
            case "queue":
                await target.change_wiring(command.operation, arguments)
                queue = target.replicated_queue(wire.argument(arguments, "identity", str))
                if queue is not None and wire.key(queue.identity) not in self._queues:
                    await self._report(have, (queue,))
            case operation:
                await target.change_wiring(operation, arguments)

    async def _report(self, have: aio.Sender, queues: Iterable[Queue]) -> None:
        """Report the ids that these queues have; the primary sends the remaining messages."""
        for report in wire.encode_have(self._begin(queue) for queue in queues):
            sent = await have.submit(report)
            sent.add_done_callback(_retrieve)
            await asyncio.sleep(0)  # a report covers hundreds of queues: let heartbeats and events pass

    def _begin(self, queue: Queue) -> tuple[bytes, list[tuple[int, int]]]:
        key = wire.key(queue.identity)
        self._queues[key] = queue
        return key, self._target.begin_queue(queue)

    # -- events ---------------------------------------------------------------------------------

    async def _apply_events(self, data: aio.Receiver) -> None:
        while True:
            for delivery in await data.receive_many(_EVENTS_PER_CALL):
                event = wire.decode(delivery.data)
                queue = self._queues.get(event.queue)
                if queue is None:
                    raise SessionEndedError(
                        "the primary sent an event of a queue that was not reported to it"
                    )
                if isinstance(event, wire.Event) and event.operation == wire.ENDED:
                    self._ended(event.queue, queue)
                    await delivery.accept()
                elif event.queue in self._set_aside:
                    await delivery.reject(INTERNAL_ERROR, "an event before it could not be applied")
                # ``_apply`` is no coroutine, since every message passes through it.
                elif refusal := self._apply(queue, event, delivery):
                    await delivery.reject(INTERNAL_ERROR, refusal)
            self._arrived.set()

    def _apply(self, queue: Queue, event: wire.ReplicatedMessage | wire.Event, delivery: aio.Delivery) -> str:
        """Apply an event; return the reason if it cannot be applied, else an empty string."""
        try:
            self._applied.append((self._target.apply(queue, event), delivery))
        except StoreFailedError:
            raise
        except ValueError as error:  # the primary's fault; any other exception is this member's own
            logger.error("what %r was sent cannot be applied, and it is set aside: %s", queue.name, error)  # noqa: TRY400
            return self._refuse(event, error)
        except Exception as error:
            logger.exception("an event of %r cannot be applied; the queue is set aside", queue.name)
            return self._refuse(event, error)
        return ""

    def _refuse(self, event: wire.ReplicatedMessage | wire.Event, error: Exception) -> str:
        self._set_aside.add(event.queue)
        return f"{type(error).__name__}: {error}"[:_LONGEST_REASON]

    def _ended(self, key: bytes, queue: Queue) -> None:
        del self._queues[key]
        self._set_aside.discard(key)
        if self._retries is not None:
            self._retries.create_task(self._report_again(key, queue), name=f"retry {queue.name}")

    async def _report_again(self, key: bytes, queue: Queue) -> None:
        pause = self._pauses.get(key, _FIRST_PAUSE)
        self._pauses[key] = min(2 * pause, _LONGEST_PAUSE)
        await asyncio.sleep(pause)
        if queue.deleted or key in self._queues or self._have is None:
            self._pauses.pop(key, None)
        else:
            await self._report(self._have, (queue,))

    async def _acknowledge(self, data: aio.Receiver) -> None:
        applied = self._applied
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while applied:
                sequence = await self._target.committed(applied[0][0])
                committed = []
                while applied and applied[0][0] <= sequence:
                    committed.append(applied.popleft()[1])
                await data.accept_many(committed)


def _retrieve(sent: asyncio.Future[Outcome]) -> None:
    """Retrieve the exception of a rejected report; the rejection ends the connection anyway."""
    if not sent.cancelled():
        sent.exception()


def _address(advertised: object) -> Endpoint | None:
    """Parse the primary's address for clients; return ``None`` if it is missing or unusable."""
    try:
        address = parse_endpoint(advertised) if isinstance(advertised, str) else None
    except ValueError:
        return None
    return address if address is not None and address.port else None
