"""One client through failovers of the pair: a program that sends, one that receives, and a judge.

One program sends to a queue that another one receives from. A third program sends to a queue without
consumers until the end, which shows messages that are stored twice. Each kill is a SIGKILL of the
primary. Before it, the pair has a backup again, and each program has progressed since the last kill.

Rules
-----
* A client that follows the announced member list is given one member, the backup. Any other client is
  given both, the backup first. So each first connection is redirected.
* The end of standard input stops a program. A sender first waits for its missing outcomes.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from broker_stub.local_cluster.supervisor import LocalCluster
from tests.faults.checker import Verdict, check
from tests.faults.clients import drain
from tests.faults.history import Fate, History, Name
from tests.interop.clients.recorded import Recorder
from tests.interop.clients.toolchains import Client, Command

ORDERS, KEPT = "orders", "kept"
# Messages a second, and the most messages without an outcome.
RATE, WINDOW = 100, 50
# Messages that are settled, or received, between two kills.
SOME = 100
# Seconds for a virtual machine to start, or for a member to restart and catch up, on a busy machine.
PATIENCE = 60.0
_DRAIN = "drain"


class ProgramError(AssertionError):
    """A program ended, or made no progress."""


class Program:
    """A program on a client, as a process. Its output is recorded as it arrives."""

    def __init__(self, command: Command, arguments: Sequence[str], recorder: Recorder, log: Path) -> None:
        self.recorder = recorder
        self._command = (*command.arguments, *arguments)
        self._environment = os.environ | dict(command.environment)
        self._log = log
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=self._environment,
            )
        self._reading = asyncio.create_task(self._read(), name=f"read {self.recorder.name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await asyncio.wait([self._reading])

    async def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            while line := await self._process.stdout.readline():
                self.recorder.read(line.decode().rstrip("\n"), time.monotonic())
                self._changed.set()
        finally:
            self._changed.set()

    @property
    def done(self) -> int:
        """Return the number of messages accepted or received."""
        return len(self.recorder.progress)

    async def until(self, what: str, condition: Callable[[], bool], patience: float = PATIENCE) -> None:
        """Wait for a line that makes the condition true.

        :param patience: seconds without a line after which the program counts as stuck.
        :raises ProgramError: if the program ends first, or is stuck.
        """
        while not condition():
            if self._reading.done():
                self._reading.result()
                raise ProgramError(f"{self.recorder.name} ended before {what}: {self._tail()}")
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), patience)
            except TimeoutError:
                raise ProgramError(
                    f"{self.recorder.name} stands still before {what}: {self._tail()}"
                ) from None

    async def end(self) -> None:
        """Close the program's input, and wait until it ends.

        :raises ProgramError: if it does not end, or fails.
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = await asyncio.wait_for(self._process.wait(), PATIENCE)
        except TimeoutError:
            raise ProgramError(f"{self.recorder.name} does not end: {self._tail()}") from None
        await self._reading
        if code != 0:
            raise ProgramError(f"{self.recorder.name} ended with code {code}: {self._tail()}")

    def _tail(self) -> str:
        return " | ".join(self._log.read_text(errors="replace").splitlines()[-5:]) or "no word in its log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One client's result.

    :param missing: settled messages that are lost, or that did not reach their queue's receiver.
    :param send_outages: after each kill, the longest time without a settlement, in seconds.
    :param receive_outages: after each kill, the longest time without a receipt, in seconds.
    """

    kills: int
    verdict: Verdict
    missing: tuple[Name, ...]
    redirects: int
    send_outages: tuple[float, ...]
    receive_outages: tuple[float, ...]

    @property
    def unsettled(self) -> int:
        """Return the number of messages that a sender gave up or the pair refused. A failover justifies
        neither.
        """
        return self.verdict.sent - self.verdict.acknowledged

    @property
    def holds(self) -> bool:
        """Return whether there was no violation."""
        return self.verdict.holds and not self.missing and self.unsettled == 0


async def run(
    client: Client, command: Command, *, kills: int, folder: Path, last_wait: float = PATIENCE
) -> Result:
    """Take a client through this many failovers.

    :param folder: the folder for the programs' logs.
    :param last_wait: seconds in which the receiver must progress once all messages are sent.
    :raises ProgramError: if a program ended, or made no progress.
    """
    history = History()
    history.keeps(client.prefix + KEPT)
    killed: list[float] = []
    async with LocalCluster() as pair:
        async with _Programs(client, command, pair, history, folder) as programs:
            for _ in range(kills):
                await programs.go_on()
                await pair.wait_ready(PATIENCE)
                killed.append(time.monotonic())
                await pair.kill_primary()
            await programs.go_on()
            await programs.finish(last_wait)
        await pair.wait_ready(PATIENCE)
        await drain(pair.url, history)
    verdict = check(history)
    return Result(
        kills=kills,
        verdict=verdict,
        missing=tuple(sorted({*verdict.lost, *_unreceived(history, client.prefix + ORDERS)})),
        redirects=sum(len(program.recorder.redirected) for program in programs.all),
        send_outages=_outages(killed, programs.sender.recorder.progress),
        receive_outages=_outages(killed, programs.receiver.recorder.progress),
    )


class _Programs:
    """The three programs of one client."""

    def __init__(
        self, client: Client, command: Command, pair: LocalCluster, history: History, folder: Path
    ) -> None:
        members = sorted(pair.members, key=lambda member: member is pair.primary)
        given = members[:1] if client.list_announced else members
        addresses = ",".join(member.address.authority for member in given)

        def program(role: str, name: str, queue: str, *arguments: str) -> Program:
            address = client.prefix + queue
            recorder = Recorder(history, f"{client.name}-{name}", address)
            if role == "send":
                arguments = (recorder.name, str(RATE), str(WINDOW))
            log = folder / f"{recorder.name}.log"
            return Program(command, (role, addresses, address, *arguments), recorder, log)

        self._history = history
        self._orders = client.prefix + ORDERS
        self.sender = program("send", "sender", ORDERS)
        self._keeper = program("send", "keeper", KEPT)
        self.receiver = program("receive", "receiver", ORDERS)
        self.all = (self.sender, self._keeper, self.receiver)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for program in self.all:
            await self._stack.enter_async_context(program)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def go_on(self) -> None:
        """Wait until each program has progressed by ``SOME`` messages."""
        goals = [program.done + SOME for program in self.all]
        for program, goal in zip(self.all, goals, strict=True):
            await program.until(f"{goal} messages", lambda p=program, g=goal: p.done >= g)  # type: ignore[misc]

    async def finish(self, last_wait: float) -> None:
        """Stop sending, receive everything that is settled, and end the programs."""
        await self.sender.end()
        await self._keeper.end()
        try:
            await self.receiver.until("all that is settled", lambda: not self._missing(), last_wait)
        except ProgramError as error:
            missing = self._missing()
            raise ProgramError(f"{len(missing)} missing, {min(missing)}: {error}") from None
        await self.receiver.end()

    def _missing(self) -> set[Name]:
        return _unreceived(self._history, self._orders)


def _unreceived(history: History, queue: str) -> set[Name]:
    """Return the messages settled into a queue that its program has not received."""
    settled = {
        name
        for name, where in history.sent.items()
        if where == queue and history.fate(name) is Fate.ACKNOWLEDGED
    }
    return settled - {receipt.name for receipt in history.receipts if receipt.link.consumer != _DRAIN}


def _outages(killed: Sequence[float], progress: Sequence[float]) -> tuple[float, ...]:
    """Return, after each kill and before the next, the longest time without progress."""
    ends = (*killed[1:], float("inf"))
    found = []
    for begin, end in zip(killed, ends, strict=True):
        times = [begin, *(at for at in progress if begin < at < end)]
        found.append(max((later - before for before, later in itertools.pairwise(times)), default=0.0))
    return tuple(found)


def median_and_worst(outages: Sequence[float]) -> str:
    """Format outages for a table, in seconds."""
    return f"{statistics.median(outages):.2f} / {max(outages):.2f}"
