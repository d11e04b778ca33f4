"""The soak of hosts: random faults between network namespaces under load, then the verdict.

    make soak-hosts FAULTS=200 SEED=7
    python -m tests.hosts.soak --faults 20 --seed 7

The seed is printed first. The same seed makes the same faults in the same order, and each kind of fault
occurs equally often. Two of three steps wait until the cluster is whole again, the others continue at
once.

At the end all faults are healed, and the verdict is as in ``tests.faults``. The stores are equal, the
queues are drained, and every client's history is read from its file. Nothing acknowledged is lost, only
sent messages arrive, and each producer's order holds. Losses that a forced promotion may cause by its
documentation are counted separately.

Clients of another host continuously send malformed and extreme frames and messages, to their own queues
(``tests.hostile``). The stores must be equal in these queues too, but they are not drained.

It prints a summary in JSON, and exits with 0 or 1, or with 2 and the reason if it cannot run here.
After a failure the folder with histories, logs, stores and arbiter stays, and its path is printed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import click

from haclient.errors import HaclientError
from tests.faults.cluster import NotWholeError
from tests.faults.history import History
from tests.faults.schedule import Step, schedule
from tests.faults.soak import Result, conclude, reckon
from tests.faults.watch import watching
from tests.hosts.cluster import HOSTS, MANAGER, Site, on_hosts
from tests.hosts.faults import FAULTS, Ground
from tests.hosts.journal import Journal, read
from tests.hosts.lab import Lab, missing

# Seconds: a member starts and catches up in a few, on a busy machine in many.
_WHOLE = 120.0
# Seconds between reads of the arbiter, each of which opens a session.
_LOOK = 0.25
# Faults between new queues: each queue slows every catch-up.
_QUEUE_EVERY = 5
_GOES_ON = 1 / 3
# Seconds for each fault with its recovery; for the start and the verdict.
_SECONDS_PER_FAULT, _SECONDS_ELSE = 40.0, 600.0
_CANNOT_RUN = 2


@dataclass(slots=True, kw_only=True)
class HostsResult(Result):
    """The result of a soak.

    :param promotions: the number of promotions that faults requested, by result.
    :param forced_seconds: for each forced promotion, the seconds in which it may have lost acknowledged
        messages.
    :param frames: the frames of all cables, by fate.
    :param hostile: the number of hostile clients' acts, by act and result.
    """

    promotions: dict[str, int] = field(default_factory=dict)
    forced_seconds: list[float] = field(default_factory=list)
    frames: dict[str, int] = field(default_factory=dict)
    hostile: dict[str, int] = field(default_factory=dict)


class Soak:
    """One run.

    :param faults: the number of faults.
    :param folder: the folder for all files.
    :param seconds: the time after which no fault begins; the verdict follows all the same.
    :param hostile: whether there are hostile clients.
    """

    def __init__(
        self,
        faults: int,
        seed: int,
        folder: Path,
        report: Callable[[str], None],
        *,
        seconds: float | None = None,
        hostile: bool = True,
    ) -> None:
        self._faults = faults
        self._seconds = math.inf if seconds is None else seconds
        self._folder = folder
        self._report = report
        self._hostile = hostile
        self._last = Step(0, "", 0.0, 0.0, 0)
        self.result = HostsResult(seed=seed)

    async def run(self, lab: Lab) -> None:
        """Run the soak. Failures are part of the result and never raised."""
        result, began = self.result, time.monotonic()
        own = self._folder / "manager.jsonl"
        with own.open("w") as file:
            # The manager's observations, and the messages it drains.
            history = Journal(file, MANAGER)
            try:
                async with asyncio.timeout(self._faults * _SECONDS_PER_FAULT + _SECONDS_ELSE):
                    async with on_hosts(lab, self._folder) as site:
                        await self._run(site, history)
            except (NotWholeError, TimeoutError, HaclientError, OSError) as error:
                result.wrong.append(f"at step {self._last}: {''.join(traceback.format_exception(error))}")
            finally:
                result.frames = dict(_sum_of(lab))
            history.close()
        self._conclude(read([*sorted(self._folder.glob("client-*.jsonl")), own]), history)
        result.seconds = round(time.monotonic() - began, 1)

    def _conclude(self, found: History, seen: History) -> None:
        found.forced, found.disputes = seen.forced, [*found.disputes, *seen.disputes]
        self.result.forced_seconds = [round(end - begin, 1) for begin, end in seen.forced]
        conclude(self.result, found)

    async def _run(self, site: Site, history: Journal) -> None:
        ground = Ground(site, history)
        members, result = site.members, self.result
        try:
            async with watching(members, history, interval=_LOOK, outages=True):
                await site.start_clients(result.seed)
                if self._hostile:
                    site.start_hostile(result.seed)
                await self._all_faults(ground)
                site.lab.heal()
                await members.whole(_WHOLE)
                ground.over()
                self._report("the clients finish")
                await site.finish_clients()
                result.hostile = await site.finish_hostile()
                # The clients' histories list the queues to drain.
                for name, queue in read(site.journals).sent.items():
                    history.sent.setdefault(name, queue)
                result.failovers = members.promoted
                await reckon(
                    members, result, history, lambda what, _done: self._report(what), others=self._hostile
                )
        finally:
            result.promotions = dict(ground.promotions)

    async def _all_faults(self, ground: Ground) -> None:
        until = time.monotonic() + self._seconds
        for step in schedule(self.result.seed, list(FAULTS)):
            if step.number > self._faults:
                return
            if time.monotonic() > until:
                done = sum(self.result.faults.values())
                self.result.wrong.append(f"only {done} of {self._faults} faults after {self._seconds:g} s")
                return
            self._last = step
            self._report(str(step))
            await self._one_fault(ground, step)
            ground.site.check_clients()
            self.result.faults[step.fault] = self.result.faults.get(step.fault, 0) + 1
            if step.number % _QUEUE_EVERY == 0:
                ground.site.make_queue(step.number)

    async def _one_fault(self, ground: Ground, step: Step) -> None:
        rng = random.Random(step.seed)
        goes_on = rng.random() < _GOES_ON
        await asyncio.sleep(step.calm)
        fault = FAULTS[step.fault]
        async with fault.during(ground, rng):
            await asyncio.sleep(fault.seconds(rng))
        # While a forced promotion may lose messages, no other fault begins.
        if ground.unfinished or not goes_on:
            await ground.site.members.whole(_WHOLE)
            ground.over()


def _sum_of(lab: Lab) -> Counter[str]:
    frames: Counter[str] = Counter()
    for counts in lab.counts().values():
        frames.update(counts)
    return frames


async def soak(run: Soak, lab: Lab) -> HostsResult:
    """Run the soak on the manager's host. SIGTERM ends it like a failure, with a full cleanup."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await run.run(lab)
    return run.result


@click.command(context_settings={"show_default": True})
@click.option("--faults", type=click.IntRange(0), default=200, help="How many.")
@click.option("--seed", type=int, help="What decides on the faults.  [default: a new one]")
@click.option(
    "--seconds", type=float, help="Begin no fault after this time.  [default: as long as they take]"
)
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Keep all files there.")
@click.option("--hostile/--no-hostile", default=True, help="Whether hostile clients act all the while.")
def main(*, faults: int, seed: int | None, seconds: float | None, folder: Path | None, hostile: bool) -> None:
    """Break hosts and their cables repeatedly, and count the clients' losses."""
    if reason := missing():
        click.echo(f"soak-hosts cannot run here: {reason}", err=True)
        sys.exit(_CANNOT_RUN)
    seed = secrets.randbits(32) if seed is None else seed
    click.echo(f"seed {seed}, {faults} faults, hosts {', '.join(HOSTS)}")
    for name in ("haclient", "broker_stub", "kazoo"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    kept = folder
    folder = folder or Path(tempfile.mkdtemp(prefix="soak-hosts-"))
    folder.mkdir(parents=True, exist_ok=True)
    with Lab(HOSTS, seed=seed) as lab, lab.on(MANAGER):
        run = Soak(faults, seed, folder, click.echo, seconds=seconds, hostile=hostile)
        result = asyncio.run(soak(run, lab))
    click.echo(result.as_json())
    if result.wrong:
        click.echo(f"FAILED; replay with --seed {seed}.  Histories, logs, stores and arbiter: {folder}")
        sys.exit(1)
    if kept is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
