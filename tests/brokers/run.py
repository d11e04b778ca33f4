"""Runs one cell: a cluster under load, repeated faults, a drain, and the judgement.

Two producers and one consumer of the cell's kind run concurrently. One producer sends to the consumer's
queue, the second one to a queue without consumers until the drain.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tests.brokers import dials
from tests.brokers.cells import Cell
from tests.brokers.judge import Judgement, Outage, judge, read
from tests.brokers.processes import Program, ProgramError, running
from tests.brokers.programs.task import PATIENCE, Task
from tests.brokers.topology import (
    ALARM_SECONDS,
    NO_QUORUM_SECONDS,
    PAUSE_SECONDS,
    BrokerCluster,
    ClusterError,
    Fault,
)

LIVE, KEPT = "live", "kept"
# Messages a second.
_LIVE_RATE, _KEPT_RATE = 100.0, 40.0
_HEARTBEAT = 4
"""Seconds. Shorter than the silences, so that the programs notice them."""
# Seconds. A client notices a silent peer after at most two heartbeats. A stopped client first continues.
_FINDS_OUT = {
    Fault.PAUSE: PAUSE_SECONDS + 2 * _HEARTBEAT,
    Fault.SILENCE: 2.0 * _HEARTBEAT,
    Fault.ALARM: ALARM_SECONDS + 2 * _HEARTBEAT,
    Fault.NO_QUORUM: NO_QUORUM_SECONDS + 2 * _HEARTBEAT,
}
# So many outcomes after a fault show that the load is back.
_CALM_OUTCOMES = 20
STABLE_AFTER = 5.0
"""Seconds, the default of the option ``stable_after``."""
# Then a random time passes, in seconds, beyond ``stable_after``. Otherwise the backoff would continue from
# the fault before.
_MORE_CALM = (0.5, 2.5)
# Seconds: the start of a cluster, one whole fault, and the end.
_START, _FAULT, _END = 300.0, 400.0, 600.0

Report = Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The parameters of one cell's run.

    :param folder: the folder for histories, which are not needed after a cell that holds.
    :param times: the number of faults.
    :param stable_after: the programs' option, and the least time between faults.
    """

    cell: Cell
    folder: Path
    times: int
    seed: int
    report: Report
    stable_after: float = STABLE_AFTER


@dataclass(slots=True, kw_only=True)
class Run:
    """The result of one cell.

    :ivar faults: the outages until the cell ended.
    :ivar broken: why the cell ended early without a fault of the client.
    """

    faults: list[Outage]
    version: str = ""
    judgement: Judgement | None = None
    wrong: list[str]
    broken: str = ""


async def run(job: Job, cluster: BrokerCluster) -> Run:
    """Run a cell. Failures are part of the result and never raised."""
    result = Run(faults=[], wrong=[], version=cluster.version)
    try:
        async with asyncio.timeout(_START):
            await cluster.start()
        async with asyncio.timeout(job.times * _FAULT + _END):
            await _run(job, cluster, result)
    except ClusterError as error:
        result.broken = str(error)
    except ProgramError as error:
        result.wrong.append(str(error))
    except Exception as error:  # noqa: BLE001 - a defect of a launcher must not end the other cells
        result.broken = "".join(traceback.format_exception(error))
    finally:
        try:
            await cluster.stop()
        except ClusterError as error:
            result.broken = result.broken or str(error)
    return result


async def _run(job: Job, cluster: BrokerCluster, result: Run) -> None:
    queues = {name: cluster.queue(f"matrix.{name}") for name in (LIVE, KEPT)}
    tasks = _tasks(cluster.url, queues, job)
    rng = random.Random(job.seed)
    async with running(job.cell.program, *tasks) as programs:
        producers, consumer = programs[:2], programs[2]
        for number in range(1, job.times + 1):
            await _calm(programs, cluster, rng, job.stable_after)
            outage = await _outage(job.cell.fault, cluster)
            result.faults.append(outage)
            with (job.folder / "outages.jsonl").open("a") as file:
                file.write(json.dumps(dataclasses.asdict(outage)) + "\n")
            job.report(f"{number}: served after {outage.ended - outage.began:.2f} s")
            await _recovered(programs)
        await _calm(programs, cluster, rng, job.stable_after)
        for producer in producers:
            await producer.finish()
        await consumer.finish()
    evidence = read([Path(task.journal) for task in tasks], kept=queues[KEPT])
    evidence.dials = {task.name: dials.read(_telemetry(job, task.name)) for task in tasks}
    for name, queue in queues.items():
        stored = await cluster.drain(f"matrix.{name}")
        evidence.drains(queue, (each.body for each in stored), time.monotonic())
    result.judgement = judge(evidence, result.faults, detects_duplicates=cluster.detects_duplicates)
    result.wrong += result.judgement.wrong


async def _outage(fault: Fault, cluster: BrokerCluster) -> Outage:
    """Inject the fault, and wait until the cluster serves again."""
    asked = time.monotonic()
    began = await cluster.inject(fault)
    served = await cluster.serving()
    return Outage(
        asked=asked,
        began=began,
        accepting=served.since,
        ended=served.at,
        endpoint=served.endpoint.authority,
        over=max(served.at, began + _FINDS_OUT.get(fault, 0.0)),
    )


def _telemetry(job: Job, name: str) -> Path:
    return job.folder / f"telemetry-{name}"


def _tasks(url: str, queues: dict[str, str], job: Job) -> list[Task]:
    def url_of(name: str) -> str:
        telemetry = quote(str(_telemetry(job, name)))
        options = f"heartbeat={_HEARTBEAT}&stable_after={job.stable_after}&telemetry={telemetry}"
        return with_options(url, options)

    rates = {LIVE: _LIVE_RATE, KEPT: _KEPT_RATE}
    producers = [
        Task(
            role="producer",
            url=url_of(f"producer-{name}"),
            queue=queue,
            journal=str(job.folder / f"producer-{name}.jsonl"),
            name=f"producer-{name}",
            seed=job.seed,
            rate=rates[name],
        )
        for name, queue in queues.items()
    ]
    journal = str(job.folder / "consumer.jsonl")
    consumer = Task(
        role="consumer", url=url_of("consumer"), queue=queues[LIVE], journal=journal, name="consumer"
    )
    return [*producers, consumer]


def with_options(url: str, options: str) -> str:
    """Return a cluster URL with more options."""
    if "?" in url:
        return f"{url}&{options}"
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest}{'' if '/' in rest else '/'}?{options}"


async def _calm(programs: list[Program], cluster: BrokerCluster, rng: random.Random, least: float) -> None:
    """Wait until every program progresses and the cluster is whole, and then a random time."""
    await _progress(programs, _CALM_OUTCOMES, "not at work")
    await cluster.whole()
    await asyncio.sleep(least + rng.uniform(*_MORE_CALM))


async def _recovered(programs: list[Program]) -> None:
    """Wait until every program has recovered from an outage."""
    await _progress(programs, 1, "not over the outage")


async def _progress(programs: list[Program], count: int, what: str) -> None:
    for program in programs:
        program.read()
    goals = [program.progress + count for program in programs]
    for program, goal in zip(programs, goals, strict=True):
        if program.shows_progress:
            await program.until(goal, what, PATIENCE)
