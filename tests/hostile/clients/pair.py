"""Runs the pair as processes, with hostile and honest clients, and checks these rules:

* No process of the pair ends, and none is replaced.
* No process of the pair ever uses more than ``MOST_MEMORY``.
* No settled message is lost, and none is redelivered after its accept was confirmed. No honest client
  loses its connection.
* No member's log has a traceback.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from haclient.errors import HaclientError
from tests.hostile.clients.honest import HOSTILE_QUEUES, QUEUE, Honest, Ledger, failed
from tests.hostile.processes import usage

ROOT = Path(__file__).resolve().parents[3]
# The pair's limits of unfinished messages, for all connections and for one; lower than the defaults.
_UNFINISHED = 64 * 1024 * 1024
_LIMITS = (
    "--max-queues", "200", "--max-unfinished", str(_UNFINISHED // 4),
    "--max-unfinished-total", str(_UNFINISHED), "--max-bytes", str(256 * 1024 * 1024),
)  # fmt: skip
MOST_MEMORY = 768 * 1024 * 1024
"""The limits above, twice for data being written to a store and to a backup, and Python itself."""
_LOOK = 0.5
_START, _STOP = 60.0, 30.0
_MOST_LINES = 15


@dataclass(slots=True)
class PairOutcome:
    """The outcome of a run.

    :ivar peak: the peak memory of each member, in bytes.
    """

    seed: int
    ledger: Ledger = field(default_factory=Ledger)
    ends: Counter[str] = field(default_factory=Counter)
    peak: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    defects: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        ledger = self.ledger
        memory = ", ".join(f"{name} {size // 2**20} MiB" for name, size in self.peak.items())
        return (
            f"seed {self.seed}, {self.seconds:.0f} s: {self.ends.total()} acts; {memory};"
            f" {len(ledger.settled)} settled of {ledger.sent}, {len(ledger.confirmed)} confirmed,"
            f" {len(ledger.lost)} lost, {len(ledger.again)} again after their confirmation,"
            f" {ledger.foreign.total()} of others; {ledger.disconnected.total()} honest connections lost;"
            f" {len(self.defects)} defects"
        )


class Pair:
    """``broker-stub pair`` as a process, and its members.

    :ivar events: its reports since it was ready.
    """

    def __init__(self, process: asyncio.subprocess.Process, facts: dict[str, Any]) -> None:
        self._process = process
        self.url: str = facts["url"]
        self.folder = Path(facts["store"])
        self.pids = {member["name"]: member["pid"] for member in facts["members"]}
        self.addresses = [member["address"] for member in facts["members"]]
        self.events: list[dict[str, Any]] = []
        self.peak: dict[str, int] = dict.fromkeys(self.pids, 0)

    async def watch(self) -> None:
        """Observe the members until one has ended."""
        while self._look():  # noqa: ASYNC110 - the kernel must be polled
            await asyncio.sleep(_LOOK)

    def _look(self) -> bool:
        for name, pid in self.pids.items():
            if (found := usage(pid)) is None:
                return False
            self.peak[name] = max(found.peak, self.peak[name])
        return True

    async def read(self) -> None:
        """Record the pair's reports."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.events.append(json.loads(line))

    def defects(self) -> list[str]:
        """Return the defects, from its processes, its reports and its logs."""
        found = [f"{name} has ended" for name, pid in self.pids.items() if usage(pid) is None]
        if self._process.returncode is not None:
            found.append(f"the pair has ended with {self._process.returncode}")
        found += [f"reported: {event}" for event in self.events]
        for name, size in self.peak.items():
            if size > MOST_MEMORY:
                found.append(f"{name} had {size // 2**20} MiB")
        for log in sorted(self.folder.glob("*.log")):
            found += tracebacks(log.stem, log.read_text(errors="replace"))
        return found


def tracebacks(name: str, log: str) -> list[str]:
    """Return each kind of traceback in a log once: its last line, and its count."""
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    lines = log.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("Traceback (most recent call last)"):
            rest = lines[number + 1 :]
            end = next((at for at, text in enumerate(rest) if text and not text.startswith(" ")), len(rest))
            last = rest[end] if end < len(rest) else "no end"
            counts[last[:100]] += 1
            first.setdefault(last[:100], "\n".join(rest[max(0, end - _MOST_LINES) : end + 1]))
    return [f"{name} logged {count} times: {kind}\n{first[kind]}" for kind, count in counts.items()]


@asynccontextmanager
async def pair_process(folder: Path) -> AsyncIterator[Pair]:
    """Start the pair; it is ready when the body starts."""
    command = (sys.executable, "-m", "broker_stub", "pair", "--json", "--no-restart", "--store", str(folder))
    ports = ("--listen", "127.0.0.1:0") * 2
    process = await asyncio.create_subprocess_exec(
        *command, *ports, *_LIMITS,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START):
            facts: dict[str, Any] = {}
            while facts.get("event") != "ready":
                facts = json.loads(await process.stdout.readline() or '{"event": "ready"}')
        yield Pair(process, facts)
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(_STOP):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


def hostile_clients(
    addresses: Sequence[str],
    seed: int,
    *,
    shared: str = "",
    acts: Sequence[str] = (),
    clients: int = 3,
    pause: float = 0.1,
) -> tuple[str, ...]:
    """Return the command of hostile clients that run until the input of their process closes."""
    options = {
        "addresses": list(addresses),
        "seed": seed,
        "queues": HOSTILE_QUEUES,
        "shared": shared,
        "acts": list(acts),
        "clients": clients,
        "pause": pause,
    }
    return sys.executable, "-m", "tests.hostile.clients.process", json.dumps(options)


@asynccontextmanager
async def hostile_process(command: Sequence[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the command; kill it at the end of the context."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=ROOT,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def run(seed: int, seconds: float, *, acts: Sequence[str] = ()) -> PairOutcome:
    """Run hostile clients against a pair for this many seconds."""
    outcome = PairOutcome(seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        async with pair_process(Path(folder)) as pair:
            honest = Honest(f"{pair.url}/?send_timeout=60")
            outcome.ledger = honest.ledger
            looking = [asyncio.create_task(pair.watch()), asyncio.create_task(pair.read())]
            try:
                honest.start()
                command = hostile_clients(pair.addresses, seed, shared=QUEUE, acts=acts)
                async with hostile_process(command) as hostile:
                    await _until_over(honest, looking[0], hostile, seconds)
                    await _end(hostile, outcome)
                await honest.finish()
            except (HaclientError, ExceptionGroup) as error:
                outcome.defects.append(failed(error))
            finally:
                await honest.stop()
                for task in looking:
                    task.cancel()
            outcome.peak = pair.peak
            outcome.defects += pair.defects()
    outcome.defects += [
        f"an honest client lost its connection {count} times: {why}"
        for why, count in outcome.ledger.disconnected.items()
    ]
    if outcome.ledger.lost:
        outcome.defects.append(f"settled and not received: {outcome.ledger.lost[:20]}")
    if outcome.ledger.again:
        outcome.defects.append(f"confirmed, and came again: {sorted(outcome.ledger.again)[:20]}")
    outcome.seconds = time.monotonic() - began
    return outcome


async def _until_over(
    honest: Honest, watching: asyncio.Task[None], hostile: asyncio.subprocess.Process, seconds: float
) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not watching.done() and hostile.returncode is None:
        honest.check()
        await asyncio.sleep(_LOOK)


async def _end(hostile: asyncio.subprocess.Process, outcome: PairOutcome) -> None:
    assert hostile.stdin is not None
    assert hostile.stdout is not None
    hostile.stdin.close()
    out = await hostile.stdout.read()
    await hostile.wait()
    lines = out.decode().splitlines()
    if hostile.returncode or len(lines) < 2:
        outcome.defects.append(f"the hostile clients ended with {hostile.returncode}")
        return
    facts = json.loads(lines[-1])
    outcome.ends.update(facts["ends"])
    outcome.defects += [f"a mistake of an act: {each}" for each in facts["wrong"]]
