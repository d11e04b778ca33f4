"""The faults. Each is a context manager: it is applied at its beginning and healed at its end.

    async with FAULTS["primary killed"].during(cluster, random.Random(7)):
        await asyncio.sleep(hold)
    await cluster.whole()

Rules
-----
* A fault begins with a whole cluster. When it has ended, no member is killed, stopped or cut off, and
  the cluster becomes whole by itself.
* A fault changes only the store of a member that is not primary, while a living member is. Without the
  store of the last eligible member, the cluster could never have a primary again.
* All random choices use the generator that is passed in.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass

from broker_stub.local_cluster.supervisor import Member, MemberState
from broker_stub.management_client import AdminError
from haclient.testing.network import CLIENTS, Cut
from tests.faults import damage
from tests.faults.cluster import LONGEST, Cluster
from tests.faults.network import ARBITER

During = Callable[[Cluster, random.Random], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in the library.

    :param during: applies it, and heals it.
    :param hold: the shortest time, in seconds, in which its effect shows.
    :param needs: ``ClusterOptions`` fields that must be true.
    """

    name: str
    during: During
    hold: float = 0.0
    needs: tuple[str, ...] = ()


FAULTS: dict[str, Fault] = {}


def fault(
    name: str, *, hold: float = 0.0, needs: tuple[str, ...] = ()
) -> Callable[[Callable[[Cluster, random.Random], AsyncIterator[None]]], During]:
    """Put a fault into the library."""

    def register(function: Callable[[Cluster, random.Random], AsyncIterator[None]]) -> During:
        during = asynccontextmanager(function)
        FAULTS[name] = Fault(name, during, hold, needs)
        return during

    return register


# -- killed ---------------------------------------------------------------------------------------


@fault("primary killed")
async def primary_killed(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    victim = await _kill_succeeded(cluster)
    yield
    cluster.start(victim)


async def _kill_succeeded(cluster: Cluster) -> Member:
    """Kill a primary that another member may succeed, and wait for that; return the killed one."""
    victim, _ = await _pause_with_heir(cluster)
    generation = (await cluster.record()).generation
    await cluster.kill(victim)
    await cluster.until_promoted(generation)
    return victim


async def _pause_with_heir(cluster: Cluster) -> tuple[Member, list[Member]]:
    """Pause the primary; return it and its heirs, at least one.

    On a busy machine it may have shrunk the in-sync set to itself meanwhile; then there is none, and it is
    woken up until there is.
    """
    while True:
        await cluster.whole()
        primary = cluster.primary
        cluster.pause(primary)  # from now on it drops no backup
        if heirs := await _heirs(cluster):
            return primary, heirs
        cluster.resume(primary)


async def _heirs(cluster: Cluster) -> list[Member]:
    generation = (await cluster.record()).generation
    found = []
    for member in cluster.backups:
        with suppress(AdminError):
            if (await cluster.status(member)).generation == generation:
                found.append(member)
    return found


@fault("backup killed")
async def backup_killed(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    victim = rng.choice(cluster.backups)
    await cluster.kill(victim)
    yield
    cluster.start(victim)


@fault("all killed, the primary starts first")
async def all_killed_primary_first(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    primary, backups = cluster.primary, cluster.backups
    await cluster.kill(*cluster.members)
    yield
    await cluster.started(primary)
    for backup in backups:
        await cluster.started(backup)


@fault("all killed, a backup starts first")
async def all_killed_backup_first(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    primary, backups = cluster.primary, cluster.backups
    await cluster.kill(*cluster.members)
    yield
    for member in (*backups, primary):
        await cluster.started(member)


@fault("one after the other killed, the wrong one starts first")
async def last_heir_starts_last(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    """The backups die first, so the primary continues alone: only it may become primary again."""
    primary, backups = cluster.primary, cluster.backups
    await cluster.kill(*backups)
    await asyncio.sleep(rng.uniform(0, 1))
    await cluster.kill(primary)
    for backup in backups:
        await cluster.started(backup)
    yield
    await cluster.started(primary)


@fault("backup killed while it catches up")
async def killed_in_catch_up(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    victim = rng.choice(cluster.backups)
    await _let_catch_up(cluster, victim, rng)
    await cluster.kill(victim)
    yield
    cluster.start(victim)


@fault("primary killed while a backup catches up")
async def primary_killed_in_catch_up(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    primary, backup = cluster.primary, rng.choice(cluster.backups)
    await _let_catch_up(cluster, backup, rng)
    await cluster.kill(primary)
    yield
    await cluster.started(primary)


async def _let_catch_up(cluster: Cluster, backup: Member, rng: random.Random) -> None:
    """Interrupt a backup's catch-up shortly after its start, with its old store or an empty one."""
    await cluster.kill(backup)
    if rng.random() < 0.5:
        damage.wipe(cluster.store_of(backup), rng)
    await cluster.started(backup)
    await asyncio.sleep(rng.uniform(0, 0.2))


@fault("heir killed while it is promoted")
async def killed_in_promotion(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    primary, heir = cluster.primary, rng.choice(cluster.backups)
    killing = asyncio.create_task(cluster.kill(primary))
    await asyncio.sleep(rng.uniform(0, 0.1))
    await cluster.kill(heir)
    await killing
    yield
    for member in rng.sample((primary, heir), 2):
        await cluster.started(member)


# -- stopped --------------------------------------------------------------------------------------


@fault("primary stopped, another promoted, woken up", hold=LONGEST)
async def primary_paused(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    """The stopped primary is not fenced. After it wakes up, only the arbiter keeps it from settling."""
    sleeper, heir = cluster.primary, rng.choice(cluster.backups)
    cluster.pause(sleeper)
    await cluster.promote(heir)
    yield
    cluster.resume(sleeper)


@fault("primary stopped, then fenced", hold=LONGEST)
async def primary_fenced(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    victim = cluster.primary
    cluster.pause(victim)
    yield
    await cluster.kill(victim)
    cluster.start(victim)


@fault("primary stopped and woken up", hold=LONGEST)
async def primary_slept(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    sleeper = cluster.primary
    cluster.pause(sleeper)
    yield
    cluster.resume(sleeper)


@fault("backup stopped and woken up", hold=LONGEST)
async def backup_paused(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    sleeper = rng.choice(cluster.backups)
    cluster.pause(sleeper)
    yield
    cluster.resume(sleeper)


# -- by command ---------------------------------------------------------------------------------------


@fault("primary demoted, another promoted")
async def moved(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    await cluster.move(rng.choice(cluster.backups))
    yield


@fault("backup promoted for no reason")
async def usurped(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    await cluster.promote(rng.choice(cluster.backups))
    yield


# -- cut off --------------------------------------------------------------------------------------


@fault("clients cut off from the primary, another promoted", hold=LONGEST)
async def clients_and_primary(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    primary, heir = cluster.primary, rng.choice(cluster.backups)
    cluster.cut(primary.name, CLIENTS, _how(rng))
    await asyncio.sleep(rng.uniform(0, 1))
    await cluster.move(heir)
    yield
    cluster.heal()


@fault("clients cut off from a backup")
async def clients_and_backup(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    cluster.cut(rng.choice(cluster.backups).name, CLIENTS, _how(rng))
    yield
    cluster.heal()


@fault("backup cut off from the primary", hold=LONGEST)
async def primary_and_backup(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    cluster.cut(cluster.primary.name, rng.choice(cluster.backups).name, _how(rng))
    yield
    cluster.heal()


@fault("backup cut off from the primary, and promoted", hold=LONGEST)
async def split(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    """Before or after the primary went on alone: one of the two wins, and one only."""
    backup = rng.choice(cluster.backups)
    cluster.cut(cluster.primary.name, backup.name, _how(rng))
    await asyncio.sleep(rng.uniform(0, LONGEST))
    await cluster.promote(backup)
    yield
    cluster.heal()


@fault("backup cut off from the primary, which is killed", hold=LONGEST)
async def primary_killed_alone(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    primary = cluster.primary
    for backup in cluster.backups:
        cluster.cut(primary.name, backup.name, _how(rng))
    await asyncio.sleep(rng.uniform(0, LONGEST))
    await cluster.kill(primary)
    yield
    cluster.heal()
    cluster.start(primary)


@fault("primary cut off from the arbiter, a backup killed")
async def primary_and_arbiter(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    """The primary cannot reach the arbiter to continue alone, so it steps down."""
    primary, heirs = await _pause_with_heir(cluster)  # one that is alone already would not ask the arbiter
    backup = rng.choice(heirs)
    cluster.cut(primary.name, ARBITER, _how(rng))
    await cluster.kill(backup)
    cluster.resume(primary)
    await cluster.until(primary, MemberState.CONNECTING, MemberState.CATCHUP, MemberState.READY)
    yield
    cluster.heal()
    cluster.start(backup)


@fault("backups cut off from the arbiter, the primary killed", hold=0.5)
async def backups_and_arbiter(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    primary = cluster.primary
    for backup in cluster.backups:
        cluster.cut(backup.name, ARBITER, _how(rng))
    await cluster.kill(primary)
    yield
    cluster.heal()
    cluster.start(primary)


# -- stores ---------------------------------------------------------------------------------------


@fault("backup killed, its store damaged")
async def backup_damaged(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    victim = rng.choice(cluster.backups)
    await cluster.kill(victim)
    damage.apply(cluster.store_of(victim), rng)
    yield
    cluster.start(victim)


@fault("primary killed, its store damaged")
async def primary_damaged(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    victim = await _kill_succeeded(cluster)
    damage.apply(cluster.store_of(victim), rng)
    yield
    cluster.start(victim)


@fault("primary's disk full", needs=("small_disks",))
async def primary_disk_full(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    async with _disk_full(cluster, cluster.primary, rng):
        yield


@fault("backup's disk full", needs=("small_disks",))
async def backup_disk_full(cluster: Cluster, rng: random.Random) -> AsyncIterator[None]:
    async with _disk_full(cluster, rng.choice(cluster.backups), rng):
        yield


@asynccontextmanager
async def _disk_full(cluster: Cluster, victim: Member, rng: random.Random) -> AsyncIterator[None]:
    """A member with a full disk keeps running. It resumes when there is room, or is killed before that."""
    ballast = cluster.store_of(victim) / "ballast"
    damage.fill(ballast)
    await cluster.until_disk(victim, "stop")
    yield
    killed = rng.random() < 0.5
    if killed:
        await cluster.kill(victim)
    ballast.unlink()
    if killed:
        cluster.start(victim)


def _how(rng: random.Random) -> Cut:
    return rng.choice(tuple(Cut))
