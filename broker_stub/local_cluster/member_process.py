"""One member as a child process: start, wait, pause, kill."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from haclient.cluster_url.endpoint import Endpoint
from haclient.command_line.python import module_command, module_environment

# Seconds without progress. Python, proton and a free port take a fraction of a second, even on a busy
# machine; a member that reads its store reports progress once a second.
START_TIMEOUT = 20.0
# Seconds; a little more than a member may take to close its client connections.
_STOP_TIMEOUT = 4.0


def _ignore(_detail: str) -> None:
    """Ignore the progress."""


class MemberStartError(RuntimeError):
    """A member process did not start; the text has the last line of its log."""


class MemberProcess:
    """A ``broker_stub serve`` process that the kernel kills when this process ends.

    :param arguments: the command-line arguments of ``serve``.
    :param log: the file for its standard error.
    :param wrapper: a command that executes the arguments after it.
    """

    def __init__(self, arguments: Sequence[str], log: Path, *, wrapper: Sequence[str] = ()) -> None:
        self._wrapper = tuple(wrapper)
        self._arguments = tuple(arguments)
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self.on_progress: Callable[[str], object] = _ignore
        """Called with each progress report of a long start."""

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> None:
        """Start the process and wait until it listens, as long as it reports progress.

        :raises MemberStartError: if it does not start.
        :raises TimeoutError: if it reports nothing for ``START_TIMEOUT``.
        """
        serve = (*module_command("broker_stub"), "serve", "--json")
        command = (*self._wrapper, *serve, *self._arguments)
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                "--exit-with-parent",
                str(os.getpid()),
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=log,
                env=module_environment(),
                # Ctrl-C in a terminal must only reach the supervisor, which stops its members in order.
                start_new_session=True,
            )
        try:
            await self._listening(self._process)
        except BaseException:
            await self.kill()
            raise

    async def _listening(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        facts: dict[str, Any] = {"event": "starting"}
        while facts.get("event") == "starting":
            if "detail" in facts:
                self.on_progress(str(facts["detail"]))
            async with asyncio.timeout(START_TIMEOUT):
                line = await process.stdout.readline()
            facts = json.loads(line) if line else {}
        if facts.get("event") != "listening":
            await process.wait()
            lines = self._log.read_text(errors="replace").splitlines()
            raise MemberStartError(f"exit code {process.returncode}: {lines[-1] if lines else 'no output'}")

    async def role_changes(self) -> AsyncIterator[str]:
        """Yield the member's new role after each change, until the process ends.

        The role is a hint: the member skips changes that were not read in time.
        """
        process = self._process
        assert process is not None, "start comes first"
        assert process.stdout is not None
        while line := await process.stdout.readline():
            facts = json.loads(line)
            if facts.get("event") == "role":
                yield facts["role"]

    async def wait(self) -> int:
        """Wait until the process exits; return the exit code, negative for a signal."""
        assert self._process is not None, "start comes first"
        return await self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if the process still runs."""
        if self.pid is not None and self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended."""
        if self._process is not None:
            self.signal(signal.SIGKILL)
            await self._process.wait()

    async def stop(self) -> None:
        """Send SIGTERM, then SIGKILL if the process does not end in time."""
        if self._process is None:
            return
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP_TIMEOUT):
                await self._process.wait()
        except TimeoutError:
            await self.kill()


# Below the ports that kernels assign to outgoing connections (Linux: from 32768). Until its member listens,
# no other process gets one of these by chance.
_PORTS = range(20_000, 32_768)
_TRIES = 100


def _bind(holder: socket.socket, host: str) -> int:
    """Bind a socket to a free port, and return the port."""
    for port in random.SystemRandom().sample(_PORTS, _TRIES):  # two processes draw different ports
        with contextlib.suppress(OSError):
            holder.bind((host, port))
            return port
    holder.bind((host, 0))
    return int(holder.getsockname()[1])


def free_addresses(wanted: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
    """Return the addresses, with every port 0 replaced by a free port."""
    with contextlib.ExitStack() as stack:
        found = []
        for address in wanted:
            port = address.port
            if not port:
                family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
                holder = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
                port = _bind(holder, address.host)
            found.append(Endpoint(address.host, port, address.tls))
        return tuple(found)
