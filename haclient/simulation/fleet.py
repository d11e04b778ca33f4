"""Simulate a whole storm: all clients of a scenario, from the loss of the old primary to the last one back.

One random source serves the whole fleet: the state of a ``random.Random`` takes 2.5 KB, more than the rest
of a client, and the assignment of numbers to clients does not matter.  Virtual time orders the draws, so
the same scenario gives the same result.  (A real client has a source of its own.)
"""

from __future__ import annotations

import gc
import random
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from haclient.retry.policy import Policy
from haclient.simulation.clock import Kind
from haclient.simulation.haclient_clients import HaclientClients
from haclient.simulation.result import Result
from haclient.simulation.scenario import Scenario
from haclient.simulation.world import World

Progress = Callable[[int, int], None]
"""Called at intervals with the number of clients that are back, and of all clients."""

_PROGRESS_REPORTS = 200  # reports in a run


class Driver(Protocol):
    """The clients of a storm."""

    @property
    def name(self) -> str:
        """Name of the clients' policy, for tables."""

    def begin(self, client: int, at: float) -> None:
        """Let this client notice the loss; time 0 is the loss itself."""

    def handle(self, client: int, kind: Kind, number: int) -> None:
        """Process an event of the clock for one client."""


MakeClients = Callable[[World, random.Random], Driver]
"""Creates the clients of a storm, with the random source of the whole fleet."""


def simulate(
    scenario: Scenario,
    clients: Policy | MakeClients,
    *,
    name: str | None = None,
    progress: Progress | None = None,
) -> Result:
    """Simulate a storm in virtual time.

    :param clients: the policy of this package's clients, or a function that makes other clients.
    :param name: name of the result; by default the clients' name.
    """
    world = World(scenario)
    rng = random.Random(scenario.seed)
    driver = HaclientClients(world, clients, rng) if isinstance(clients, Policy) else clients(world, rng)
    with _no_garbage_collection():
        _run(world, driver, rng, progress)
    return _result(world, name or driver.name)


def _run(world: World, driver: Driver, rng: random.Random, progress: Progress | None) -> None:
    clients = world.scenario.clients
    for client in range(clients):
        driver.begin(client, rng.uniform(0, world.scenario.detection))
    handle = driver.handle if progress is None else _with_progress(driver, world, progress)
    world.clock.at(world.scenario.outage, -1, Kind.PROMOTE)
    world.clock.run(handle, world.scenario.outage + world.scenario.end)


def _with_progress(driver: Driver, world: World, progress: Progress) -> Callable[[int, Kind, int], None]:
    clients = world.scenario.clients
    step = max(1, clients // _PROGRESS_REPORTS)
    due = step

    def handle(client: int, kind: Kind, number: int) -> None:
        nonlocal due
        driver.handle(client, kind, number)
        if len(world.back) >= due:
            due = len(world.back) + step
            progress(len(world.back), clients)

    return handle


def _result(world: World, name: str) -> Result:
    primary = world.primary
    end = world.scenario.end
    return Result(
        name=name,
        scenario=world.scenario,
        back=array("d", sorted(time for time in world.back if time <= end)),
        attempts=array("d", sorted(world.attempts)),
        earlier=world.earlier,
        elsewhere=world.elsewhere,
        dials=world.dials,
        syns=world.syns.figures(),
        refused=primary.refused,
        deferred=primary.deferred,
        parked=world.parked,
        handshakes=primary.handshakes,
        gave_up=world.gave_up,
    )


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Pause garbage collection: with millions of objects and no cycles, it would take most of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
