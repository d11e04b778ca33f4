"""The primary's part in the cluster: its replicas, and what happens when one drops.

Theory of operation
-------------------
A backup joins with its control link and its queue feeds send it what it lacks (``replica``, ``queue_feed``).
The machines of ``generation`` say what to do next when it has caught up (``BecomeReady``) and when a
ready one drops (``ShrinkInSync``); this class executes their steps and reports the results to them.
Only one ``ShrinkInSync`` runs at a time; a replica that drops meanwhile is reported to the running one.

Rules
-----
* From the drop of a ready replica until ``ShrinkInSync`` is done the guard is suspended.
* What waits for a dropped replica is released only then.
* A replica that owes something and makes no progress for ``backup_timeout`` is dropped, and so is one that
  falls behind by more than a bound: it comes again, and goes on from what it has.  Both are looked at
  ``TICKS`` times in that time.
* A member's name belongs to the store that joined under it: the same store replaces its half-open
  predecessor, another one is refused.
* A primary whose store commits nothing for that long, although it should, steps down: it would
  settle nothing for ever, and look alive.
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
    """This member is primary no longer."""

    def __init__(self) -> None:
        super().__init__("this member has stepped down")


class PrimaryTerm(Protocol):
    """The primary's term of office: what the member does for its replica set."""

    async def write_state(self, state: rules.GenerationState) -> None:
        """Write generation and pending durably."""

    def generation_changed(self, record: rules.ArbiterRecord) -> None:
        """The primary serves in another generation now."""

    def replicas_changed(self) -> None:
        """A replica is ready, or no more."""

    def step_down(self, reason: str) -> None:
        """Serve no longer."""


class ReplicaSet:
    """The replicas of one primary.

    :param state, held: what the promotion left: this member's state, the arbiter's record.
    :param store: this member's, to see that it goes on.
    :param wiring: the wiring of the cluster as it is when this is called, in pieces, for a replica that
        joins.
    :param queues: those that are replicated.
    :param backup_timeout: seconds.
    :param name: this member's.
    :param on_set_aside: called with the names of a ``replica`` and of a ``queue``, and the
        ``state``: ``set-aside`` when the queue is not copied to it for now, ``copied`` when it was after all.
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
        """By replica: its last command about wiring, which is executed after all those before it."""
        self._settling: set[asyncio.Future[None]] = set()
        self._ended = False
        self._watch = self._loop.call_later(backup_timeout / TICKS, self._tick)

    @property
    def ready(self) -> frozenset[str]:
        """The names of the replicas whose drop needs a new generation."""
        return frozenset(name for name, machine in self._machines.items() if machine.ready)

    async def close(self) -> None:
        """The member serves no longer."""
        self._ended = True
        self._watch.cancel()
        # The guard is finished and settles nothing; but a later term must not wait for these replicas.
        for replica in self.replicas.values():
            self._orphans += replica.drop()
        self.replicas.clear()
        for message in self._orphans:
            self._guard.acknowledged(message)
        self._orphans.clear()
        for waiter in self._settling:
            if not waiter.done():
                waiter.set_exception(SteppedDownError)
        if self._shrink_task is not None and self._shrink_task is not asyncio.current_task():
            self._shrink_task.cancel()
            await asyncio.wait([self._shrink_task])

    # -- joining --------------------------------------------------------------------------------

    def refusal(self, name: str, identity: str) -> str | None:
        """Why a member must not join.

        :param identity: its store's UUID.
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
        """A backup that ``refusal`` lets in attached its control link; its former one is replaced."""
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
        """Send it to every replica."""
        for replica in tuple(self.replicas.values()):
            self._wiring_commands[replica.name] = replica.command(operation, arguments)

    async def wiring_settled(self) -> None:
        """Wait until every ready replica has the wiring so far durably.

        One that is dropped meanwhile is waited for as a transfer waits: until the in-sync set has
        shrunk.  One that still catches up need not be: it gets its generation last of all.

        :raises SteppedDownError: when it cannot be known any more.
        """
        commands = [self._wiring_commands[name] for name in self.ready if name in self._wiring_commands]
        if commands:
            await asyncio.wait(commands)
        if self._ended:
            raise SteppedDownError
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._settling.add(waiter)
        try:
            self._guard.when_complete(SAFE, _settle, waiter)
            await waiter
        finally:
            self._settling.discard(waiter)

    # -- queues ---------------------------------------------------------------------------------

    def queue_added(self, queue: Queue) -> None:
        """A queue whose messages are replicated is new."""
        for replica in self.replicas.values():
            replica.add(queue)

    def queue_removed(self, queue: Queue) -> None:
        """A queue is gone."""
        for replica in tuple(self.replicas.values()):
            self._wiring_commands[replica.name] = replica.remove(queue)

    # -- becoming ready -------------------------------------------------------------------------

    def acknowledged(self, message: Message) -> None:
        """A replica has acknowledged a message that waits for it."""
        self._guard.acknowledged(message)

    def replica_started_waiting(self, replica: Replica) -> None:
        """Its queue feeds have caught up: nothing is settled without it from now on."""
        self._advance(replica.name, rules.StartWaiting())

    def replica_caught_up(self, replica: Replica) -> None:
        """It has acknowledged everything from before."""
        self._advance(replica.name, rules.AwaitDrained())
        self._make_ready()

    def _advance(self, name: str, step: object, record: rules.ArbiterRecord | None = None) -> None:
        self._machines[name] = self._machines[name].finished(step, record=record)

    def _make_ready(self) -> None:
        """Hand the generation to every replica that waits for it, unless a new one is being claimed."""
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
        """Report it: the replica gets no generation while one is set aside."""
        state = "copied" if copied else "set-aside"
        self._on_set_aside(replica=replica.name, queue=queue.name, state=state)

    def replica_failed(self, replica: Replica, reason: str) -> None:
        """Drop a replica; if it was ready, nothing is settled until the in-sync set has shrunk."""
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
        """Why this primary must step down after the arbiter was read: rule 6."""
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
        """An error must not leave the guard suspended, with clients waiting."""
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


def _settle(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
