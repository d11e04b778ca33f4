"""The primary's replicas, and the steps after one of them drops.

Theory of operation
-------------------
A backup joins by attaching its control link; its queue feeds then send it the messages that it lacks
(``replica``, ``queue_feed``). The state machines of ``generation`` decide the steps after a replica has
caught up (``BecomeReady``) and after a ready one has dropped (``ShrinkInSync``). This class executes the
steps and reports the results back. At most one ``ShrinkInSync`` runs at a time; a further drop is reported to
the running one.

Rules
-----
* From the drop of a ready replica until ``ShrinkInSync`` is done, the guard is suspended.
* Messages that wait for a dropped replica are released only then.
* A replica is dropped if it owes something and makes no progress for ``backup_timeout``, or if its backlog
  exceeds a bound. It joins again and continues from the messages it has. Both conditions are checked
  ``TICKS`` times per ``backup_timeout``.
* A member's name belongs to the store that joined under it. The same store replaces its own half-open
  connection; another store is refused.
* A primary whose store should commit but commits nothing for ``backup_timeout`` steps down. Otherwise it
  would look alive and never settle anything.
"""

from __future__ import annotations

import asyncio
import functools
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from broker_stub.durability.guard import Guard
from broker_stub.election import generation as rules
from broker_stub.election import generation_steps as steps
from broker_stub.election.arbiter import Arbiter, ArbiterUnavailableError
from broker_stub.queueing.message import SAFE, Message
from broker_stub.queueing.queue import Queue
from broker_stub.replication.commit_watch import TICKS, Commits, CommitWatch
from broker_stub.replication.data_link import OutgoingConnection
from broker_stub.replication.replica import Phase, Replica
from haclient.engine.links import SenderLink
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.replication")

_SHRINKING = "shrinking the in-sync set"


class SteppedDownError(Exception):
    """This member is no longer primary."""

    def __init__(self) -> None:
        super().__init__("this member has stepped down")


class PrimaryTerm(Protocol):
    """The member during its term as primary, as its replica set sees it."""

    async def write_state(self, state: rules.GenerationState) -> None:
        """Write the generation and the pending claim durably."""

    def generation_changed(self, record: rules.ArbiterRecord) -> None:
        """Serve in another generation from now on."""

    def replicas_changed(self) -> None:
        """Note that the set of ready replicas changed."""

    def step_down(self, reason: str) -> None:
        """Stop serving as primary."""


class ReplicaSet:
    """The replicas of one primary.

    :param state, held: this member's state and the arbiter's record, both from the promotion.
    :param store: this member's store, watched for progress.
    :param wiring: returns the cluster's current wiring in pieces, for a joining replica.
    :param queues: returns the replicated queues.
    :param backup_timeout: seconds without progress after which a replica is dropped.
    :param name: this member's name.
    :param on_set_aside: called with keywords ``replica`` and ``queue`` (names) and ``state``: ``set-aside``
        if the queue is not copied for now, ``copied`` if it was copied after all.
    """

    def __init__(
        self,
        term: PrimaryTerm,
        arbiter: Arbiter,
        guard: Guard,
        state: rules.GenerationState,
        held: rules.ArbiterRecord,
        *,
        store: Commits,
        wiring: Callable[[], Iterator[Mapping[str, Any]]],
        queues: Callable[[], Iterable[Queue]],
        backup_timeout: float,
        name: str = "",
        on_set_aside: Callable[..., object] = lambda **_facts: None,
    ) -> None:
        self.state = state
        self.held = held
        self.replicas: dict[str, Replica] = {}
        self._name = name
        self._identities: dict[str, str] = {}
        self._term = term
        self._arbiter = arbiter
        self._guard = guard
        self._commits = CommitWatch(store)
        self._wiring = wiring
        self._queues = queues
        self._timeout = backup_timeout
        self._on_set_aside = on_set_aside
        self._loop = asyncio.get_running_loop()
        self._machines: dict[str, rules.BecomeReady] = {}
        self._shrink: rules.ShrinkInSync | None = None
        self._shrink_task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._orphans: list[Message] = []
        self._wiring_commands: dict[str, asyncio.Future[None]] = {}
        """Each replica's last wiring command, which is executed after all earlier ones."""
        self._wiring_waiters: set[asyncio.Future[None]] = set()
        self._ended = False
        self._watch = self._loop.call_later(backup_timeout / TICKS, self._tick)

    @property
    def ready(self) -> frozenset[str]:
        """Return the names of the replicas whose drop needs a new generation."""
        return frozenset(name for name, machine in self._machines.items() if machine.ready)

    async def close(self) -> None:
        """Drop all replicas at the end of the term."""
        self._ended = True
        self._watch.cancel()
        # The guard is closed and settles nothing, but a later term must not wait for these replicas.
        for replica in self.replicas.values():
            self._orphans += replica.drop()
        self.replicas.clear()
        for message in self._orphans:
            self._guard.acknowledged(message)
        self._orphans.clear()
        for waiter in self._wiring_waiters:
            if not waiter.done():
                waiter.set_exception(SteppedDownError)
        if self._shrink_task is not None and self._shrink_task is not asyncio.current_task():
            self._shrink_task.cancel()
            await asyncio.wait([self._shrink_task])

    # -- joining --------------------------------------------------------------------------------

    def refusal(self, name: str, identity: str) -> str | None:
        """Return the reason to refuse a joining member, or ``None``.

        :param identity: the UUID of its store.
        """
        if not name or not identity:
            return "a backup says its name and its store's identity"
        if name == self._name or (name in self.replicas and self._identities[name] != identity):
            return (
                f"another member of this cluster is named {name!r}"
                f"{' and is its primary' if name == self._name else ''}: give each member its own --name"
            )
        return None

    def join(self, name: str, identity: str, connection: OutgoingConnection, control: SenderLink) -> Replica:
        """Add a backup that passed ``refusal`` and attached its control link.

        Replace its former connection.
        """
        former = self.replicas.get(name)
        if former is not None:
            self.replica_failed(former, "it joined again")
        self._identities[name] = identity
        replica = Replica(name, self, connection)
        self.replicas[name] = replica
        self._machines[name] = rules.BecomeReady(name)
        control.owner = replica
        replica.begin(control, self._wiring(), self._queues())
        logger.info("%s joined and is catching up", name)
        return replica

    # -- wiring ---------------------------------------------------------------------------------

    def wiring_changed(self, operation: str, arguments: Mapping[str, Any]) -> None:
        """Send a change of the wiring to every replica."""
        for replica in tuple(self.replicas.values()):
            self._wiring_commands[replica.name] = replica.command(operation, arguments)

    async def wiring_settled(self) -> None:
        """Wait until every ready replica has the current wiring durably.

        If a ready replica is dropped meanwhile, wait like a transfer does, until the in-sync set has shrunk.
        Replicas that still catch up are not waited for: each receives its generation last.

        :raises SteppedDownError: if the term ends first, so that the result is unknown.
        """
        commands = [self._wiring_commands[name] for name in self.ready if name in self._wiring_commands]
        if commands:
            await asyncio.wait(commands)
        if self._ended:
            raise SteppedDownError
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._wiring_waiters.add(waiter)
        try:
            self._guard.when_complete(SAFE, _complete, waiter)
            await waiter
        finally:
            self._wiring_waiters.discard(waiter)

    # -- queues ---------------------------------------------------------------------------------

    def queue_added(self, queue: Queue) -> None:
        """Replicate a new queue to every replica."""
        for replica in self.replicas.values():
            replica.add(queue)

    def queue_removed(self, queue: Queue) -> None:
        """Delete a queue on every replica."""
        for replica in tuple(self.replicas.values()):
            self._wiring_commands[replica.name] = replica.remove(queue)

    # -- becoming ready -------------------------------------------------------------------------

    def acknowledged(self, message: Message) -> None:
        """Handle the acknowledgement of a message that waits for a replica."""
        self._guard.acknowledged(message)

    def replica_started_waiting(self, replica: Replica) -> None:
        """Settle nothing without this replica from now on: its queue feeds have caught up."""
        self._advance(replica.name, rules.StartWaiting())

    def replica_caught_up(self, replica: Replica) -> None:
        """Make the replica ready: it has acknowledged everything from before."""
        self._advance(replica.name, rules.AwaitDrained())
        self._make_ready()

    def _advance(self, name: str, step: object, record: rules.ArbiterRecord | None = None) -> None:
        self._machines[name] = self._machines[name].finished(step, record=record)

    def _make_ready(self) -> None:
        """Hand the generation to all replicas that wait for it, unless a new generation is being claimed."""
        if self._shrink is not None:
            return
        made_ready = False
        for name, machine in tuple(self._machines.items()):
            if isinstance(machine.step, rules.AwaitNoShrink):
                self._advance(name, rules.AwaitNoShrink(), self.held)
                self.replicas[name].phase = Phase.READY
                self._advance(name, self._machines[name].step)
                made_ready = True
                logger.info("%s is ready in generation %d", name, self.held.generation)
        if made_ready:
            self._hand_over(self.ready)
            self._term.replicas_changed()

    def _hand_over(self, names: Iterable[str]) -> None:
        ready = sorted(self.ready)
        for name in names:
            replica = self.replicas.get(name)
            if replica is not None:
                replica.command("number", {**_fields(self.held), "ready": ready})

    # -- dropping -------------------------------------------------------------------------------

    def queue_set_aside(self, replica: Replica, queue: Queue, *, copied: bool) -> None:
        """Report a queue that was set aside or copied after all; see ``on_set_aside``."""
        state = "copied" if copied else "set-aside"
        self._on_set_aside(replica=replica.name, queue=queue.name, state=state)

    def replica_failed(self, replica: Replica, reason: str) -> None:
        """Drop a replica; if it was ready, settle nothing until the in-sync set has shrunk."""
        if self._ended or self.replicas.get(replica.name) is not replica:
            return
        ready = self.ready
        del self.replicas[replica.name]
        del self._machines[replica.name]
        self._wiring_commands.pop(replica.name, None)
        logger.warning("dropped the replica %s: %s", replica.name, reason)
        self._loop.call_soon(replica.close, f"{replica.name} is dropped: {reason}")
        if rules.must_shrink(ready, replica.name):
            self._guard.suspend(_SHRINKING)
            self._orphans += replica.drop()
            self._shrink_without(replica.name)
            self._term.replicas_changed()
        else:
            for message in replica.drop():
                self._guard.acknowledged(message)

    def superseded(self, record: rules.ArbiterRecord) -> str | None:
        """Return the reason to step down after reading the arbiter (rule 6), or ``None``."""
        if self._shrink is None:
            return rules.superseded(self.held, None, record)
        return rules.superseded(self._shrink.held, self._shrink.pending, record)

    def _shrink_without(self, name: str) -> None:
        if self._shrink is not None:
            self._shrink = self._shrink.dropped(name)
            self._changed.set()
            return
        self._shrink = rules.ShrinkInSync.begin(self.state, self.held, self.ready)
        self._shrink_task = self._loop.create_task(self._run_shrink(), name="shrink in-sync set")
        self._shrink_task.add_done_callback(self._shrink_ended)

    def _tick(self) -> None:
        self._watch = self._loop.call_later(self._timeout / TICKS, self._tick)
        if self._commits.tick():
            self._term.step_down(f"the store has committed nothing for {self._timeout:g} s")
            return
        for replica in tuple(self.replicas.values()):
            if replica.tick() > TICKS:
                self.replica_failed(replica, f"no acknowledgement for {self._timeout:g} s")
            elif replica.backlog.full:
                self.replica_failed(replica, f"it is too slow: {replica.backlog} wait to be sent to it")

    # -- shrinking the in-sync set --------------------------------------------------------------

    def _shrink_ended(self, task: asyncio.Task[None]) -> None:
        """Step down after an error, so that the guard does not stay suspended while clients wait."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._ended:
            logger.error("shrinking the in-sync set failed", exc_info=error)
            self._term.step_down(f"generation {self.held.generation} has ended: {error}")

    async def _run_shrink(self) -> None:
        while self._shrink is not None:
            step = self._shrink.step
            match step:
                case rules.Done(record):
                    self._done(record)
                    return
                case rules.StepDown(reason):
                    self._term.step_down(reason)
                    return
                case _:
                    await self._run_step(step)

    async def _run_step(self, step: steps.ShrinkInSyncStep) -> None:
        match step:
            case rules.MakeClaim():
                self._update_shrink(lambda shrink: shrink.with_claim(str(uuid.uuid4())))
            case rules.NotePending(replicas, pending):
                self._note_pending(replicas, pending)
                self._update_shrink(lambda shrink: shrink.finished(step))
            case rules.AwaitNoted():
                self._changed.clear()
                await self._changed.wait()
            case rules.WritePending(state) | rules.WriteGeneration(state):
                await self._term.write_state(state)
                self._update_shrink(lambda shrink: shrink.finished(step))
            case rules.CompareAndSet(expected, new):
                await self._compare_and_set(expected, new)
            case rules.HandOver(replicas, record):
                self.held = record
                self._hand_over(replicas)
                self._update_shrink(lambda shrink: shrink.finished(step))

    async def _compare_and_set(self, expected: rules.ArbiterRecord, new: rules.ArbiterRecord) -> None:
        try:
            won = await self._arbiter.compare_and_set(expected, new)
        except ArbiterUnavailableError as error:
            reason = str(error)
            self._update_shrink(lambda shrink: shrink.unreachable(reason))
        else:
            self._update_shrink(lambda shrink: shrink.compared(won=won))

    def _note_pending(self, replicas: Iterable[str], pending: rules.Pending) -> None:
        for name in replicas:
            replica = self.replicas.get(name)
            if replica is None:
                continue
            noted = replica.command("pending", {"number": pending.generation, "claim": pending.claim})
            noted.add_done_callback(functools.partial(self._noted, name, pending))

    def _noted(self, name: str, pending: rules.Pending, future: asyncio.Future[None]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._update_shrink(lambda shrink: shrink.noted(name, pending))
            self._changed.set()

    def _update_shrink(self, change: Callable[[rules.ShrinkInSync], rules.ShrinkInSync]) -> None:
        if self._shrink is not None:
            self._shrink = change(self._shrink)

    def _done(self, record: rules.ArbiterRecord) -> None:
        assert self._shrink is not None
        self.state, self.held = self._shrink.state, record
        self._shrink = None
        orphans, self._orphans = self._orphans, []
        self._term.generation_changed(record)
        for message in orphans:
            self._guard.acknowledged(message)
        self._guard.resume(_SHRINKING)
        self._make_ready()


def _fields(record: rules.ArbiterRecord) -> dict[str, Any]:
    return {"number": record.generation, "claim": record.claim, "cluster": record.cluster}


def _complete(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
