"""A member as a process: started, stopped, paused and killed by its id, with a log to look into.

It ends with the process that started it, however that ends (``setpriv --pdeathsig``, Linux).
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
# A JVM writes what it has and closes its journal; on a busy machine that takes some seconds.
_STOP_SECONDS = 60.0
_TAIL_LINES = 30


class MemberProcess:
    """One process at a time.

    :param command: what to run, with its arguments.
    :param log: the file that gets what it prints, over all starts.  The process works in its folder, so that
        what it writes beside its data (Broker-J: ``derby.log``) is there.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self._command = ("setpriv", "--pdeathsig", "KILL", *command)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def running(self) -> bool:
        """Whether there is a process; a paused one counts."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it; what ``said`` and ``tail`` look into begins here."""
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
        """SIGKILL, if it is there."""
        self._signal(signal.SIGKILL)

    async def kill(self) -> None:
        """SIGKILL, if it is there; return when it is gone."""
        self.send_kill()
        await self._gone()

    async def stop(self) -> None:
        """SIGTERM, and wait for its end."""
        self._signal(signal.SIGTERM)
        await self._gone()

    def pause(self) -> None:
        """SIGSTOP; return when it has stopped."""
        self._signal(signal.SIGSTOP)
        if self._process is not None:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def said(self) -> str:
        """What it printed since its last start."""
        if not self._log.exists():
            return ""
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def last(self, pattern: str) -> int:
        """Where in ``said`` a pattern was found last, -1 if nowhere."""
        return max((found.start() for found in re.finditer(pattern, self.said())), default=-1)

    def tail(self) -> str:
        """The end of its log, with its name."""
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
