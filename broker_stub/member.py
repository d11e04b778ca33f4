"""One member's part in the cluster: it follows, is promoted, leads, steps down.

Theory of operation
-------------------
A member reads its store, and follows whichever member is primary (``replication.backup``), for
ever.  Told to promote, it stops following, asks the arbiter (``generation.Promotion``), and
leads (``replication.leading``): first ``recovering``, while other replicas that were ready under
the old primary may still come, then ``primary``.  When it steps down it follows again, with what
is left of its clients sent away.

Rules
-----
* The number and the pending claim are written here and nowhere else, always through
  ``write_state``.
* Moves are one at a time: a second promotion waits until the first one is decided.
* A store that fails is the end of a primary: it steps down and accepts nothing more.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from broker_stub import generation as rules
from broker_stub.address import Address
from broker_stub.addresses import Addresses
from broker_stub.arbiter import Arbiter, ArbiterUnavailableError
from broker_stub.keeper import Keeper, is_replicated
from broker_stub.membership import Membership, Move, MoveRefusedError, Role
from broker_stub.messages import Replicate
from broker_stub.queues import Queue
from broker_stub.replication import backup, copy
from broker_stub.replication.guard import Guard
from broker_stub.replication.leading import Leading
from broker_stub.sections import inspect
from broker_stub.store import Pending, Replica, Store, StoreFailedError
from haclient import aio
from haclient.discovery.backoff import Backoff
from haclient.discovery.policy import Policy

logger = logging.getLogger("broker_stub.member")

_RECOVERING = "recovering"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """How a member takes part in its cluster.

    :param name: the member's name, unlike any other in the cluster.
    :param backup_timeout: seconds without an acknowledgement after which a replica is dropped, and
        that a new primary waits for the other replicas.
    """

    name: str
    backup_timeout: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSetup:
    """What a broker needs to be a member of a cluster with an arbiter.

    :param factory: makes connections as cluster-admin to the broker URL (a list of members, never
        the virtual IP of the clients), with the capability ``backup.CAPABILITY``.
    """

    options: ClusterOptions
    store: Store
    arbiter: Arbiter
    factory: Callable[[], aio.ConnectionFactory]

    def member(self, face: Face, addresses: Addresses) -> Member:
        """The member of this broker."""
        return Member(self.options, face, addresses, self.store, self.arbiter, self.factory)


class Face(Protocol):
    """The broker, as the member sees it."""

    def become(self, membership: Membership) -> None:
        """Show the world what this member is now."""

    def send_clients_away(self, why: str) -> None:
        """This member serves no longer."""


class Member:
    """The cluster side of a broker."""

    def __init__(  # noqa: PLR0917  (made in one place, ``ClusterSetup.member``)
        self,
        options: ClusterOptions,
        face: Face,
        addresses: Addresses,
        store: Store,
        arbiter: Arbiter,
        factory: Callable[[], aio.ConnectionFactory],
    ) -> None:
        self.state = rules.GenerationState()
        self.membership = Membership(Role.CONNECTING, arbitrated=True)
        self.leading: Leading | None = None
        self.others: tuple[str, ...] = ()
        """The replicas that are ready beside this one, or under it."""
        self._options = options
        self._face = face
        self._addresses = addresses
        self._store = store
        self._arbiter = arbiter
        self._guard = Guard()
        self._keeper = Keeper(store, self._guard)
        self._copy = copy.LocalCopy(self, addresses, self._keeper, store)
        self._factory = factory()
        self._backoff = Backoff(Policy(), random.Random())
        self._backup: backup.Backup | None = None
        self._moving = asyncio.Lock()
        self._recovery: asyncio.TimerHandle | None = None
        self._expected: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        store.on_failed(self._store_failed)

    # -- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the store, and follow whoever is primary."""
        snapshot = await self._store.load()
        pending = snapshot.pending
        self.state = rules.GenerationState(
            snapshot.number, None if pending is None else rules.Pending(pending.number, pending.claim)
        )
        self.others = tuple(replica.name for replica in snapshot.replicas)
        for stored in snapshot.queues:
            record = stored.record
            mode = Replicate(record.replicate)
            queue = self._addresses.declare(record.name, replicate=mode, identity=str(record.identity))
            await self._restore(queue, stored.key)
            self._keeper.follow(queue)
        self._addresses.watcher = self
        self._set(self.membership)
        self._follow()

    async def _restore(self, queue: Queue, key: int) -> None:
        async for chunk in self._store.messages(key):
            for message in chunk:
                envelope = inspect(message.data)
                queue.copy(
                    message.id, message.data, envelope, message.delivery_count, message.expires_at or 0
                )
        for duplicate_id, number in await self._store.duplicates(key):
            queue.remember(duplicate_id, number)

    async def stop(self) -> None:
        """Follow and lead no more; the store stays open for whoever closes it."""
        await self._stop_following()
        if self._recovery is not None:
            self._recovery.cancel()
        if self.leading is not None:
            leading, self.leading = self.leading, None
            self._guard.finish()
            await leading.close()
        for task in tuple(self._tasks):
            task.cancel()
        await self._factory.close()

    def _follow(self) -> None:
        self._backup = backup.Backup(self._copy, self._factory, self._options.name, self._pause)
        self._backup.start()

    async def _stop_following(self) -> None:
        if self._backup is not None:
            await self._backup.stop()
            self._backup = None

    def _pause(self) -> float:
        return self._backoff.next().delay

    # -- moves ----------------------------------------------------------------------------------

    async def promote(self, *, force: bool = False) -> None:
        """Become the primary, if the arbiter agrees.

        :param force: whatever this store lacks (``--force-primary``).
        :raises MoveRefusedError: with the reason; nothing has changed then.
        """
        async with self._moving:
            if not force or self.membership.role.serves:
                self.membership.check(Move.PROMOTE)
            await self._stop_following()
            try:
                promotion = await self._promotion(force=force)
            except (ArbiterUnavailableError, StoreFailedError, MoveRefusedError) as error:
                self.lost_primary()
                self._follow()
                raise MoveRefusedError(str(error)) from error
            self._lead(promotion)

    async def _promotion(self, *, force: bool) -> rules.Promotion:
        record = await self._arbiter.read()
        begin = rules.Promotion.forced if force else rules.Promotion.begin
        promotion = begin(self.state, record, str(uuid.uuid4()))
        while True:
            match promotion.step:
                case rules.WritePending(state) | rules.WriteNumber(state):
                    await self.write_state(state)
                    promotion = promotion.finished(promotion.step)
                case rules.CompareAndSet(expected, new):
                    promotion = await self._compare_and_set(promotion, expected, new)
                case rules.Refused(refusal):
                    raise MoveRefusedError(str(refusal))
                case rules.Done():
                    return promotion

    async def _compare_and_set(
        self, promotion: rules.Promotion, expected: rules.ArbiterRecord, new: rules.ArbiterRecord
    ) -> rules.Promotion:
        try:
            won = await self._arbiter.compare_and_set(expected, new)
        except ArbiterUnavailableError as error:
            return promotion.unreachable(str(error))
        return promotion.compared(won=won)

    def _lead(self, promotion: rules.Promotion) -> None:
        assert isinstance(promotion.step, rules.Done)
        record = promotion.step.record
        self.state = promotion.state
        for queue in self._addresses:
            queue.start_generation(record.number)
        self._guard.begin()
        self.leading = Leading(
            self,
            self._arbiter,
            self._guard,
            promotion.state,
            record,
            wiring=lambda: copy.wiring_of(self._addresses),
            queues=self._copy.replicated_queues,
            backup_timeout=self._options.backup_timeout,
        )
        role = Role.CONNECTING if self.membership.role is Role.CATCHUP else self.membership.role
        self._set(Membership(role, self.membership.generation, arbitrated=True).serve(record.number))
        self._recover()

    def _recover(self) -> None:
        """Wait for the other replicas of the old primary, never for that one itself."""
        self._expected = set(self.others) - {self._options.name}
        self.others = ()
        self._guard.shut(_RECOVERING)
        if not self._expected:
            self._recovered()
            return
        logger.info("recovering: waits for %s", ", ".join(sorted(self._expected)))
        loop = asyncio.get_running_loop()
        self._recovery = loop.call_later(self._options.backup_timeout, self._recovered)

    def _recovered(self) -> None:
        if self._recovery is not None:
            self._recovery.cancel()
            self._recovery = None
        if self.membership.role is Role.RECOVERING:
            self._set(self.membership.recovered())
            self._guard.reopen(_RECOVERING)

    async def demote(self) -> None:
        """Step down because somebody says so.

        :raises MoveRefusedError: when this member does not serve.
        """
        async with self._moving:
            self.membership.check(Move.DEMOTE)
            await self._abdicate("told to")

    def step_down(self, reason: str) -> None:
        """Settle nothing more, now; the rest follows."""
        self._guard.finish()
        task = asyncio.get_running_loop().create_task(self._step_down(reason), name="step down")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _step_down(self, reason: str) -> None:
        async with self._moving:
            if self.leading is not None:
                await self._abdicate(reason)

    async def _abdicate(self, reason: str) -> None:
        logger.warning("steps down: %s", reason)
        self._guard.finish()
        leading, self.leading = self.leading, None
        if self._recovery is not None:
            self._recovery.cancel()
            self._recovery = None
        self._set(self.membership.demote())
        self._face.send_clients_away(reason)
        if leading is not None:
            self.state = leading.state
            await leading.close()
        self._follow()

    def _store_failed(self, error: StoreFailedError) -> None:
        logger.error("the store failed: %s", error)
        if self.leading is not None:
            self.step_down(f"the store failed: {error}")

    # -- for the copy and the leading part ------------------------------------------------------

    async def write_state(self, state: rules.GenerationState) -> None:
        """Write number and pending durably, in one commit."""
        pending = state.pending
        noted = None if pending is None else Pending(pending.number, pending.claim)
        written = self._store.write_pending(noted)
        self._store.write_generation(state.number).add_done_callback(_retrieve)
        await written
        await self._store.when_committed(self._store.sequence)
        self.state = state

    def found_primary(self, primary: Address | None, generation: int) -> None:
        """A primary is followed."""
        self._set(self.membership.found(primary, generation))

    def caught_up(self, number: int, ready: tuple[str, ...]) -> None:
        """The primary handed its number over."""
        self._backoff.reset()
        self._note_others(ready)
        self._set(self.membership.caught_up(number))

    def lost_primary(self) -> None:
        """No primary is followed."""
        self._set(self.membership.lost())

    def generation_changed(self, record: rules.ArbiterRecord) -> None:
        """This primary has gone on alone."""
        assert self.leading is not None
        self.state = self.leading.state
        generation = record.number
        role, arbitrated = self.membership.role, True
        self._set(Membership(role, generation, arbitrated=arbitrated))

    def replicas_changed(self) -> None:
        """A replica is ready, or no more."""
        if self.leading is None:
            return
        ready = self.leading.ready
        self._note_others(tuple(sorted(ready)))
        if self._expected and self._expected <= ready:
            self._recovered()

    def _note_others(self, ready: tuple[str, ...]) -> None:
        self.others = tuple(name for name in ready if name != self._options.name)
        self._store.put_replicas(Replica(name, "") for name in self.others)

    def follow_hint(self, primary: Address | None) -> None:
        """Somebody says where the primary is: clients are sent there."""
        if not self.membership.role.serves:
            self._set(replace(self.membership, primary=primary))

    # -- wiring ---------------------------------------------------------------------------------

    def queue_added(self, queue: Queue) -> None:
        """A queue is new, here or at the primary."""
        self._keeper.queue_added(queue)
        if self.leading is None or queue.temporary:
            return
        queue.start_generation(self.leading.held.number)
        if queue.replicate is not Replicate.NONE:
            self.leading.wiring_changed("queue", copy.queue_entry(queue))
        if is_replicated(queue):
            self.leading.queue_added(queue)

    def queue_deleted(self, queue: Queue) -> None:
        """A queue is gone."""
        self._keeper.queue_deleted(queue)
        if self.leading is not None and not queue.temporary:
            self.leading.queue_removed(queue)
            self.leading.wiring_changed("queue-deleted", {"identity": queue.identity})

    # -- inside ---------------------------------------------------------------------------------

    def _set(self, membership: Membership) -> None:
        self.membership = membership
        self._face.become(membership)

    def status(self) -> dict[str, Any]:
        """What an operator wants to know of the cluster side."""
        replicas = self.leading.replicas.values() if self.leading is not None else ()
        return {
            "number": self.state.number,
            "pending": None if self.state.pending is None else self.state.pending.number,
            "replicas": [{"name": r.name, "phase": str(r.phase), "lag": r.lag} for r in replicas],
            "store": "" if not self._store.damage else self._store.damage,
        }


def _retrieve(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()
