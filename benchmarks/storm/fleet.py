"""The clients of a storm: worker processes of one kind, which read commands and report events.

Workers end when their input ends, so they never outlive the storm.  Linux first shares processors among
sessions (``sched_autogroup``), and each member has its own session.  By default the workers stay in this
process's session and count as one more.  With ``apart`` they get their own sessions, whose niceness then
counts against the members'.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
from asyncio.subprocess import PIPE
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.storm.lines import Command, Line, read_line, write_command
from haclient.command_line.python import module_command, module_environment

Kind = Literal["haclient", "proton", "rhea"]

_HERE = Path(__file__).resolve().parent
_RHEA = _HERE / "rhea_worker.js"
# select() takes file descriptors below 1024; the container and the interpreter use some of them.
_PROTON_LIMIT = 900
# Seconds in which an interpreter loads proton on a busy machine.
_START_TIMEOUT = 60.0
_STOP_TIMEOUT = 5.0


# Real clients have their own machines; here a higher niceness gives the members precedence.
_NICE = 5


class FleetError(RuntimeError):
    """The workers cannot run, or did not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """The kind and number of the clients.

    :param first: number of the first client.
    :param processes: number of workers; proton gets more if its ``select()`` needs them.
    :param delays: the preset whose delays clients of kind ``haclient`` wait; empty for their own.
    :param nice: added to the workers' niceness.
    :param apart: True to let the members, and not only this session, precede the workers.
    :param node_modules: directory that has rhea; ``None`` for node's own search path.
    """

    kind: Kind
    clients: int
    url: str
    first: int = 0
    processes: int = 2
    address: str = "storm"
    delays: str = ""
    seed: int = 1
    nice: int = _NICE
    apart: bool = False
    node_modules: Path | None = None

    def shares(self) -> list[tuple[int, int]]:
        """Return the first client and the number of clients of each worker."""
        workers = min(self.processes, self.clients)
        if self.kind == "proton":
            workers = max(workers, -(-self.clients // _PROTON_LIMIT))
        marks = [self.first + self.clients * each // workers for each in range(workers + 1)]
        return [(start, end - start) for start, end in itertools.pairwise(marks)]

    def program(self) -> list[str]:
        """Return the beginning of a worker's command line.

        :raises FleetError: if node is not installed.
        """
        if self.kind != "rhea":
            name = "worker" if self.kind == "haclient" else "proton_worker"
            return [*module_command(f"benchmarks.storm.{name}")]
        node = shutil.which("node")
        if node is None:
            raise FleetError("rhea needs node, which is not on PATH")
        return [node, str(_RHEA)]

    def environment(self) -> dict[str, str]:
        """Return the environment in which the workers find their libraries."""
        environment = module_environment()
        if self.node_modules is not None:
            environment["NODE_PATH"] = _joined(str(self.node_modules), "NODE_PATH")
        return environment


def _joined(path: str, variable: str) -> str:
    return os.pathsep.join(filter(None, (path, os.environ.get(variable))))


class Fleet:
    """The workers, from ``start`` to ``stop``.

    :param on_line: called with each line that a worker writes.
    :param log: receives their standard error.
    """

    def __init__(self, plan: FleetPlan, on_line: Callable[[Line], object], log: Path) -> None:
        self._plan = plan
        self._on_line = on_line
        self._log = log
        self._workers: list[asyncio.subprocess.Process] = []
        self._listening: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start the workers and wait until they take commands.

        :raises FleetError: if a worker does not start.
        """
        program, environment = self._plan.program(), self._plan.environment()
        try:
            async with asyncio.timeout(_START_TIMEOUT):
                for first, count in self._plan.shares():
                    await self._spawn([*program, *self._arguments(first, count)], environment)
        except TimeoutError:
            await self.stop()
            raise FleetError(f"a worker did not start: {self._last_error()}") from None
        except BaseException:
            await self.stop()
            raise

    def _arguments(self, first: int, count: int) -> list[str]:
        plan = self._plan
        numbers = ["--first", str(first), "--count", str(count), "--seed", str(plan.seed)]
        delays = ["--delays", plan.delays] if plan.delays else []
        return [plan.url, "--address", plan.address, *numbers, *delays]

    async def _spawn(self, command: list[str], environment: dict[str, str]) -> None:
        with self._log.open("ab") as log:
            worker = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                env=environment,
                start_new_session=self._plan.apart,
            )
        self._workers.append(worker)
        self._make_nice(worker.pid)
        assert worker.stdout is not None
        first = read_line(await worker.stdout.readline())
        if first is None or first.what != "ready":
            raise FleetError(f"a worker did not start: {self._last_error()}")
        self._listening.append(asyncio.create_task(self._listen(worker.stdout)))

    def _make_nice(self, pid: int) -> None:
        os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0) + self._plan.nice)
        session = Path(f"/proc/{pid}/autogroup")
        if self._plan.apart and session.exists():
            session.write_text(str(self._plan.nice))

    async def _listen(self, output: asyncio.StreamReader) -> None:
        async for text in output:
            line = read_line(text)
            if line is not None:
                self._on_line(line)

    def _last_error(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        errors = [line for line in lines if "Error" in line]
        return (errors or lines or ["no output"])[-1]

    @property
    def died(self) -> str:
        """Return why a worker ended early; empty if all of them run."""
        codes = [worker.returncode for worker in self._workers if worker.returncode is not None]
        return f"exit code {codes[0]}: {self._last_error()}" if codes else ""

    @property
    def processes(self) -> list[int]:
        """The workers' process ids."""
        return [worker.pid for worker in self._workers]

    def send(self, command: Command) -> None:
        """Send a command to every client."""
        for worker in self._workers:
            assert worker.stdin is not None
            worker.stdin.write(write_command(command))

    async def stop(self) -> None:
        """End the workers; kill each that does not end in time."""
        for worker in self._workers:
            assert worker.stdin is not None
            worker.stdin.close()
        await asyncio.gather(*map(_reap, self._workers))
        for task in self._listening:
            task.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)


async def _reap(worker: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(_STOP_TIMEOUT):
            await worker.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            worker.kill()
        await worker.wait()
