"""The primary's part in the cluster: its replicas, and what happens when one drops.

Theory of operation
-------------------
A backup joins with its control link and is fed by its browsers (``replica``, ``browser``).  The
machines of ``generation`` say what to do next when it has caught up (``BecomeReady``) and when a
ready one drops (``GoAlone``); this class carries their steps out and tells them what happened.
Only one ``GoAlone`` runs at a time; a replica that drops meanwhile is told to the running one.

Rules
-----
* From the drop of a ready replica until ``GoAlone`` is done the guard's gate is shut.
* What waits for a dropped replica is released only then.
* A replica that owes acknowledgements and sends none for ``backup_timeout`` is dropped.
* A primary whose store commits nothing for that long, although it should, steps down: it would
  settle nothing for ever, and look alive.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from broker_stub.durability.guard import Guard
from broker_stub.election import generation as rules
from broker_stub.election import generation_steps as steps
from broker_stub.election.arbiter import Arbiter, ArbiterUnavailableError
from broker_stub.queueing.message import SAFE, Message
from broker_stub.queueing.queue import Queue
from broker_stub.replication.replica import Outlet, Phase, Replica
from haclient.engine.links import SenderLink

logger = logging.getLogger("broker_stub.replication")

_ALONE = "going alone"
# How often the acknowledgements that are due are looked at, as a part of the time-out.
_LOOKS = 10


class SteppedDownError(Exception):
    """This member is primary no longer."""

    def __init__(self) -> None:
        super().__init__("this member has stepped down")


class Throne(Protocol):
    """The member, as its leading part sees it."""

    async def write_state(self, state: rules.GenerationState) -> None:
        """Write number and pending durably."""

    def generation_changed(self, record: rules.ArbiterRecord) -> None:
        """The primary serves in another generation now."""

    def replicas_changed(self) -> None:
        """A replica is ready, or no more."""

    def step_down(self, reason: str) -> None:
        """Serve no longer."""


class Commits(Protocol):
    """The store, as far as a primary watches it."""

    @property
    def sequence(self) -> int:
        """The last operation that it was given."""

    @property
    def committed(self) -> int:
        """The last one that is durable."""


class Leading:
    """The replicas of one primary.

    :param state, held: what the promotion left: this member's state, the arbiter's record.
    :param store: this member's, to see that it goes on.
    :param wiring: the wiring of the cluster, as it is sent to a replica that joins.
    :param backup_timeout: seconds.
    """

    def __init__(
        self,
        throne: Throne,
        arbiter: Arbiter,
        guard: Guard,
        state: rules.GenerationState,
        held: rules.ArbiterRecord,
        *,
        store: Commits,
        wiring: Callable[[], Mapping[str, Any]],
        queues: Callable[[], Iterable[Queue]],
        backup_timeout: float,
    ) -> None:
        self.state = state
        self.held = held
        self.replicas: dict[str, Replica] = {}
        self._throne = throne
        self._arbiter = arbiter
        self._guard = guard
        self._store = store
        self._idle_looks = 0
        self._committed = store.committed
        self._wiring = wiring
        self._queues = queues
        self._timeout = backup_timeout
        self._loop = asyncio.get_running_loop()
        self._machines: dict[str, rules.BecomeReady] = {}
        self._alone: rules.GoAlone | None = None
        self._going: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._orphans: list[Message] = []
        self._told: dict[asyncio.Future[None], str] = {}
        """Orders about wiring that are not carried out yet, and whose they are."""
        self._settling: set[asyncio.Future[None]] = set()
        self._over = False
        self._watch = self._loop.call_later(backup_timeout / _LOOKS, self._look)

    @property
    def ready(self) -> frozenset[str]:
        """The names of the replicas whose drop needs a new generation."""
        return frozenset(name for name, machine in self._machines.items() if machine.ready)

    async def close(self) -> None:
        """The member serves no longer."""
        self._over = True
        self._watch.cancel()
        # The guard is finished, so nobody is told; but a later reign must not wait for these replicas.
        for replica in self.replicas.values():
            self._orphans += replica.drop()
        self.replicas.clear()
        for message in self._orphans:
            self._guard.has(message)
        self._orphans.clear()
        for waiter in self._settling:
            if not waiter.done():
                waiter.set_exception(SteppedDownError)
        if self._going is not None and self._going is not asyncio.current_task():
            self._going.cancel()
            await asyncio.wait([self._going])

    # -- joining --------------------------------------------------------------------------------

    def join(self, name: str, outlet: Outlet, control: SenderLink) -> Replica:
        """A backup attached its control link; one of the same name is replaced."""
        former = self.replicas.get(name)
        if former is not None:
            self.replica_failed(former, "it came again")
        replica = Replica(name, self, outlet, self._loop.time)
        self.replicas[name] = replica
        self._machines[name] = rules.BecomeReady(name)
        for queue in self._queues():
            replica.add(queue)
        control.owner = replica
        replica.begin(control, self._wiring())
        logger.info("%s joined, it catches up", name)
        return replica

    # -- wiring ---------------------------------------------------------------------------------

    def wiring_changed(self, operation: str, arguments: Mapping[str, Any]) -> None:
        """Tell every replica."""
        for replica in tuple(self.replicas.values()):
            self._await(replica, replica.order(operation, arguments))

    def _await(self, replica: Replica, order: asyncio.Future[None]) -> None:
        self._told[order] = replica.name
        order.add_done_callback(self._carried_out)

    def _carried_out(self, order: asyncio.Future[None]) -> None:
        del self._told[order]

    async def wiring_settled(self) -> None:
        """Wait until every ready replica has what it was told of the wiring durably.

        One that is dropped meanwhile is waited for as a transfer waits: until this member has gone
        on alone.  One that still catches up need not be: it is told its number last of all.

        :raises SteppedDownError: when nobody can know any more.
        """
        ready = self.ready
        orders = [order for order, name in self._told.items() if name in ready]
        if orders:
            await asyncio.wait(orders)
        if self._over:
            raise SteppedDownError
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._settling.add(waiter)
        try:
            self._guard.hold(SAFE, _settle, waiter)
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
            self._await(replica, replica.remove(queue))

    # -- becoming ready -------------------------------------------------------------------------

    def has(self, message: Message) -> None:
        """A replica has acknowledged a message that waits for it."""
        self._guard.has(message)

    def replica_started_waiting(self, replica: Replica) -> None:
        """Its browsers are at their seams: nothing is settled without it from now on."""
        self._advance(replica.name, rules.StartWaiting())

    def replica_caught_up(self, replica: Replica) -> None:
        """It has acknowledged everything from before."""
        self._advance(replica.name, rules.AwaitDrained())
        self._pass_gate()

    def _advance(self, name: str, step: object, number: int | None = None) -> None:
        self._machines[name] = self._machines[name].finished(step, number=number)

    def _pass_gate(self) -> None:
        """Hand the number to every replica that waits for it, unless one is being taken now."""
        if self._alone is not None:
            return
        passed = False
        for name, machine in tuple(self._machines.items()):
            if isinstance(machine.step, rules.AwaitGate):
                self._advance(name, rules.AwaitGate(), self.held.number)
                self.replicas[name].phase = Phase.READY
                self._advance(name, self._machines[name].step)
                passed = True
                logger.info("%s is ready in generation %d", name, self.held.number)
        if passed:
            self._hand_over(self.ready)
            self._throne.replicas_changed()

    def _hand_over(self, names: Iterable[str]) -> None:
        ready = sorted(self.ready)
        for name in names:
            replica = self.replicas.get(name)
            if replica is not None:
                replica.order("number", {"number": self.held.number, "ready": ready})

    # -- dropping -------------------------------------------------------------------------------

    def replica_failed(self, replica: Replica, reason: str) -> None:
        """Drop a replica; if it was ready, nothing is settled until this member goes on alone."""
        if self._over or self.replicas.get(replica.name) is not replica:
            return
        ready = self.ready
        del self.replicas[replica.name]
        del self._machines[replica.name]
        logger.warning("%s is dropped: %s", replica.name, reason)
        self._loop.call_soon(replica.hang_up, f"{replica.name} is dropped: {reason}")
        if rules.must_go_alone(ready, replica.name):
            self._guard.shut(_ALONE)
            self._orphans += replica.drop()
            self._go_alone_without(replica.name)
            self._throne.replicas_changed()
        else:
            for message in replica.drop():
                self._guard.has(message)

    def _go_alone_without(self, name: str) -> None:
        if self._alone is not None:
            self._alone = self._alone.dropped(name)
            self._changed.set()
            return
        self._alone = rules.GoAlone.begin(self.state, self.held, self.ready)
        self._going = self._loop.create_task(self._go_alone(), name="go alone")
        self._going.add_done_callback(self._gone)

    def _look(self) -> None:
        self._watch = self._loop.call_later(self._timeout / _LOOKS, self._look)
        if self._store_hangs():
            self._throne.step_down(f"the store has committed nothing for {self._timeout:g} s")
            return
        for replica in tuple(self.replicas.values()):
            if replica.stalled_for() > self._timeout:
                self.replica_failed(replica, f"no acknowledgement for {self._timeout:g} s")

    def _store_hangs(self) -> bool:
        """Whether what it was given stays uncommitted.  Looks are counted, for a process that was paused."""
        store = self._store
        if store.committed == store.sequence or store.committed != self._committed:
            self._idle_looks = 0
        self._idle_looks += 1
        self._committed = store.committed
        return self._idle_looks > _LOOKS

    # -- going alone ----------------------------------------------------------------------------

    def _gone(self, going: asyncio.Task[None]) -> None:
        """The gate must not stay shut, with clients behind it, because of an error."""
        error = None if going.cancelled() else going.exception()
        if error is not None and not self._over:
            logger.error("going alone failed", exc_info=error)
            self._throne.step_down(f"generation {self.held.number} is over: {error}")

    async def _go_alone(self) -> None:
        while self._alone is not None:
            step = self._alone.step
            match step:
                case rules.Done(record):
                    self._done(record)
                    return
                case rules.StepDown(reason):
                    self._throne.step_down(reason)
                    return
                case _:
                    await self._carry_out(step)

    async def _carry_out(self, step: steps.GoAloneStep) -> None:
        match step:
            case rules.MakeClaim():
                self._tell(lambda alone: alone.with_claim(str(uuid.uuid4())))
            case rules.NotePending(replicas, pending):
                self._note_pending(replicas, pending)
                self._tell(lambda alone: alone.finished(step))
            case rules.AwaitNoted():
                self._changed.clear()
                await self._changed.wait()
            case rules.WritePending(state) | rules.WriteNumber(state):
                await self._throne.write_state(state)
                self._tell(lambda alone: alone.finished(step))
            case rules.CompareAndSet(expected, new):
                await self._compare_and_set(expected, new)
            case rules.HandOver(replicas, number):
                self.held = rules.ArbiterRecord(number, self.held.claim)
                self._hand_over(replicas)
                self._tell(lambda alone: alone.finished(step))

    async def _compare_and_set(self, expected: rules.ArbiterRecord, new: rules.ArbiterRecord) -> None:
        try:
            won = await self._arbiter.compare_and_set(expected, new)
        except ArbiterUnavailableError as error:
            reason = str(error)
            self._tell(lambda alone: alone.unreachable(reason))
        else:
            self._tell(lambda alone: alone.compared(won=won))

    def _note_pending(self, replicas: Iterable[str], pending: rules.Pending) -> None:
        for name in replicas:
            replica = self.replicas.get(name)
            if replica is None:
                continue
            noted = replica.order("pending", {"number": pending.number, "claim": pending.claim})
            noted.add_done_callback(functools.partial(self._noted, name, pending))

    def _noted(self, name: str, pending: rules.Pending, future: asyncio.Future[None]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._tell(lambda alone: alone.noted(name, pending))
            self._changed.set()

    def _tell(self, change: Callable[[rules.GoAlone], rules.GoAlone]) -> None:
        if self._alone is not None:
            self._alone = change(self._alone)

    def _done(self, record: rules.ArbiterRecord) -> None:
        assert self._alone is not None
        self.state, self.held = self._alone.state, record
        self._alone = None
        orphans, self._orphans = self._orphans, []
        self._throne.generation_changed(record)
        for message in orphans:
            self._guard.has(message)
        self._guard.reopen(_ALONE)
        self._pass_gate()


def _settle(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
