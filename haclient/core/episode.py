"""Drives one search: from the start, or a loss, until a session is usable or the search gives up.

The search decides (``discovery.search``, pure); this class carries its orders out, tells it what
happened, and reports both as events.  It owns the attempts: when ``run`` returns or is
cancelled, every attempt but the one that was adopted is over.

A parked attempt gives its dial back at once, and claims no generation: that of its Open is old by the
time the Begin is answered.  Its links are attached while it is parked, and their answers come with that of
the Begin; so it is adopted in the very call that tells of the Begin, before the links hear theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from haclient.cluster_url.endpoint import Endpoint, Origin
from haclient.core import failures
from haclient.core.attempt import Attempt, Planner, Reports
from haclient.core.cluster import Cluster, Seat
from haclient.discovery import decision as decide
from haclient.discovery.evidence import AttemptRecord, Claimed, Lost, Failure, Missed, FailureReason, Pushed
from haclient.discovery.search import Search


class Observer(Protocol):
    """Who wants to know how the search goes.  Calls must not block or raise."""

    def attempt_started(self, number: int, endpoint: Endpoint) -> None:
        """An endpoint is being dialled."""

    def attempt_failed(self, record: AttemptRecord) -> None:
        """An attempt is over."""

    def attempt_parked(self, number: int, endpoint: Endpoint) -> None:
        """A member holds an attempt until it serves."""

    def redirected(self, record: AttemptRecord) -> None:
        """A passive member named another endpoint."""

    def backing_off(self, order: decide.BackOff) -> None:
        """Nobody served; the next round comes later."""

    def unresolved(self, name: Endpoint, reason: str) -> None:
        """A name has no address, so there was nothing to dial."""


class Owner(Protocol):
    """Whom the session is for.  It belongs to the same event loop."""

    def attach_ahead(self, attempt: Attempt) -> None:
        """A member holds this attempt, and will hold its Attaches as well."""

    def adopt(self, attempt: Attempt) -> None:
        """This attempt won: its session is usable."""


class GaveUpError(Exception):
    """The search is over without a session."""

    def __init__(self, verdict: decide.GiveUp) -> None:
        super().__init__(verdict.detail)
        self.verdict = verdict


class Episode:
    """One search under way."""

    def __init__(
        self,
        cluster: Cluster,
        search: Search,
        planner: Planner,
        observer: Observer,
        owner: Owner,
    ) -> None:
        self.search = search
        self._cluster = cluster
        self._planner = planner
        self._observer = observer
        self._owner = owner
        self._under_way = False
        self._adopted: Attempt | None = None
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._seat = Seat(self._woken.set)
        self._attempts: dict[int, Attempt] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._epochs: dict[int, int] = {}
        self._parked: set[int] = set()
        self._ended: list[int] = []
        self._reports = Reports(
            self._tcp_connected, self._opened, self._when_parked, self._usable, self._missed
        )

    def resume(self, attempt: Attempt) -> None:
        """Begin with an attempt that is parked already, and perhaps usable by now."""
        number = self.search.resume(attempt.endpoint, self._loop.time())
        self._observer.attempt_started(number, attempt.endpoint)
        self._attempts[number] = attempt
        self._epochs[number] = self._cluster.topology.epoch
        self._parked.add(number)
        attempt.hand_over(number, self._reports)
        if attempt.session is not None:
            self._usable(number)
        else:
            self._owner.attach_ahead(attempt)

    async def run(self) -> Attempt:
        """Search until something is usable.

        :returns: the attempt that was adopted.
        :raises GaveUpError: when the search gives up.
        """
        self._cluster.join(self._seat)
        self._under_way = True
        try:
            while True:
                order = self._go_on()
                if self._adopted is not None:
                    return self._adopted
                if isinstance(order, decide.GiveUp):
                    raise GaveUpError(order)
                assert isinstance(order, decide.Wait)
                await self._wait(order)
        finally:
            self._under_way = False
            self._cluster.leave(self._seat)
            for attempt in self._attempts.values():
                attempt.cancel()
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    # -- orders -------------------------------------------------------------------------------

    def _go_on(self) -> decide.Decision:
        """Carry out orders as long as there is anything to do at once; the order that is left."""
        while True:
            order = self._next()
            self._report_ended()
            match order:
                case decide.Wait() | decide.GiveUp():
                    return order
                case decide.Found():
                    if self._adopted is None:
                        self._found(order)
                    return order
                case _:
                    self._carry_out(order)

    def _next(self) -> decide.Decision:
        self._woken.clear()
        now = self._loop.time()
        lead = self._cluster.may_lead(self._seat, now)
        self._seat.idle = not lead
        return self.search.next(
            now,
            self._cluster.topology,
            lead=lead,
            room=self._cluster.room,
            resolving=self._cluster.resolving,
        )

    def _carry_out(self, order: decide.Decision) -> None:
        match order:
            case decide.StartRound():
                self._cluster.lead(self._seat)
                self._cluster.resolve(self._observer.unresolved)
            case decide.Dial():
                self._dial(order)
            case decide.Abandon():
                self._abandon(order)
            case decide.BackOff():
                self._observer.backing_off(order)

    def _dial(self, order: decide.Dial) -> None:
        self._cluster.take(self._seat, self._loop.time())
        self._epochs[order.attempt] = self._cluster.topology.epoch
        self._observer.attempt_started(order.attempt, order.endpoint)
        attempt = Attempt(
            order.attempt,
            order.endpoint,
            self._planner,
            self._cluster.resolver,
            self._reports,
            park=self.search.may_park and not self._seat.idle,
        )
        task = self._loop.create_task(attempt.run(), name=f"haclient attempt {order.endpoint}")
        task.add_done_callback(lambda _: self._tasks.pop(order.attempt))
        self._attempts[order.attempt], self._tasks[order.attempt] = attempt, task

    def _abandon(self, order: decide.Abandon) -> None:
        attempt = self._attempts[order.attempt]
        attempt.cancel()
        if order.attempt in self._tasks:
            self._tasks[order.attempt].cancel()
        self._over(order.attempt, attempt.endpoint, order.miss)

    def _found(self, order: decide.Found) -> None:
        self._adopted = attempt = self._attempts.pop(order.attempt)
        generation, cluster = _claim(attempt)
        self._cluster.learn(Claimed(attempt.endpoint, generation, cluster, self._cluster.topology.epoch))
        self._owner.adopt(attempt)

    async def _wait(self, order: decide.Wait) -> None:
        if self._cluster.room <= 0:
            self._cluster.wait_for_room(self._seat)
        else:
            self._cluster.pass_on()
        if order.until is None:
            await self._woken.wait()
            return
        try:
            async with asyncio.timeout_at(order.until):
                await self._woken.wait()
        except TimeoutError:
            return

    # -- facts --------------------------------------------------------------------------------

    def _tcp_connected(self, number: int) -> None:
        self.search.tcp_connected(number, self._loop.time())

    def _opened(self, number: int) -> None:
        """Open came, from whatever kind of member: it may name the others."""
        attempt = self._attempts[number]
        members = pushed_members(attempt)
        if members:
            self._cluster.learn(Pushed(members, self._epochs[number]))

    def _when_parked(self, number: int) -> None:
        self.search.parked(number, self._loop.time())
        attempt = self._attempts[number]
        self._parked.add(number)
        self._cluster.release(self._seat)
        self._observer.attempt_parked(number, attempt.endpoint)
        if len(self._parked) == 1:  # a second one is given up again; a link is at one member
            self._owner.attach_ahead(attempt)
        self._woken.set()

    def _usable(self, number: int) -> None:
        attempt = self._attempts[number]
        generation, cluster = _claim(attempt)
        self.search.usable(number, self._loop.time(), generation, cluster)
        if attempt.parked and self._under_way:
            self._go_on()
        self._woken.set()

    def _missed(self, number: int, miss: Failure) -> None:
        attempt = self._attempts.get(number)
        if attempt is None:  # it broke just after it was found: whoever adopts it sees that
            return
        miss = self.search.missed(number, self._loop.time(), miss)
        self._over(number, attempt.endpoint, miss)
        self._woken.set()

    def _over(self, number: int, endpoint: Endpoint, miss: Failure) -> None:
        self._ended.append(number)
        self._cluster.learn(Missed(endpoint, miss, self._epochs[number]))
        if number in self._parked:
            self._parked.remove(number)
        else:
            self._cluster.release(self._seat)
        del self._attempts[number]

    def _report_ended(self) -> None:
        ended, self._ended = self._ended, []
        for number in ended:
            record = self.search.record(number)
            if record is None:
                continue
            if record.miss.redirect is not None:
                self._observer.redirected(record)
            if record.miss.kind is not FailureReason.REDIRECTED:
                self._observer.attempt_failed(record)


def lost(cluster: Cluster, endpoint: Endpoint, epoch: int) -> None:
    """Tell the others that the primary at this endpoint is gone."""
    cluster.learn(Lost(endpoint, epoch))


def _claim(attempt: Attempt) -> tuple[int | None, str | None]:
    """Generation and cluster id from the peer's Open, if that still tells them."""
    if attempt.engine is None or attempt.parked:
        return None, None
    return told_generation(attempt.engine.peer_properties), told_cluster(attempt.engine.peer_properties)


def told_generation(properties: Mapping[str, Any]) -> int | None:
    """The generation in the properties of an Open or an Attach."""
    generation = properties.get("haclient:generation")
    if not isinstance(generation, int) or isinstance(generation, bool):
        return None
    return int(generation)


def told_cluster(properties: Mapping[str, Any]) -> str | None:
    """The cluster id in the properties of an Open or an Attach."""
    cluster = properties.get("haclient:cluster")
    return None if cluster is None else str(cluster)


def pushed_members(attempt: Attempt) -> tuple[Endpoint, ...]:
    """The ``failover-server-list`` of the peer's Open, as Qpid JMS reads it: a list of maps."""
    if attempt.engine is None:
        return ()
    listed = attempt.engine.peer_properties.get("failover-server-list")
    if not isinstance(listed, list):
        return ()
    found = (_member(entry, attempt.endpoint) for entry in listed if isinstance(entry, Mapping))
    return tuple(endpoint for endpoint in found if endpoint is not None)


def _member(entry: Mapping[Any, Any], source: Endpoint) -> Endpoint | None:
    endpoint = failures.redirect_target(entry, source)
    return None if endpoint is None else endpoint.with_origin(Origin.PUSHED)
