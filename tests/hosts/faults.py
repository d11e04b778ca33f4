"""The faults of hosts. Each is a context manager: applied at its beginning, healed at its end.

Rules
-----
* A fault may begin in any state of the cluster: while a member starts or catches up, without a primary,
  and during another fault.
* No fault changes a store. So an eligible member always returns, with every settled message.
* All random choices use the generator that is passed in.
* Only a forced promotion may lose acknowledged messages. By the member's warning, the history records
  the time in which it may. The fault ends with that time.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import permutations

from broker_stub.local_cluster.supervisor import Member
from broker_stub.management_client import AdminClient, AdminError, MemberRefusedError, MemberStatus
from tests.faults.cluster import LONGEST
from tests.faults.history import History
from tests.faults.network import ARBITER
from tests.hosts.cluster import CLIENT_HOSTS, MEMBERS, Site
from tests.hosts.lab import Pair
from tests.hosts.switch import CLEAR, Conditions

_EVERYBODY = (*MEMBERS, ARBITER, *CLIENT_HOSTS)
# The share of wrong promotions that are forced.
_FORCED = 0.15
# Seconds for acknowledgements in flight to clients when the last wrong primary stepped down.
_UNDER_WAY = 1.0
_SETTLED_IN = re.compile(r"settled in generations? (\d+)")
_NOTHING_MISSING = "nothing that was settled is missing"


@dataclass(slots=True)
class Ground:
    """The targets of faults, and their records.

    :param promotions: the results of the promotions that faults requested.
    """

    site: Site
    history: History
    promotions: Counter[str] = field(default_factory=Counter)
    unfinished: list[float] = field(default_factory=list)
    """The starts of the periods in which forced promotions may lose messages, as far as they have not
    ended.
    """

    def over(self) -> None:
        """End all such periods: the cluster is whole, so every other primary has stepped down."""
        end = time.monotonic() + _UNDER_WAY
        self.history.forced += [(begin, end) for begin in self.unfinished]
        self.unfinished.clear()


During = Callable[[Ground, random.Random], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in the library.

    :param hold: the shortest time, in seconds, in which its effect shows.
    :param longer: the most additional seconds: the total ranges from below to above every peer's
        timeout.
    """

    during: During
    hold: float
    longer: float

    def seconds(self, rng: random.Random) -> float:
        """Return its random duration, in seconds."""
        return self.hold + rng.uniform(0, self.longer)


FAULTS: dict[str, Fault] = {}


def fault(
    name: str, *, hold: float = 1.0, longer: float = 6.0
) -> Callable[[Callable[[Ground, random.Random], AsyncIterator[None]]], During]:
    """Add a fault to the library."""

    def register(function: Callable[[Ground, random.Random], AsyncIterator[None]]) -> During:
        during = asynccontextmanager(function)
        FAULTS[name] = Fault(during, hold, longer)
        return during

    return register


# -- bad cables -----------------------------------------------------------------------------------


@fault("delay")
async def delayed(ground: Ground, rng: random.Random) -> AsyncIterator[None]:
    delay = rng.uniform(0.02, 0.8)
    async with _while(ground, _some_pairs(rng), Conditions(delay=delay, jitter=rng.uniform(0, delay))):
        yield


@fault("loss")
async def lossy(ground: Ground, rng: random.Random) -> AsyncIterator[None]:
    async with _while(ground, _some_pairs(rng), Conditions(loss=rng.uniform(0.05, 0.5))):
        yield


@fault("reordering")
async def reordered(ground: Ground, rng: random.Random) -> AsyncIterator[None]:
    conditions = Conditions(
        delay=0.005,
        jitter=0.005,
        reorder=rng.uniform(0.05, 0.5),
        hold_back=rng.uniform(0.01, 0.2),
        duplicate=rng.uniform(0, 0.2),
    )
    async with _while(ground, _some_pairs(rng), conditions):
        yield


@fault("partition in one direction")
async def cut_one_way(ground: Ground, rng: random.Random) -> AsyncIterator[None]:
    async with _while(ground, _one_way(rng), Conditions(cut=True)):
        yield


@fault("partition in both directions")
async def cut_both_ways(ground: Ground, rng: random.Random) -> AsyncIterator[None]:
    async with _while(ground, _both_ways(rng), Conditions(cut=True)):
        yield


def _some_pairs(rng: random.Random) -> list[Pair]:
    """Return all directions of one host, or a third of all."""
    pairs = list(permutations(_EVERYBODY, 2))
    host = rng.choice(_EVERYBODY)
    if rng.random() < 0.5:
        return [pair for pair in pairs if host in pair]
    return rng.sample(pairs, len(pairs) // 3)


def _one_way(rng: random.Random) -> list[Pair]:
    """Return the directions from a member to some other hosts, or from them to it."""
    member = rng.choice(MEMBERS)
    others = _part([host for host in _EVERYBODY if host != member], rng)
    outward = rng.random() < 0.5
    return [(member, other) if outward else (other, member) for other in others]


def _both_ways(rng: random.Random) -> list[Pair]:
    """Return both directions between some members and some other hosts. Hosts outside both groups bridge
    them.
    """
    members = _part(MEMBERS, rng, least_left=1)
    others = _part([host for host in _EVERYBODY if host not in members], rng)
    return [pair for member in members for pair in _between(member, others)]


def _between(host: str, others: Sequence[str]) -> list[Pair]:
    return [pair for other in others for pair in ((host, other), (other, host))]


def _part(hosts: Sequence[str], rng: random.Random, *, least_left: int = 0) -> list[str]:
    return rng.sample(hosts, rng.randint(1, len(hosts) - least_left))


@asynccontextmanager
async def _while(ground: Ground, pairs: list[Pair], conditions: Conditions) -> AsyncIterator[None]:
    lab = ground.site.lab
    lab.change(pairs, conditions)
    try:
        yield
    finally:
        lab.change(pairs, CLEAR)


# -- killed and stopped -----------------------------------------------------------------------------


@fault("member killed", hold=0.0, longer=3.0)
async def killed(ground: Ground, rng: random.Random) -> AsyncIterator[None]:
    """Kill a member. Half of the time, first cut it off from the other members: its own settlements are
    then lost.
    """
    members = ground.site.members
    victim = _victim(ground, rng)
    async with AsyncExitStack() as stack:
        if rng.random() < 0.5:
            pairs = _between(victim.name, [name for name in MEMBERS if name != victim.name])
            await stack.enter_async_context(_while(ground, pairs, Conditions(cut=True)))
            await asyncio.sleep(rng.uniform(0, LONGEST))
        await members.kill(victim)
        yield
    members.start(victim)


@fault("member stopped")
async def stopped(ground: Ground, rng: random.Random) -> AsyncIterator[None]:
    members = ground.site.members
    sleeper = _victim(ground, rng)
    members.pause(sleeper)
    try:
        if rng.random() < 0.5:
            others = [member for member in members.members if member is not sleeper]
            await _promote(ground, rng.choice(others), force=False)
        yield
    finally:
        members.resume(sleeper)


@fault("arbiter killed", longer=4.0)
async def arbiter_killed(ground: Ground, rng: random.Random) -> AsyncIterator[None]:
    zookeeper = ground.site.zookeeper
    await asyncio.to_thread(zookeeper.stop)
    try:
        yield
    finally:
        await asyncio.to_thread(zookeeper.start)


def _victim(ground: Ground, rng: random.Random) -> Member:
    """Return a random member, more often the primary."""
    members = ground.site.members
    primary = members.pair.primary
    if primary is not None and rng.random() < 0.6:
        return primary
    return rng.choice([member for member in members.members if member.alive] or list(members.members))


# -- a manager that is wrong --------------------------------------------------------------------------


@fault("wrong promotion", longer=4.0)
async def usurped(ground: Ground, rng: random.Random) -> AsyncIterator[None]:
    """Promote any member: connected, cut off from any host, or cut off only from the other members."""
    member = rng.choice(ground.site.members.members)
    force = rng.random() < _FORCED
    others = [host for host in _EVERYBODY if host != member.name]
    cut_off = rng.choice(([], _part(others, rng), [host for host in others if host in MEMBERS]))
    pairs = _between(member.name, cut_off)
    async with _while(ground, pairs, Conditions(cut=True)):
        if pairs:
            await asyncio.sleep(rng.uniform(0, LONGEST))
        await _promote(ground, member, force=force)
        yield


async def _promote(ground: Ground, member: Member, *, force: bool) -> None:
    members = ground.site.members
    how = "forced" if force else "asked"
    before = time.monotonic()
    ground.promotions[how] += 1
    try:
        async with await AdminClient.connect(member.address, members.pair.credentials) as admin:
            status = await admin.promote(force=force)
    except MemberRefusedError:
        ground.promotions[f"{how}, refused"] += 1
    except AdminError:
        ground.promotions[f"{how}, no answer"] += 1
        if force:  # the promotion may succeed all the same, with unknown losses
            ground.unfinished.append(0.0)
    else:
        members.promoted += 1
        ground.promotions[f"{how}, done"] += 1
        if force:
            ground.unfinished.append(may_have_lost_since(status, before, ground.history))


def may_have_lost_since(status: MemberStatus, before: float, history: History) -> float:
    """Return since when a forced promotion may have lost acknowledged messages, by the member's warning.

    :param before: when the promotion was requested.
    """
    warning = status.warning
    if _NOTHING_MISSING in warning:
        return before
    found = _SETTLED_IN.search(warning)
    if found is None:
        return 0.0
    first = int(found[1])
    return max((at for generation, at in history.generations.items() if generation < first), default=0.0)


# -- two faults at once ------------------------------------------------------------------------


@fault("two at once")
async def two(ground: Ground, rng: random.Random) -> AsyncIterator[None]:
    first, second = rng.sample([name for name in FAULTS if name != "two at once"], 2)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(FAULTS[first].during(ground, rng))
        await asyncio.sleep(rng.uniform(0, LONGEST))
        await stack.enter_async_context(FAULTS[second].during(ground, rng))
        yield
