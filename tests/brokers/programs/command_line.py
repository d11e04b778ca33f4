"""The command line: ``haclient send`` and ``haclient receive`` as child processes of this program.

When it ends, ``haclient send`` prints the number of outcomes and its first few failed messages. All others
count as acknowledged at that time. If more failed than it lists, the fate of all is unknown.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from contextlib import suppress

from tests.brokers.programs.task import (
    OUTCOMES_AT_END,
    Input,
    Messages,
    ProgramJournal,
    Receipts,
    Task,
    program,
    ready,
)
from tests.faults.history import Fate, Name

_EVENT = re.compile(r"\d\d:\d\d:\d\d\.\d\d\d  ([a-z-]+)")
_COMPLAINT = re.compile(r"message (\d+): (.*)")
_EVENTS = {"connected": "Connected", "disconnected": "Disconnected", "reconnected": "Reconnected"}
_NOT_ACCEPTED, _NOT_SETTLED = "MessageNotAccepted", "SendTimeout"


class _Command:
    """A ``haclient`` process, and the lines of its standard error."""

    def __init__(self, process: Process, journal: ProgramJournal) -> None:
        self.process = process
        self.complaints: dict[int, str] = {}
        """The reasons for the listed messages, by their numbers from 1."""
        self._journal = journal
        self._watching = asyncio.create_task(self._watch(), name="standard error")

    async def _watch(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            text = line.decode()
            if (found := _EVENT.match(text)) is not None:
                if (event := _EVENTS.get(found[1])) is not None:
                    self._journal.sees(event, time.monotonic())
                if found[1] == "connected":
                    ready()
            elif (found := _COMPLAINT.match(text)) is not None:
                self.complaints[int(found[1])] = found[2]
            else:
                sys.stderr.write(text)

    async def end(self) -> int:
        """Wait until the process ends; return its exit code."""
        await self._watching
        return await self.process.wait()


async def _start(name: str, task: Task, *options: str, stdin: int) -> Process:
    command = (sys.executable, "-m", "haclient", name, task.url, task.queue, "--verbose", *options)
    return await asyncio.create_subprocess_exec(*command, stdin=stdin, stdout=PIPE, stderr=PIPE)


async def produce(task: Task, journal: ProgramJournal, finishing: asyncio.Event) -> None:
    """Write lines until asked to finish. Then close the input and read the figures."""
    messages, names, began = Messages(task, journal), list[Name](), time.monotonic()
    journal.sees(OUTCOMES_AT_END, began)
    process = await _start("send", task, "--json", stdin=PIPE)
    command = _Command(process, journal)
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError, ConnectionResetError):  # the exit code has more detail
        while not finishing.is_set():
            name, body = messages.next()
            names.append(name)
            process.stdin.write(json.dumps({"body": body}).encode() + b"\n")
            await process.stdin.drain()
            with suppress(TimeoutError):
                await asyncio.wait_for(finishing.wait(), 1 / task.rate)
        process.stdin.close()
    figures = json.loads(await process.stdout.read() or "{}")
    code = await command.end()
    if not figures or code not in (0, 1):
        raise SystemExit(f"haclient send ended with {code}")
    after = time.monotonic() - began
    for kind, key in ((_NOT_ACCEPTED, "not_accepted"), (_NOT_SETTLED, "unsettled")):
        for _ in range(figures[key]):
            journal.fails("send", kind, after=after, limit=after)
    _note_fates(journal, names, figures, command.complaints)


def _note_fates(
    journal: ProgramJournal, names: list[Name], figures: dict[str, int], complaints: dict[int, str]
) -> None:
    known = len(complaints) == figures["not_accepted"] + figures["unsettled"]
    for number, name in enumerate(names, 1):
        if known and number <= figures["sent"] and number not in complaints:
            journal.ends(name, Fate.ACKNOWLEDGED, time.monotonic())
        else:
            journal.ends(name, Fate.UNKNOWN, time.monotonic())


async def consume(task: Task, journal: ProgramJournal, finishing: asyncio.Event) -> None:
    """Read lines until asked to finish, and then the remaining output."""
    receipts = Receipts(task, journal)
    process = await _start("receive", task, stdin=asyncio.subprocess.DEVNULL)
    command = _Command(process, journal)
    reading = asyncio.create_task(_read(process, receipts), name="standard output")
    waiting = asyncio.create_task(finishing.wait(), name="request to finish")
    await asyncio.wait([reading, waiting], return_when=asyncio.FIRST_COMPLETED)
    ended = reading.done()
    if not ended:
        process.send_signal(signal.SIGTERM)
    await reading
    waiting.cancel()
    code = await command.end()
    if code or ended:
        raise SystemExit(f"haclient receive ended with {code}")


async def _read(process: Process, receipts: Receipts) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        receipts.receives(line.decode().rstrip("\n"), 0)


async def main() -> None:
    """Run the task on the command line."""
    loop, finishing = asyncio.get_running_loop(), asyncio.Event()
    with program() as (task, journal):
        Input(lambda: loop.call_soon_threadsafe(finishing.set)).start()
        await (produce if task.role == "producer" else consume)(task, journal, finishing)


if __name__ == "__main__":
    asyncio.run(main())
