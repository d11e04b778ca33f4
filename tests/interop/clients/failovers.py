"""One client through failovers of the pair: a program that sends, one that receives, and a judge.

One program sends to a queue that another one receives from.  A third one sends to a queue that nobody
receives from before the end, which shows messages that are stored twice.  Each kill is a SIGKILL of the
primary; before it, the pair has a backup again, and each program has made progress since the last kill.

Rules
-----
* A client that follows the announced list of members is given one member, the backup; any other is given
  both, the backup first.  So each first connection is redirected.
* The end of standard input stops a program: a sender waits for the outcomes it lacks first.
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
# Messages a second, and how many of them may be without an outcome.
RATE, WINDOW = 100, 50
# Messages that are settled, or received, between two kills.
SOME = 100
# A virtual machine starts, a member starts again and catches up: seconds each on a busy machine.
PATIENCE = 60.0
_DRAIN = "drain"


class ProgramError(AssertionError):
    """A program ended, or did not go on."""


class Program:
    """A program on a client, as a process; what it prints is recorded as it arrives."""

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
        """How many messages were accepted, or received."""
        return len(self.recorder.progress)

    async def until(self, what: str, condition: Callable[[], bool], patience: float = PATIENCE) -> None:
        """Wait for a line that makes this true.

        :param patience: seconds without a line after which it stands still.
        :raises ProgramError: when it ends before, or stands still.
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
        """End its input, and wait for its end.

        :raises ProgramError: when it does not end, or in bad order.
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
    """What a client came to.

    :param missing: settled messages that are lost, or that did not reach the receiver of their queue.
    :param send_outages: after each kill, the longest time in which nothing was settled, in seconds.
    :param receive_outages: the same of what is received.
    """

    kills: int
    verdict: Verdict
    missing: tuple[Name, ...]
    redirects: int
    send_outages: tuple[float, ...]
    receive_outages: tuple[float, ...]

    @property
    def unsettled(self) -> int:
        """Messages that a sender gave up, or that the pair refused: a failover is no reason for either."""
        return self.verdict.sent - self.verdict.acknowledged

    @property
    def holds(self) -> bool:
        """Whether nothing happened that must not."""
        return self.verdict.holds and not self.missing and self.unsettled == 0


async def run(
    client: Client, command: Command, *, kills: int, folder: Path, last_wait: float = PATIENCE
) -> Result:
    """Take a client through so many failovers.

    :param folder: for the programs' logs.
    :param last_wait: seconds in which the receiver must get on, once all is sent.
    :raises ProgramError: when a program ended, or did not go on.
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
    """Those of one client."""

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
        """Wait until each has got on by so many messages."""
        goals = [program.done + SOME for program in self.all]
        for program, goal in zip(self.all, goals, strict=True):
            await program.until(f"{goal} messages", lambda p=program, g=goal: p.done >= g)  # type: ignore[misc]

    async def finish(self, last_wait: float) -> None:
        """Send no more, receive all that is settled, and end."""
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
    """What was settled into a queue, and its program has not received."""
    settled = {
        name
        for name, where in history.sent.items()
        if where == queue and history.fate(name) is Fate.ACKNOWLEDGED
    }
    return settled - {receipt.name for receipt in history.receipts if receipt.link.consumer != _DRAIN}


def _outages(killed: Sequence[float], progress: Sequence[float]) -> tuple[float, ...]:
    """After each kill, and before the next, the longest time without progress."""
    ends = (*killed[1:], float("inf"))
    found = []
    for begin, end in zip(killed, ends, strict=True):
        times = [begin, *(at for at in progress if begin < at < end)]
        found.append(max((later - before for before, later in itertools.pairwise(times)), default=0.0))
    return tuple(found)


def median_and_worst(outages: Sequence[float]) -> str:
    """For a table, in seconds."""
    return f"{statistics.median(outages):.2f} / {max(outages):.2f}"
