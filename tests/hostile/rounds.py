"""Rounds: one caller against hostile brokers with one or two behaviours, for some seconds, measured.

A round's seed determines everything in it. These are defects:

* a call ends with an error that is neither ours nor proton's, or does not end;
* a traceback, on standard error or in the log; an undocumented exit code;
* more memory than ``GROWTH`` in addition to the imports;
* more processor time than ``processes.allowed``; for a waiting caller, more than 5 % of a core while
  its peers are quiet.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from haclient.cli.exit_codes import CODES
from tests.hostile.broker import BEHAVIOURS, HostileBrokers, hostile_brokers
from tests.hostile.processes import WAITING_SHARE, Usage, allowed, usage

ROOT = Path(__file__).resolve().parents[2]
APIS = ("asyncio", "blocking", "waiting")
DROPIN = ("utils", "reactor")
COMMANDS = ("send", "receive", "members", "watch")
CALLERS = (*APIS, *DROPIN, *COMMANDS)

GROWTH = 160 * 1024 * 1024
"""Bytes: ten messages of credit, or a part of one message, as Python objects; not a peer's maximum."""
PATIENCE = 60.0
"""Seconds for a process to end by itself: a busy machine is slow, but a process that hangs never ends."""
_LOOK = 0.1
# Observations without new data until a client's peers count as quiet: it still reads from the kernel's
# buffers.
_UNTIL_QUIET = 5
# Additional seconds for a waiting caller, whose allowance is a constant and a share of the time.
_LONGER = 5.0
# Seconds: a command's late imports, and its final output.
_COMMAND = 1.0
# Seconds: a caller connects, closes and ends; measured 0.02 to 0.07 s, and 0.16 s beside six busy processes,
# which leave it no cache.
_LEAST = 0.3
_OPTIONS = {"backoff_base": 0.1, "backoff_max": 1, "attempt_timeout": 2, "call_timeout": 3, "dns_timeout": 1}
_NAMED = "Traceback (most recent call last)", "Fatal Python error", "Exception ignored", "never retrieved"


@dataclass(frozen=True, slots=True)
class Round:
    """The parameters of one round."""

    seed: int
    caller: str
    behaviours: tuple[str, ...]
    seconds: float

    @property
    def command(self) -> str:
        """Return the command that repeats the round."""
        named = " ".join(f'--behaviour "{name}"' for name in self.behaviours)
        return (
            f"python -m tests.hostile broker --seed {self.seed} --rounds 1 --caller {self.caller} {named}"
            f" --seconds {self.seconds:g}"
        )


@dataclass(slots=True)
class Outcome:
    """The outcome of a round.

    :ivar cpu: seconds of processor time after the first connection; ``may``: the allowance.
    :ivar quiet: the seconds in which no peer sent anything; ``quiet_cpu``: the processor time in them.
    :ivar growth: bytes of memory in addition to the imports.
    """

    round: Round
    ends: Counter[str] = field(default_factory=Counter)
    defects: list[str] = field(default_factory=list)
    drawn: list[str] = field(default_factory=list)
    connections: int = 0
    cpu: float = 0.0
    may: float = 0.0
    seconds: float = 0.0
    quiet: float = 0.0
    quiet_cpu: float = 0.0
    growth: int = 0

    def __str__(self) -> str:
        mib = self.growth // 2**20
        return (
            f"{self.round.seed} {self.round.caller}: {', '.join(self.round.behaviours)};"
            f" {self.connections} connections, {self.ends.total()} calls,"
            f" {self.cpu:.2f} s of {self.seconds:.1f} s (may {self.may:.2f}),"
            f" {self.quiet_cpu:.2f} s of {self.quiet:.1f} s quiet, {mib} MiB"
        )


def draw(
    seed: int, *, callers: Sequence[str] = (), behaviours: Sequence[str] = (), seconds: float | None = None
) -> Round:
    """Return the round of a seed; the given parts are not drawn."""
    rng = random.Random(seed)
    caller = rng.choice(CALLERS)
    count = rng.choice((1, 1, 2))
    drawn = tuple(rng.sample(list(BEHAVIOURS), count))
    lasts = rng.uniform(3.0, 6.0)
    if callers and caller not in callers:
        caller = rng.choice(list(callers))
    if caller == "waiting":
        lasts += _LONGER
    return Round(seed, caller, tuple(behaviours) or drawn, seconds or lasts)


async def run(what: Round, *, caller: Sequence[str] = (), patience: float = PATIENCE) -> Outcome:
    """Run one round.

    :param caller: the module and first arguments of a caller other than the round's.
    :param patience: see ``PATIENCE``.
    """
    outcome = Outcome(what)
    async with hostile_brokers(what.seed, what.behaviours) as brokers:
        command = _command(what, brokers, caller)
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"},
            cwd=ROOT,
        )
        try:
            await _Watched(what, outcome, brokers, process).run(patience)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        outcome.drawn, outcome.connections = brokers.drawn, brokers.connections
    return outcome


def _command(what: Round, brokers: HostileBrokers, caller: Sequence[str]) -> list[str]:
    rng = random.Random(f"{what.seed} options")
    options = {
        **_OPTIONS,
        "heartbeat": rng.choice((0, 1, 10)),
        "standby": rng.choice(("outage", "warm", "none")),
        "redirects": rng.choice(("members", "any", "none")),
        "pushed_members": rng.choice(("add", "replace", "ignore")),
    }
    url, seconds = brokers.url(**options), f"{what.seconds:g}"
    python = [sys.executable, "-m"]
    if caller:
        return [*python, *caller, url, str(what.seed), seconds]
    if what.caller in APIS:
        return [*python, "tests.hostile.callers.apis", what.caller, url, str(what.seed), seconds]
    if what.caller in DROPIN:
        return [*python, "tests.hostile.callers.dropin", what.caller, url, str(what.seed), seconds]
    command = [*python, "haclient", what.caller, url]
    more: dict[str, list[str]] = {
        "send": ["q", "-m", "hello", "-n", rng.choice(("1", "100")), "--rate", "20"],
        "receive": ["q", "--timeout", "1", "--rate", "20", *rng.choice(([], ["--json"], ["--browse"]))],
        "members": rng.choice(([], ["--json"])),
        "watch": ["--duration", seconds, *rng.choice(([], ["--json"]))],
    }
    limits = ["-o", "startup_deadline=2", "-o", "deadline=2"]
    return [*command, *more[what.caller], *(limits if what.caller != "members" else [])]


class _Watched:
    """A caller's process, from its start to its end."""

    def __init__(
        self, what: Round, outcome: Outcome, brokers: HostileBrokers, process: asyncio.subprocess.Process
    ) -> None:
        self._what, self._outcome, self._brokers, self._process = what, outcome, brokers, process
        self._first: Usage | None = None
        self._last: Usage | None = None
        self._terminated = False

    async def run(self, patience: float) -> None:
        """Run the process, end it after its time, and judge it."""
        process, outcome = self._process, self._outcome
        assert process.stdout is not None
        assert process.stderr is not None
        watching = asyncio.create_task(self._watch())
        reading = asyncio.gather(process.stdout.read(), process.stderr.read())
        if self._what.caller in COMMANDS:
            # Its time starts when it has connected: a busy machine is slow to start it.
            meeting = asyncio.create_task(self._brokers.met.wait())
            await asyncio.wait([reading, meeting], timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            meeting.cancel()
            await asyncio.wait([reading], timeout=self._what.seconds)
            if not reading.done():
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)
                    self._terminated = True
        limit = patience + self._what.seconds
        done, _ = await asyncio.wait([reading], timeout=limit)
        if not done:
            outcome.defects.append(f"the process did not end {limit:g} s after it was to")
            process.send_signal(signal.SIGABRT)  # faulthandler prints its stack
        out, err = await reading
        await process.wait()
        await watching
        self._judge(out.decode(errors="replace"), err.decode(errors="replace"))

    async def _watch(self) -> None:
        """Observe the process until it has ended. Observations count once it has connected."""
        outcome, before, looks = self._outcome, (-1, -1), 0
        while (now := usage(self._process.pid)) is not None:
            heard = self._brokers.connections, self._brokers.sent.size
            looks, before = (looks + 1 if heard == before else 0), heard
            if looks > _UNTIL_QUIET and self._first is not None and self._last is not None:
                outcome.quiet += now.at - self._last.at
                outcome.quiet_cpu += now.cpu - self._last.cpu
            if self._first is None and self._brokers.connections:
                self._first = now
            self._last = now
            await asyncio.sleep(_LOOK)

    def _judge(self, out: str, err: str) -> None:
        outcome, sent = self._outcome, self._brokers.sent
        if self._first is not None and self._last is not None:
            outcome.seconds = self._last.at - self._first.at
            outcome.cpu = self._last.cpu - self._first.cpu
            outcome.growth = self._last.peak - self._first.peak
            outcome.may = _LEAST + allowed(outcome.seconds, sent.frames, sent.size, self._brokers.connections)
            outcome.may += _COMMAND if self._what.caller in COMMANDS else 0.0
        elif not self._brokers.connections:  # a short command may end before the first observation
            outcome.defects.append("it never connected")
        if outcome.cpu > outcome.may:
            share = outcome.cpu / max(outcome.seconds, _LOOK)
            outcome.defects.append(f"it used {outcome.cpu:.2f} s ({share:.0%} of a core); {sent}")
        waits = self._what.caller == "waiting"
        if waits and outcome.quiet_cpu > _LEAST + WAITING_SHARE * outcome.quiet:
            share = outcome.quiet_cpu / outcome.quiet
            outcome.defects.append(f"it used {share:.0%} of a core while its peers were quiet")
        if outcome.growth > GROWTH:
            outcome.defects.append(f"its memory grew by {outcome.growth // 2**20} MiB; {sent}")
        if any(word in err for word in _NAMED):
            outcome.defects.append(f"on standard error:\n{err[-2000:]}")
        code = self._process.returncode
        if self._what.caller in COMMANDS:
            # Before and after its own handler is installed, Python's applies: the process just ends.
            early = self._terminated and code == -signal.SIGTERM
            if code not in CODES and not early:
                outcome.defects.append(f"it ended with {code}:\n{err[-2000:]}")
            outcome.ends[f"exit {code}"] += 1
            _check_terminal(outcome, out + err)
            return
        if code:
            outcome.defects.append(f"it ended with {code}:\n{err[-2000:]}")
        report = _report_of(out)
        outcome.ends.update(report.get("ends", {}))
        outcome.defects += report.get("defects", ["it wrote no report"] * (code == 0))


def _check_terminal(outcome: Outcome, text: str) -> None:
    """Report control characters in a text: a peer's must be escaped on a terminal."""
    if "\x1b]0;owned" in text or "\nERROR forged line" in text:
        outcome.defects.append(f"control characters of the peer in its output: {text[-500:]!r}")


def _report_of(out: str) -> dict[str, Any]:
    lines = out.splitlines()
    if not lines or not lines[-1].startswith("{"):
        return {}
    found: dict[str, Any] = json.loads(lines[-1])
    return found
