"""A member as a process, without the second that its imports take.

A server process imports the program once, and forks it for each start (``forkserver`` of the standard
library).  The tests of the pair, the supervisor and the examples start a Python of their own, as users do.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from io import TextIOWrapper
from multiprocessing import connection
from pathlib import Path

from broker_stub.__main__ import main
from broker_stub.local_cluster.member_process import MemberProcess

_CONTEXT = multiprocessing.get_context("forkserver")
# The modules of ``broker-stub serve``, and what its options make it import.
_CONTEXT.set_forkserver_preload(["tests.forked", "broker_stub.cli.serve", "joserfc.jwt", "uvloop"])
_SECONDS = 30.0


class ForkedProcess:
    """A running ``broker-stub serve --json``.  The kernel kills it when this process ends.

    :param arguments: the other arguments of ``serve``.
    :param log: the file for its standard error.
    """

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        read, write = _CONTEXT.Pipe(duplex=False)
        given = (tuple(arguments), write, log, dict(os.environ))
        self._process = _CONTEXT.Process(target=_run, args=given, daemon=True)
        self._process.start()
        write.close()
        self._lock = threading.Lock()
        assert self._process.pid is not None
        self.pid = self._process.pid
        self.stdout: TextIOWrapper = os.fdopen(os.dup(read.fileno()), encoding="utf-8")
        read.close()

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal, or None while the process runs."""
        with self._lock:  # ``exitcode`` reads it from a pipe, once
            return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal, if the process still runs."""
        with contextlib.suppress(ProcessLookupError):  # its end is on the way here
            if self.returncode is None:
                os.kill(self.pid, number)

    def pause(self) -> None:
        """Send SIGSTOP, and wait until the process has stopped."""
        self.send_signal(signal.SIGSTOP)
        end = time.monotonic() + _SECONDS
        # The state follows the name, which is in parentheses (man 5 proc).
        while Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            if time.monotonic() > end:
                raise AssertionError(f"process {self.pid} does not stop")
            time.sleep(0.001)

    def wait(self, seconds: float | None = _SECONDS) -> int:
        """Wait for the end, and return the exit code."""
        connection.wait([self._process.sentinel], seconds)
        code = self.returncode
        if code is None:
            raise AssertionError(f"process {self.pid} does not end")
        return code


def _run(
    arguments: Sequence[str], output: connection.Connection, log: Path, environment: dict[str, str]
) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(output.fileno(), 1)
    output.close()
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    # No other file stays open, as after ``exec``.  One of them would keep the server process alive, and so
    # this one, when the process of the tests is killed.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    sys.argv[1:] = ["serve", "--json", "--exit-with-parent", str(os.getppid()), *arguments]
    main()


class ForkedMember(MemberProcess):
    """A ``MemberProcess`` that is forked, unless a wrapper is to execute it."""

    async def start(self) -> None:
        """Start the process and wait until it listens."""
        if self._wrapper:
            await super().start()
            return
        self._process = await _Watched.start(ForkedProcess(self._arguments, self._log))  # type: ignore[assignment]
        try:
            await self._listening(self._process)  # type: ignore[arg-type]
        except BaseException:
            await self.kill()
            raise

    def pause(self) -> None:
        """Send SIGSTOP, and wait until the process has stopped."""
        if isinstance(self._process, _Watched):
            self._process.forked.pause()
        else:
            assert self.pid is not None
            self.signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)


class _Watched(asyncio.StreamReaderProtocol):
    """The part of ``asyncio.subprocess.Process`` that ``MemberProcess`` uses."""

    def __init__(self, forked: ForkedProcess) -> None:
        self.forked = forked
        self.pid = forked.pid
        self.stdout = asyncio.StreamReader()
        self._closed_output = asyncio.Event()
        super().__init__(self.stdout)

    @classmethod
    async def start(cls, forked: ForkedProcess) -> _Watched:
        loop = asyncio.get_running_loop()
        _, watched = await loop.connect_read_pipe(lambda: cls(forked), forked.stdout)
        return watched

    @property
    def returncode(self) -> int | None:
        return self.forked.returncode

    def send_signal(self, number: int) -> None:
        self.forked.send_signal(number)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._closed_output.set()

    async def wait(self) -> int:
        code = await asyncio.to_thread(self.forked.wait, None)
        await self._closed_output.wait()
        return code
