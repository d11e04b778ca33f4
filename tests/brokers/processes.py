"""The programs of a cell as processes, and the progress that their journals show."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.brokers.cells import OTHER_CLIENTS, PROGRAMS
from tests.brokers.programs import task as programs
from tests.brokers.programs.task import PATIENCE, Task
from tests.faults.history import Fate

# Seconds: to start and attach; to end, in addition to the program's own patience.
_START, _END = 120.0, PATIENCE + 60.0
_POLL = 0.05
_TAIL = 600
_ROOT = Path(__file__).resolve().parents[2]


class ProgramError(Exception):
    """A program ended, or made no progress for too long. The text has the end of its standard error."""


class Program:
    """One process.

    :ivar progress: the settlements of a producer, or the receipts of a consumer, so far.
    :ivar shows_progress: false for a producer that reports its settlements only when it ends.
    """

    def __init__(self, task: Task, process: Process, errors: Path) -> None:
        self.task = task
        self.progress = 0
        self.shows_progress = True
        self._process = process
        self._errors = errors
        self._offset = 0

    async def until_ready(self) -> None:
        """Wait until the program's link is attached."""
        assert self._process.stdout is not None
        async with self._limit("not attached", _START):
            if await self._process.stdout.readline() != b"ready\n":
                await self._process.wait()
                raise ProgramError(self._tail("ended before it was attached"))

    def read(self) -> None:
        """Count the journal lines written since the last call.

        :raises ProgramError: if the program has ended.
        """
        with Path(self.task.journal).open("rb") as journal:
            journal.seek(self._offset)
            whole = journal.read().rpartition(b"\n")[0]
        for line in whole.splitlines():
            self._count(json.loads(line))
        self._offset += len(whole) + 1 if whole else 0
        if self._process.returncode is not None:
            raise ProgramError(self._tail(f"ended with {self._process.returncode}"))

    async def until(self, progress: int, what: str, seconds: float) -> None:
        """Wait until ``progress`` reaches this number."""
        async with self._limit(what, seconds):
            self.read()
            while self.progress < progress:
                await asyncio.sleep(_POLL)
                self.read()

    async def finish(self) -> None:
        """Close the program's input, and wait until it ends."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with self._limit("did not finish", _END):
            code = await self._process.wait()
        if code != 0:
            raise ProgramError(self._tail(f"ended with {code}"))

    async def kill(self) -> None:
        """Send SIGKILL if the process runs."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def _count(self, line: dict[str, Any]) -> None:
        match line:
            case {"kind": "end", "fate": Fate.ACKNOWLEDGED.value} | {"kind": "receive"}:
                self.progress += 1
            case {"kind": "event", "event": programs.OUTCOMES_AT_END}:
                self.shows_progress = False

    @asynccontextmanager
    async def _limit(self, what: str, seconds: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            raise ProgramError(self._tail(f"{what} in {seconds:g} s")) from None

    def _tail(self, what: str) -> str:
        text = self._errors.read_text(errors="replace")[-_TAIL:]
        return f"{self.task.name} {what}\n{text}".rstrip()


@asynccontextmanager
async def running(program: str, *tasks: Task) -> AsyncIterator[list[Program]]:
    """Start programs of one kind, attached. Kill the remaining ones at the end of the context."""
    programs: list[Program] = []
    try:
        for task in tasks:
            programs.append(await _start(program, task))  # noqa: PERF401 - those that started are killed
        for each in programs:
            await each.until_ready()
        yield programs
    finally:
        for each in programs:
            await each.kill()


async def _start(program: str, task: Task) -> Program:
    Path(task.journal).touch()
    errors = Path(task.journal).with_suffix(".stderr")
    module = f"tests.brokers.programs.{(PROGRAMS | OTHER_CLIENTS)[program]}"
    command = (sys.executable, "-m", module, task.as_json(), program)
    with errors.open("ab") as stderr:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=stderr, cwd=_ROOT, env=_environment()
        )
    return Program(task, process, errors)


def _environment() -> dict[str, str]:
    """Return the environment without the variables that would configure the client under test."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HACLIENT_")}
    return {**kept, "PYTHONPATH": str(_ROOT)}
