"""An example as a separate process, followed by its printed lines."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
# Python and proton take a fraction of a second to start, except on a machine that is very busy.
PATIENCE = 30.0


class Program:
    """``async with Program("worker", url) as program``; a process that still runs at the end is killed."""

    def __init__(self, name: str, *arguments: str) -> None:
        self._command: tuple[str, ...] = (sys.executable, str(EXAMPLES / f"{name}.py"), *arguments)
        # Its lines are read while it runs, and most programs do not flush.
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        self._printed: list[str] = []

    @classmethod
    def of(cls, *command: str | Path, **environment: str | Path) -> Self:
        """Wrap any other command."""
        program = cls("")
        program._command = tuple(map(str, command))
        program._environment |= {name: str(value) for name, value in environment.items()}
        return program

    async def line(self, pattern: str) -> re.Match[str]:
        """Read lines up to one that contains a text."""
        try:
            async with asyncio.timeout(PATIENCE):
                while raw := await self._stdout.readline():
                    self._printed.append(raw.decode())
                    if found := re.search(pattern, self._printed[-1]):
                        return found
        except TimeoutError:
            pass
        raise AssertionError(f"no line with {pattern!r} in:\n{''.join(self._printed)}")

    async def end(self) -> str:
        """Wait until it has exited with 0; return all its output, including lines read before."""
        async with asyncio.timeout(PATIENCE):
            self._printed.append((await self._stdout.read()).decode())
            code = await self._process.wait()
        printed = "".join(self._printed)
        assert code == 0, f"exit code {code} after:\n{printed}"
        return printed

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it."""
        self._process.send_signal(number)

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            stdin=asyncio.subprocess.DEVNULL,
            env=self._environment,
        )
        assert self._process.stdout is not None
        self._stdout = self._process.stdout
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()
