"""One member's part in the cluster: it follows, is promoted, serves as primary, and steps down.

Theory of operation
-------------------
A member reads its store, and follows the current primary (``replication.backup``).  On a promote command it
stops following, asks the arbiter (``promotion``), and becomes primary (``replication.replica_set``): first
``recovering`` (``redundancy_wait``), then ``primary``.  When it steps down, it closes its clients'
connections and follows again.

Rules
-----
* Only this module writes the generation and the pending claim, always through ``write_state``.
* Moves run one at a time: a second promotion waits until the first one is decided.
* A store failure ends the member, whatever its role: it settles nothing more, and its process ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Protocol

from broker_stub.durability import restore
from broker_stub.durability.committed_delivery import CommittedDelivery
from broker_stub.durability.disk_watch import NO_LIMITS, DiskLimits, DiskWatch
from broker_stub.durability.guard import Guard
from broker_stub.durability.persister import Persister
from broker_stub.election import generation as rules
from broker_stub.election.arbiter import Arbiter, ArbiterMissingError, ArbiterUnavailableError
from broker_stub.election.roles import Membership, Move, MoveRefusedError, Role
from broker_stub.member import promotion
from broker_stub.member.arbiter_watch import ArbiterWatch
from broker_stub.member.following import Following, MakeFactory
from broker_stub.member.forcing import forced_loss
from broker_stub.member.redundancy_wait import RedundancyWait
from broker_stub.member.wiring import Wiring
from broker_stub.queueing.nodes import Addresses
from broker_stub.queueing.queue import Queue
from broker_stub.replication import apply, backup, definitions
from broker_stub.replication.backup_session import MemberIdentity
from broker_stub.replication.replica_set import ReplicaSet, SteppedDownError
from broker_stub.store import DiskUsage, Store, StoreFailedError
from haclient.cluster_url.endpoint import Endpoint
from haclient.printable.log import get_logger
from haclient.telemetry.schema import Kind

logger = get_logger("broker_stub.member.member")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """The options of a member of a cluster.

    :param name: unique in the cluster.
    :param arbiter_interval: seconds between a primary's reads of the arbiter.
    :param backup_timeout: seconds without an acknowledgement after which a replica is dropped, and that a new
        primary waits for the other replicas.
    :param store, arbiter: descriptions for the status.
    :param force_primary: take over at start, even if the store lacks messages.
    :param disk: the limits of free disk space.
    """

    name: str
    backup_timeout: float = 10.0
    arbiter_interval: float = 3.0
    store: str = "memory"
    arbiter: str = ""
    force_primary: bool = False
    disk: DiskLimits = NO_LIMITS


class StartRefusedError(Exception):
    """The arbiter is missing, or belongs to another cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSteps:
    """The parts of replication between sites that a member calls; registered by ``broker``.

    :param state: on a backup, makes the object that applies messages with site progress.
    :param reconcile: makes a new primary's queues agree with their site events, before it serves.
    """

    state: apply.MakeSiteState
    reconcile: Callable[[Addresses, Persister], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSetup:
    """The arguments of a member of a cluster with an arbiter.

    :param factory: makes connections as cluster-admin, with the capability ``backup.CAPABILITY``.  They go to
        the given members (never the clients' virtual IP), or to the broker URL if none are given.
    """

    options: ClusterOptions
    store: Store
    arbiter: Arbiter
    factory: MakeFactory

    def member(self, host: MemberHost, addresses: Addresses, site: SiteSteps) -> Member:
        """Make the member of this broker."""
        return Member(self.options, host, addresses, self.store, self.arbiter, self.factory, site)


class MemberHost(Protocol):
    """The broker as its member sees it."""

    def become(self, membership: Membership) -> None:
        """Adopt the new role and state of this member."""

    def close_client_connections(self, why: str) -> None:
        """Close all client connections."""

    def give_up(self, why: str) -> None:
        """Stop the broker: this member cannot continue."""

    def record(self, kind: Kind, **facts: Any) -> None:
        """Record an event in the telemetry."""


class Member:
    """The cluster side of a broker."""

    def __init__(  # noqa: PLR0917  (made in one place, ``ClusterSetup.member``)
        self,
        options: ClusterOptions,
        host: MemberHost,
        addresses: Addresses,
        store: Store,
        arbiter: Arbiter,
        factory: MakeFactory,
        site: SiteSteps,
    ) -> None:
        self.state = rules.GenerationState()
        self.membership = Membership(Role.CONNECTING, arbitrated=True)
        self.replica_set: ReplicaSet | None = None
        self.others: tuple[str, ...] = ()
        """The other replicas that were ready under the last primary."""
        self._was_in_sync = False
        self._options = options
        self._host = host
        self._addresses = addresses
        self._store = store
        self._arbiter = arbiter
        self._guard = Guard()
        self._persister = Persister(store, self._guard)
        self._delivery = CommittedDelivery(addresses, self._guard, self._persister)
        self._site = site
        self._applier = apply.Applier(self, addresses, self._persister, store, site.state)
        self._moving = asyncio.Lock()
        self._ended: str | None = None
        """The reason why no more moves are possible."""
        self._empty = False
        """True if the store had no queue and no exchange at the start, so that it may join a cluster."""
        self._redundancy_wait: RedundancyWait | None = None
        self._watch: ArbiterWatch | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._disk = DiskWatch(options.disk, options.store)
        self._following = Following(
            lambda factory, pause: backup.Backup(
                self._applier,
                factory,
                MemberIdentity(options.name, str(store.identity)),
                pause,
                store=store,
                timeout=options.backup_timeout,
            ),
            factory,
            self._disk,
        )
        store.on_failed(self._store_failed)
        store.on_disk(self._measured)

    # -- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the store, and follow the primary.

        :raises StartRefusedError: when the arbiter is missing, or belongs to another cluster.
        """
        if self._store.corruption:
            logger.error("the store is replaced by an empty one: %s", self._store.corruption)
        snapshot = await self._store.load()
        self.state = rules.GenerationState(
            snapshot.generation, snapshot.pending, snapshot.claim, snapshot.cluster
        )
        self._empty = not (snapshot.queues or snapshot.exchanges)
        self.others = snapshot.replicas
        await self._check_arbiter()
        await restore.restore(self._addresses, self._persister, self._store, snapshot)
        self._addresses.watcher = Wiring(self._persister, lambda: self.replica_set)
        self._set(replace(self.membership, generation=self.state.generation or 0))
        if self._options.force_primary:
            logger.warning("%s", await self.promote(force=True))
        else:
            self._following.start()

    async def _check_arbiter(self) -> None:
        """Check that the arbiter, if it answers, is this cluster's; only moves need an answer."""
        try:
            wrong = rules.other_cluster(self.state, await self._arbiter.read())
        except ArbiterMissingError as error:
            raise StartRefusedError(str(error)) from error
        except ArbiterUnavailableError as error:
            logger.warning("the arbiter cannot be read, and this member not be promoted: %s", error)
        else:
            if wrong is not None:
                raise StartRefusedError(str(wrong))

    async def stop(self) -> None:
        """Stop following or serving; the store stays open for its owner to close."""
        self._ended = self._ended or "this member stops"
        async with self._moving:
            await self._following.stop()
            self._cancel_waits()
            if self.replica_set is not None:
                replica_set, self.replica_set = self.replica_set, None
                self._delivery.finish()
                await replica_set.close()
        for task in tuple(self._tasks):
            task.cancel()
        await self._following.close()

    def _cancel_waits(self) -> None:
        if self._redundancy_wait is not None:
            self._redundancy_wait.cancel()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    # -- moves ----------------------------------------------------------------------------------

    async def set_members(self, members: tuple[Endpoint, ...], broker_url: str) -> None:
        """Search for the primary at these members, or at the broker URL, from the next search on."""
        async with self._moving:
            searches = self.membership.role is Role.CONNECTING
            await self._following.set_members(members, broker_url, searches=searches)

    async def promote(self, *, force: bool = False) -> str:
        """Become primary if the arbiter agrees; return a warning if force may have lost messages.

        :param force: promote even if this store lacks messages (``--force-primary``).
        :raises MoveRefusedError: with the reason; nothing has changed then.
        """
        async with self._moving:
            self._check_alive()
            if not force or self.membership.role.serves:
                self._check_promotion()
            await self._following.stop()
            before = self.state
            try:
                won = await promotion.promote(
                    self, self._arbiter, force=force, patience=self._options.backup_timeout
                )
                self._start_term(won, force=force)
            except Exception as error:
                self.lost_primary()
                self._following.start()
                if isinstance(error, (ArbiterUnavailableError, StoreFailedError, MoveRefusedError)):
                    raise MoveRefusedError(self._disk.add_to(str(error))) from error
                raise
            return forced_loss(before, won.record) if force else ""

    def _check_promotion(self) -> None:
        try:
            self.membership.check(Move.PROMOTE)
        except MoveRefusedError as error:
            if self.membership.role is not Role.CATCHUP:
                raise
            primary = f"the primary of generation {self.membership.generation}"
            raise MoveRefusedError(f"{error}: it has no generation until it has all of {primary}") from error

    def _check_alive(self) -> None:
        if self._ended is not None:
            raise MoveRefusedError(self._ended)

    def _start_term(self, won: rules.Promotion, *, force: bool) -> None:
        self._check_alive()  # the store may have failed after the promotion's last write
        assert isinstance(won.step, rules.Done)
        record = won.step.record
        serving = self.membership.serve(record.generation, force=force)
        self.state = won.state
        for queue in self._addresses:
            queue.start_generation(record.generation)
        self._delivery.begin()
        self._site.reconcile(self._addresses, self._persister)
        self.replica_set = ReplicaSet(
            self,
            self._arbiter,
            self._guard,
            won.state,
            record,
            store=self._store,
            wiring=lambda: definitions.wiring_of(self._addresses),
            queues=self._applier.replicated_queues,
            backup_timeout=self._options.backup_timeout,
            name=self._options.name,
            on_set_aside=lambda **facts: self._host.record(Kind.MEMBER_SET_ASIDE, **facts),
        )
        self._watch = ArbiterWatch(
            self._arbiter,
            held=lambda: self.replica_set.held if self.replica_set is not None else record,
            superseded=self._superseded,
            step_down=self.step_down,
            interval=self._options.arbiter_interval,
        )
        self._set(serving)
        self._recover()

    def _superseded(self, record: rules.ArbiterRecord) -> str | None:
        return None if self.replica_set is None else self.replica_set.superseded(record)

    async def check_arbiter(self) -> None:
        """Read the arbiter now, and step down if another member was made primary."""
        if self._watch is not None:
            await self._watch.check()
        async with self._moving:
            pass  # wait until a step-down that the record caused has ended

    def _recover(self) -> None:
        """Start to wait for the other replicas of the old primary, and clear their stored list."""
        others = set(self.others) - {self._options.name}
        self._note_others(())
        self._delivery.recover()
        self._redundancy_wait = RedundancyWait(others, self._options.backup_timeout, self._recovered)
        self._redundancy_wait.ready(frozenset())

    def _recovered(self) -> None:
        if self.membership.role is Role.RECOVERING:
            self._set(self.membership.recovered())
            self._delivery.recovered()

    async def demote(self, primary: Endpoint | None = None) -> None:
        """Step down on an operator's command.

        :param primary: where clients are redirected.
        :raises MoveRefusedError: when this member does not serve.
        """
        async with self._moving:
            self.membership.check(Move.DEMOTE)
            await self._step_down("demoted by an operator", primary)

    def step_down(self, reason: str) -> None:
        """Stop settling now; the other steps follow."""
        self._delivery.finish()
        self._spawn(self._step_down_if_serving(reason), "step down")

    def _spawn(self, steps: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(steps, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _step_down_if_serving(self, reason: str) -> None:
        async with self._moving:
            if self.replica_set is not None:
                await self._step_down(reason)

    async def _step_down(self, reason: str, primary: Endpoint | None = None) -> None:
        logger.warning("steps down: %s", reason)
        self._delivery.finish()
        replica_set, self.replica_set = self.replica_set, None
        self._cancel_waits()
        self._set(self.membership.demote(primary))
        self._host.close_client_connections(reason)
        if replica_set is not None:
            await replica_set.close()
        self._following.start()

    # -- the store ------------------------------------------------------------------------------

    def _measured(self, usage: DiskUsage) -> None:
        """Handle a measurement of the disk; a member never steps down for lack of space."""
        if self._disk.update(usage):
            self._addresses.intake.set(full=self._disk.holds, stopped=self._disk.stops)
            self._host.record(Kind.MEMBER_DISK, state=str(self._disk.level))
            self._spawn(self._adapt_to_disk(), "adapt to the disk")

    async def _adapt_to_disk(self) -> None:
        async with self._moving:
            if await self._following.adapt_to_disk():
                self.lost_primary()

    def _store_failed(self, error: StoreFailedError) -> None:
        self._ended = str(error)
        self._delivery.finish()
        self._host.give_up(str(error))

    # -- for replication ------------------------------------------------------------------------

    async def write_state(self, state: rules.GenerationState) -> None:
        """Write generation and pending claim durably, in one commit."""
        written = self._store.write_pending(state.pending)
        self._store.write_cluster(state.cluster, state.claim).add_done_callback(_retrieve)
        self._store.write_generation(state.generation).add_done_callback(_retrieve)
        # Before the wait: the store completes the write even if the caller is cancelled.
        self.state = state
        await written
        await self._store.when_committed(self._store.sequence)

    async def refusal_reason(self, primary: rules.PrimaryIdentity) -> str | None:
        """Return why a primary must not be followed, ``None`` if it may be.

        If the store belongs to no cluster yet, this asks the arbiter.
        """
        record = None
        if not self.state.cluster:
            try:
                record = await self._arbiter.read()
            except ArbiterUnavailableError as error:
                logger.warning("cannot check whether the primary belongs to this cluster: %s", error)
        refusal = rules.may_follow(self.state, primary, arbiter=record, empty=self._empty)
        return None if refusal is None else str(refusal)

    def found_primary(self, primary: Endpoint | None, generation: int) -> None:
        """Note that this member follows a primary."""
        self._set(self.membership.found(primary, generation))

    def caught_up(self, generation: int, ready: tuple[str, ...]) -> None:
        """Take over the generation that the primary handed over."""
        self._following.caught_up()
        self._note_others(ready)
        self._set(self.membership.caught_up(generation))

    def lost_primary(self) -> None:
        """Note that this member follows no primary."""
        self._set(self.membership.lost())

    def generation_changed(self, record: rules.ArbiterRecord) -> None:
        """Take the new generation of a shrunk in-sync set."""
        self._set(self.membership.shrunk(record.generation))

    def replicas_changed(self) -> None:
        """End the redundancy wait if all expected replicas are ready."""
        if self.replica_set is not None and self._redundancy_wait is not None:
            self._redundancy_wait.ready(self.replica_set.ready)

    def _note_others(self, ready: tuple[str, ...]) -> None:
        self.others = tuple(name for name in ready if name != self._options.name)
        self._store.put_replicas(self.others)

    def follow_hint(self, primary: Endpoint | None) -> None:
        """Redirect clients to a primary that another component reported."""
        if not self.membership.role.serves:
            self._set(self.membership.redirect_to(primary))

    # -- wiring ---------------------------------------------------------------------------------

    async def wiring_settled(self) -> None:
        """Wait until every wiring change so far is in the store and on every ready replica.

        :raises MoveRefusedError: when this member steps down before; the changes may be lost.
        """
        replica_set = self.replica_set
        if replica_set is None:
            raise MoveRefusedError("whether the change outlives this member is unknown: it serves no longer")
        try:
            await self._store.when_committed(self._store.sequence)
            await replica_set.wiring_settled()
        except (StoreFailedError, SteppedDownError) as error:
            raise MoveRefusedError(f"whether the change outlives this member is unknown: {error}") from error

    # -- inside ---------------------------------------------------------------------------------

    def put_site_progress(self, queue: Queue) -> None:
        """Write the site progress of a queue."""
        self._persister.put_site_progress(queue)

    def _set(self, membership: Membership) -> None:
        self.membership = membership
        self._was_in_sync |= membership.role is Role.READY or membership.role.serves
        self._host.become(membership)

    def status(self) -> dict[str, Any]:
        """Return the cluster part of the status."""
        replicas = self.replica_set.replicas.values() if self.replica_set is not None else ()
        return {
            "number": self.state.generation,
            "cluster": self.state.cluster,
            "number_claim": self.state.claim,
            "pending": None if self.state.pending is None else self.state.pending.generation,
            "claim": None if self.state.pending is None else self.state.pending.claim,
            "was_in_sync": self._was_in_sync,
            "replicas": [
                {"name": r.name, "phase": str(r.phase), "lag": r.lag, "set_aside": r.queues_set_aside()}
                for r in replicas
            ],
            "store": self._options.store,
            "damage": self._store.corruption,
            "disk": self._disk.status(),
            "arbiter": self._options.arbiter,
        }


def _retrieve(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()
