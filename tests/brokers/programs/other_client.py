"""A program on another client, as a child process whose output becomes the history.

The programs and their use of each client are in ``tests.interop.clients``.

    python -m tests.brokers.programs.other_client '{"role": "producer", ...}' qpid-jms
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE, Process

from tests.brokers.programs.task import Input, ProgramJournal, Task, members, program, ready
from tests.interop.clients.recorded import Recorder
from tests.interop.clients.toolchains import CLIENTS, Command

_ROLES = {"producer": "send", "consumer": "receive"}
# The child dies with this program.
_LEASH = ("setpriv", "--pdeathsig", "KILL", "--")


async def _start(task: Task, command: Command) -> Process:
    addresses, user, password = members(task.url)
    arguments = [_ROLES[task.role], ",".join(addresses), task.queue]
    if task.role == "producer":
        arguments += [task.name, str(round(task.rate)), "0"]
    account = {"CLIENT_USER": user, "CLIENT_PASSWORD": password} if user else {}
    environment = os.environ | dict(command.environment) | account
    return await asyncio.create_subprocess_exec(
        *_LEASH, *command.arguments, *arguments, stdin=PIPE, stdout=PIPE, env=environment
    )


async def relay(task: Task, command: Command, journal: ProgramJournal, finishing: asyncio.Event) -> int:
    """Run the program until asked to finish; return its exit code."""
    process = await _start(task, command)
    ending = asyncio.create_task(_end(process, finishing), name="request to finish")
    recorder = Recorder(journal, task.name, task.queue)
    assert process.stdout is not None
    async for line in process.stdout:
        at, text = time.monotonic(), line.decode().rstrip("\n")
        recorder.read(text, at)
        kind, _, rest = text.partition(" ")
        if kind in ("connected", "lost"):
            journal.sees(kind, at, rest)
        if kind == "connected" and len(recorder.connected) == 1:
            ready()
    ending.cancel()
    return await process.wait()


async def _end(process: Process, finishing: asyncio.Event) -> None:
    await finishing.wait()
    assert process.stdin is not None
    process.stdin.close()


async def main() -> None:
    """Run the command line's task with its client."""
    loop, finishing = asyncio.get_running_loop(), asyncio.Event()
    (client,) = (each for each in CLIENTS if each.name == sys.argv[2])
    with program() as (task, journal):
        Input(lambda: loop.call_soon_threadsafe(finishing.set)).start()
        if code := await relay(task, client.command(), journal, finishing):
            raise SystemExit(f"{client.name} ended with {code}")


if __name__ == "__main__":
    asyncio.run(main())
