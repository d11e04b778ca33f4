"""A member as a process, with a log: started, stopped, paused and killed by its id.

It ends whenever its parent process ends (``setpriv --pdeathsig``, Linux).
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.brokers.topology import ClusterError

_POLL = 0.05
# Seconds for a JVM to flush and close its journal on a busy machine.
_STOP_SECONDS = 60.0
_TAIL_LINES = 30


class MemberProcess:
    """One process at a time.

    :param command: the program and its arguments.
    :param log: the file for the output of all starts. The process works in this file's folder, so that
        stray files (Broker-J: ``derby.log``) stay there.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self._command = ("setpriv", "--pdeathsig", "KILL", *command)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def running(self) -> bool:
        """Return whether the process exists, even if it is paused."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process. ``said`` and ``tail`` cover its output from here."""
        if self.running:
            raise AssertionError(f"{self.name} runs already")
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._log.parent,
            )

    def send_kill(self) -> None:
        """Send SIGKILL if the process runs."""
        self._signal(signal.SIGKILL)

    async def kill(self) -> None:
        """Send SIGKILL if the process runs, and wait until it is gone."""
        self.send_kill()
        await self._gone()

    async def stop(self) -> None:
        """Send SIGTERM, and wait until the process ends."""
        self._signal(signal.SIGTERM)
        await self._gone()

    def pause(self) -> None:
        """Send SIGSTOP, and wait until the process has stopped."""
        self._signal(signal.SIGSTOP)
        if self._process is not None:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Send SIGCONT."""
        self._signal(signal.SIGCONT)

    def said(self) -> str:
        """Return the output since the last start."""
        if not self._log.exists():
            return ""
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def last(self, pattern: str) -> int:
        """Return the offset of a pattern's last match in ``said``, or -1."""
        return max((found.start() for found in re.finditer(pattern, self.said())), default=-1)

    def tail(self) -> str:
        """Return the end of the log, with the member's name and state."""
        lines = self.said().splitlines()[-_TAIL_LINES:]
        state = "runs" if self.running else f"ended with {self._process and self._process.returncode}"
        return "\n".join((f"-- {self.name} {state}; {self._log}:", *lines))

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)  # does nothing once the process has been waited for

    async def _gone(self) -> None:
        deadline = time.monotonic() + _STOP_SECONDS
        while self.running:
            if time.monotonic() > deadline:
                raise ClusterError(f"{self.name} does not end\n{self.tail()}")
            await asyncio.sleep(_POLL)
