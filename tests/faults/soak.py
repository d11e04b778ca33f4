"""The soak: random faults under load until a number of failovers is reached, then the verdict.

    python -m tests.faults.soak --failovers 100 --seed 7
    make soak FAILOVERS=100 SEED=7

The seed is printed first; the same seed makes the same faults in the same order. At the end:

1. the clients stop, the members are stopped, and their stores must be equal: wiring and messages;
2. the members start again, the queues are drained, and the checker reads the history: no acknowledged
   message is lost, only sent messages arrived, and each link's order holds;
3. the arbiter's generation has only grown, and no two members served in one generation.

It prints a summary in JSON, and exits with 0 or 1. After a failure the folder with logs, stores and
arbiter stays, and its path is printed.

On a slow machine it ends with fewer failovers: after the time limit no new fault begins, but the
verdict follows. If the drain takes too long, the verdict covers the messages received until then, with
the number of missing ones.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import random
import secrets
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress

from haclient.errors import HaclientError
from tests import stores
from tests.faults.checker import Verdict, check
from tests.faults.clients import Load, drain
from tests.faults.cluster import Cluster, ClusterOptions, NotWholeError, cluster, may_mount
from tests.faults.faults import FAULTS
from tests.faults.history import History
from tests.faults.schedule import Step, schedule
from tests.faults.watch import watching

Report = Callable[[str, int], None]
# A failover with its fault takes 3 to 5 s, and on a machine that does other things too 15.
_SECONDS_PER_FAILOVER = 25.0
# The start, the last fault, which may begin when the time is nearly over, and the reckoning.
_START, _LAST_FAULT, _RECKONING = 60.0, 120.0, 180.0
# In the reckoning each message costs time again: the more failovers, the more messages.
_RECKONING_PER_FAILOVER = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The parameters of a soak.

    :param seconds: for the faults, after which no new one begins; ``None`` for a limit by ``failovers``.
    """

    failovers: int
    seed: int
    options: ClusterOptions
    seconds: float | None = None

    @property
    def for_faults(self) -> float:
        """Seconds after which no new fault begins."""
        return self.seconds or _START + self.failovers * _SECONDS_PER_FAILOVER

    @property
    def bound(self) -> float:
        """Seconds that the whole may take."""
        return self.for_faults + _LAST_FAULT + _RECKONING + self.failovers * _RECKONING_PER_FAILOVER

    @property
    def faults(self) -> list[str]:
        """The faults that these options allow."""
        return [f.name for f in FAULTS.values() if all(getattr(self.options, need) for need in f.needs)]


@dataclass(slots=True, kw_only=True)
class Result:
    """The result of a soak.

    :param faults: the number of times each fault was applied.
    :param impatient: the results of calls that were cancelled, or had little time.
    :param drained: whether all stored messages have been received; until then missing ones are not
        lost.
    :param missing: acknowledged messages that were not received.
    :param wrong: all violations; empty is good.
    """

    seed: int
    failovers: int = 0
    generation: int = 0
    seconds: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)
    impatient: dict[str, int] = field(default_factory=dict)
    drained: bool = False
    missing: int = 0
    verdict: Verdict | None = None
    stored: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def as_json(self) -> str:
        """For programs."""
        facts = dataclasses.asdict(self)
        if self.verdict is not None:
            # Violations are reported once, in ``wrong``.
            facts["verdict"] = {
                name: len(value) if isinstance(value, tuple) else value
                for name, value in dataclasses.asdict(self.verdict).items()
            }
        facts["stored"] = sum(self.stored.values())
        return json.dumps({"ok": not self.wrong, **facts}, indent=2)


async def soak(plan: Plan, folder: Path, report: Report) -> Result:
    """Run a plan; the result has the violations, and nothing is raised."""
    result, history = Result(seed=plan.seed), History()
    began = time.monotonic()
    limit = asyncio.timeout(plan.bound)
    try:
        async with limit:
            await _run(plan, folder, result, history, report)
    except NotWholeError as error:
        result.wrong.append(str(error))
    except (HaclientError, TimeoutError) as error:  # of a client, or from the time limit
        late = f"not done after {plan.bound:g} s"
        result.wrong.append(late if limit.expired() else "".join(traceback.format_exception(error)))
    result.seconds = round(time.monotonic() - began, 1)
    conclude(result, history)
    return result


def conclude(result: Result, history: History) -> None:
    """Judge the messages received by then, even if some were not drained."""
    verdict = result.verdict = check(history)
    result.missing = len(verdict.lost)
    result.impatient = dict(sorted(history.impatient.items()))
    if result.drained:
        result.wrong += [f"acknowledged and lost: {name}" for name in verdict.lost]
    else:
        text = "acknowledged messages were not received; the queues were not drained"
        result.wrong.append(f"{result.missing} of {verdict.acknowledged} {text}")
    result.wrong += [f"stored twice: {name}" for name in verdict.twice]
    result.wrong += [f"confirmed twice: {name}" for name in verdict.confirmed_twice]
    result.wrong += [f"confirmed, and came again: {name}" for name in verdict.confirmed_again]
    result.wrong += verdict.confirmed_late
    result.wrong += [f"its call did not return: {name}" for name in verdict.hung]
    result.wrong += [*verdict.unexpected, *verdict.disordered, *verdict.disputes]


async def _run(plan: Plan, folder: Path, result: Result, history: History, report: Report) -> None:
    async with cluster(folder, plan.options) as members, watching(members, history):
        async with Load(members.url, history, seed=plan.seed, names=members.names) as load:
            await _faults(plan, members, load, result, report)
            report("the clients finish", result.failovers)
            await load.finish()
        await reckon(members, result, history, report)


async def reckon(
    members: Cluster, result: Result, history: History, report: Report, *, others: bool = False
) -> None:
    """Compare the stores of a whole cluster without load, start it again and drain its queues.

    :param others: whether there are queues of which the history knows nothing; they are not drained.
    """
    await settled(members)
    report("the stores are compared", result.failovers)
    order = (members.primary, *members.backups)
    await members.stop(*order)
    result.wrong += await compare(members, result)
    report("the queues are drained", result.failovers)
    for member in order:
        await members.started(member)
    await members.whole()
    await drain(members.url, history)
    status = await members.status(members.primary)
    known = set(history.sent.values())
    left = [
        f"not drained: {queue}"
        for queue in status.facts["queues"]
        if queue["depth"] and (queue["name"] in known or not others)
    ]
    result.wrong += left
    result.generation = status.generation
    result.drained = not left


async def _faults(plan: Plan, members: Cluster, load: Load, result: Result, report: Report) -> None:
    first, until = members.promoted, time.monotonic() + plan.for_faults
    for step in schedule(plan.seed, plan.faults):
        if result.failovers >= plan.failovers:
            return
        if time.monotonic() > until:
            done = f"{result.failovers} of {plan.failovers} failovers after {plan.for_faults:g} s"
            result.wrong.append(f"only {done}")
            return
        report(str(step), result.failovers)
        await apply(members, step)
        await load.make_queue(f"made-{step.number}")
        load.check()
        result.failovers = members.promoted - first
        result.faults[step.fault] = result.faults.get(step.fault, 0) + 1


async def apply(members: Cluster, step: Step) -> None:
    """Apply one step, from a whole cluster to a whole cluster."""
    await asyncio.sleep(step.calm)
    fault = FAULTS[step.fault]
    try:
        async with fault.during(members, random.Random(step.seed)):
            await asyncio.sleep(fault.hold + step.longer)
        await members.whole()
    except (TimeoutError, NotWholeError) as error:
        raise NotWholeError(f"{step}: {error}") from error


async def settled(members: Cluster) -> None:
    """Wait until the backups have acknowledged everything."""
    while await _lag(members):  # noqa: ASYNC110 - another process can only be asked
        await asyncio.sleep(0.05)


async def _lag(members: Cluster) -> int:
    status = await members.status(members.primary)
    return sum(replica["lag"] for replica in status.facts["replication"]["replicas"])


async def compare(members: Cluster, result: Result) -> list[str]:
    """Return the differences between the stores of the stopped members."""
    model, *others = members.members
    wiring = await stores.wiring(members.store_of(model))
    contents = await _messages(members.store_of(model))
    result.stored = {queue: len(messages) for queue, messages in contents.items()}
    wrong = []
    for other in others:
        if await stores.wiring(members.store_of(other)) != wiring:
            wrong.append(f"the wiring of {model.name} and {other.name} differs")
        found = await _messages(members.store_of(other))
        wrong += [
            f"{queue} of {model.name} and {other.name} differs: {_difference(here, found.get(queue, {}))}"
            for queue, here in contents.items()
            if found.get(queue) != here
        ]
    return wrong


async def _messages(store: Path) -> dict[str, dict[int, bytes]]:
    """Return ids and bytes, without delivery counts, which may differ."""
    found = await stores.contents(store)
    return {queue: {number: data for number, data, *_ in rows} for queue, rows in found.items()}


def _difference(here: dict[int, bytes], there: dict[int, bytes]) -> str:
    changed = [number for number in here.keys() & there.keys() if here[number] != there[number]]
    only_here, only_there = sorted(here.keys() - there.keys()), sorted(there.keys() - here.keys())
    return (
        f"{len(only_here)} only in the first {only_here[:5]}, {len(only_there)} only in the second"
        f" {only_there[:5]}, {len(changed)} different {changed[:5]}"
    )


@click.command(context_settings={"show_default": True})
@click.option("--failovers", default=100, help="Promotions that there must be.")
@click.option("--seed", type=int, help="What decides on the faults.  [default: a new one]")
@click.option("--members", type=click.IntRange(2), default=2)
@click.option("--arbiter", type=click.Choice(["directory", "zookeeper"]), default="directory")
@click.option("--network", type=click.Choice(["proxy", "namespace"]), default="proxy")
@click.option(
    "--seconds", type=float, help="Begin no fault after this time.  [default: depends on --failovers]"
)
def main(
    *, failovers: int, seed: int | None, members: int, arbiter: Any, network: Any, seconds: float | None
) -> None:
    """Break a cluster repeatedly, and count the messages that its clients lost."""
    console = Console(soft_wrap=True, highlight=False)
    seed = secrets.randbits(32) if seed is None else seed
    options = ClusterOptions(members=members, arbiter=arbiter, network=network, small_disks=may_mount())
    plan = Plan(failovers=failovers, seed=seed, options=options, seconds=seconds)
    console.print(f"seed {seed}, {members} members, arbiter {arbiter}, network {network}")
    for name in ("haclient", "broker_stub"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("failovers", total=failovers)

        def report(what: str, done: int) -> None:
            progress.update(bar, completed=done)
            progress.console.print(what)

        result = asyncio.run(soak(plan, folder, report))
    console.print(result.as_json())
    if result.wrong:
        console.print(f"FAILED; replay with --seed {seed}.  Logs, stores and arbiter: {folder}")
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
