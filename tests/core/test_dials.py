"""The dials of a factory: a connection that has had none comes before one that dials again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haclient import aio
from haclient.cluster_url.url import ClusterURL
from haclient.core.cluster import Cluster, PendingSearch
from haclient.errors import DeadlineExceeded
from haclient.events import AttemptStarted, Event
from haclient.resolver.resolve import Resolver
from haclient.retry.policy import Policy
from tests.peers import primary, url


class Driver:
    """Performs an episode's part in one search, whenever ``run`` is called."""

    def __init__(self, factory: Factory, *, wants: bool = True) -> None:
        self.search = PendingSearch(self.wake)
        self.wants = wants
        self.woken = True
        self._factory = factory
        factory.drivers.append(self)
        factory.cluster.join(self.search)

    def wake(self) -> None:
        self.woken = True

    def run(self) -> bool:
        """Return whether it has begun an attempt."""
        self.woken = False
        cluster, dialled = self._factory.cluster, False
        while self.wants and cluster.free_for(self.search) > 0:
            self._factory.check(self)
            cluster.take_dial(self.search, 0.0)
            self.wants, dialled = False, True
        if self.wants:
            cluster.wait_for_dial(self.search)
        else:
            cluster.wake_next(self.search)
        return dialled

    def fail(self, *, again: bool) -> None:
        """End its attempt."""
        self.wants, self.woken = again, True
        self._factory.cluster.release_dial(self.search)

    def leave(self) -> None:
        self._factory.drivers.remove(self)
        self._factory.cluster.leave(self.search)


class Factory:
    """The searches of one factory, without peers."""

    def __init__(self, max_dials: int) -> None:
        address, policy = ClusterURL.parse("amqp://a,b"), Policy(max_dials=max_dials)
        self.cluster = Cluster(address, policy, Resolver(), credentials=False)
        self.max_dials = max_dials
        self.drivers: list[Driver] = []
        self.owner: Driver | None = None

    def own(self, driver: Driver) -> None:
        self.owner = driver
        self.cluster.own_search(driver.search)

    def check(self, dialling: Driver) -> None:
        """Make sure that this one may dial now."""
        if dialling.search.dialled and dialling is not self.owner:
            assert not [
                each for each in self.drivers if each.wants and not each.search.dialled and each.search.queued
            ]

    def settle(self) -> None:
        """Run woken drivers until none is left."""
        while woken := [driver for driver in self.drivers if driver.woken]:
            for driver in woken:
                driver.run()


@pytest.fixture
def two() -> Factory:
    return Factory(2)


async def test_a_dial_is_kept_for_the_search_that_is_woken_for_it(two: Factory) -> None:
    first, second, third = Driver(two), Driver(two), Driver(two)
    assert [each.run() for each in (first, second, third)] == [True, True, False]
    first.fail(again=True)
    newcomer = Driver(two)
    assert [each.run() for each in (newcomer, first)] == [False, False]
    assert third.woken
    assert third.run()


async def test_the_first_attempt_of_each_comes_before_the_second_of_any(two: Factory) -> None:
    one, other = Driver(two), Driver(two)
    two.settle()
    late = [Driver(two) for _ in range(5)]
    two.settle()
    for attempt in (one, other, *late[:3]):
        attempt.fail(again=True)
        two.settle()
    assert all(each.search.dialled for each in late)
    assert one.wants
    late[3].fail(again=False)
    late[4].fail(again=False)
    two.settle()
    assert not one.wants
    assert not other.wants


async def test_the_owner_goes_ahead_and_who_lost_a_dial_to_it_is_the_next(two: Factory) -> None:
    """All other drivers wait for its result."""
    owner, busy, third, fourth = (Driver(two) for _ in range(4))
    two.own(owner)
    assert [each.run() for each in (owner, busy, third, fourth)] == [True, True, False, False]
    busy.fail(again=False)
    assert third.search.offered
    owner.wants = True
    assert owner.run()
    assert not third.run()
    owner.fail(again=False)
    assert third.woken
    assert third.run()
    assert fourth.wants


async def test_the_owner_that_waits_is_woken_first(two: Factory) -> None:
    owner, busy = Driver(two), Driver(two)
    two.own(owner)
    two.settle()
    late = [Driver(two) for _ in range(3)]
    owner.fail(again=False)
    two.settle()
    owner.wants = owner.woken = True
    two.settle()
    assert owner.search.queued
    busy.fail(again=False)
    assert owner.search.offered
    two.settle()
    assert not owner.wants
    assert [each.wants for each in late] == [False, True, True]


async def test_a_search_that_needs_no_dial_or_ends_passes_it_on(two: Factory) -> None:
    one, other, third, fourth, fifth = (Driver(two) for _ in range(5))
    two.settle()
    third.wants = False  # a wait that a server asked for
    one.fail(again=False)
    assert not third.run()
    assert fourth.search.offered
    fourth.leave()
    assert fifth.run()
    other.fail(again=False)
    assert two.cluster.free_dials == 1


def join(factory: Factory, driver: Driver | None, choice: int) -> None:
    Driver(factory, wants=choice % 3 > 0)


def run(factory: Factory, driver: Driver | None, choice: int) -> None:
    if driver is not None:
        driver.run()


def fail(factory: Factory, driver: Driver | None, choice: int) -> None:
    if driver is not None and driver.search.dials:
        driver.fail(again=choice % 2 > 0)


def change_its_mind(factory: Factory, driver: Driver | None, choice: int) -> None:
    if driver is not None:
        driver.wants, driver.woken = not driver.wants, True


def leave(factory: Factory, driver: Driver | None, choice: int) -> None:
    if driver is not None:
        factory.owner = None if factory.owner is driver else factory.owner
        driver.leave()


def own(factory: Factory, driver: Driver | None, choice: int) -> None:
    if driver is not None and factory.owner is None:
        factory.own(driver)


def settle(factory: Factory, driver: Driver | None, choice: int) -> None:
    factory.settle()


STEPS = (join, run, fail, fail, change_its_mind, leave, own, settle)


@given(st.integers(1, 3), st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 30)), max_size=80))
def test_no_dial_is_lost_and_nobody_waits_beside_a_free_one(
    max_dials: int, steps: list[tuple[Callable[[Factory, Driver | None, int], None], int]]
) -> None:
    async def main() -> None:
        factory = Factory(max_dials)
        drivers = factory.drivers
        for step, choice in steps:
            step(factory, drivers[choice % len(drivers)] if drivers else None, choice)
            assert sum(each.search.dials for each in drivers) <= max_dials
        factory.settle()
        assert factory.cluster.free_dials <= 0 or not any(each.wants for each in drivers)
        # Attempts end, one after the other: everybody gets a dial.
        for driver in drivers * (2 * len(drivers)):
            if driver.search.dials:
                driver.fail(again=False)
                factory.settle()
        assert not any(each.wants for each in drivers)
        assert factory.cluster.free_dials == max_dials

    asyncio.run(main())


# -- with peers ---------------------------------------------------------------------------------------


QUICK = {
    "attempt_timeout": 0.2,
    "stagger": 0.02,
    "backoff_base": 0.01,
    "backoff_max": 0.02,
    "standby": "none",
}


@pytest.mark.slow  # a slow machine needs an attempt timeout of seconds, and two attempts hang for it
async def test_connections_whose_attempts_hung_wait_for_those_that_have_had_none() -> None:
    """The primary hangs for two attempts; the connection that searches for all dials it again."""
    started: list[int] = []

    async with primary() as member:

        def watch(event: Event) -> None:
            if isinstance(event, AttemptStarted):
                started.append(event.stamp.connection)
                member.begin_after = 10.0 if len(started) in (2, 3) else 0.01

        options = QUICK | {"attempt_timeout": 2}
        factory = aio.ConnectionFactory(url(member, max_dials=2, **options), on_event=watch)
        async with factory:
            connections = [await factory.connect()]
            connections += await asyncio.gather(*(factory.connect() for _ in range(8)))
            assert len(connections) == 9
    assert started[:3] == [1, 2, 3]
    assert len(set(started)) == 9
    last_first = max(started.index(connection) for connection in started)
    again = [place for place, connection in enumerate(started) if started.index(connection) < place]
    # The searching connection's dial; on a late loop both time out together, and a second dial is possible.
    assert len([place for place in again if place < last_first]) <= 2


async def test_a_connection_that_was_given_no_dial_says_so_with_the_option() -> None:
    async with primary() as member:
        options = {**QUICK, "attempt_timeout": 30.0, "max_dials": 1, "startup_deadline": 0.3}
        async with aio.ConnectionFactory(url(member, **options)) as factory:
            connection = await factory.connect()
            member.begin_after = 30.0
            ends = await asyncio.gather(*(factory.connect() for _ in range(3)), return_exceptions=True)
            await connection.close()
    assert {type(end) for end in ends} == {DeadlineExceeded}
    # The dial that the first one leaves may come to another one in its last moment.
    without = [text for text in map(str, ends) if ": 0 attempts in" in text]
    assert without
    assert all("given none of the 1 dials of its factory (max_dials)" in text for text in without)
