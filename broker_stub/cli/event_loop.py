"""Runs a member as a process: event loop, resource limits, progress of the start, and end with the parent.

Opening a large store takes time, and a supervisor must see that it makes progress. So the start is reported
once a second, but only if there was progress since the last report. With ``--json`` the report is a line on
standard output, before the ``listening`` line.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import gc
import importlib.util
import json
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haclient.printable.log import get_logger

if TYPE_CHECKING:  # a supervisor has an event loop, but no store
    from broker_stub.store import StartProgress

logger = get_logger("broker_stub.cli.event_loop")

# Linux, <sys/prctl.h>.
_PR_SET_PDEATHSIG = 1
# A collection delays every client. Young objects are traversed a thousand at a time (half a millisecond), and
# five thousand at most. Full collections are rare: a queue of a million messages, or thousands of
# connections, are objects that never form cycles.
_GC_THRESHOLDS = (1_000, 5, 4_000)
# The default of --max-connections, rounded up; costs a quarter of a megabyte.
_DESCRIPTORS = 32_768
# Seconds between two reports of a start; shorter starts are not reported.
_REPORT_INTERVAL = 1.0


def event_loop(choice: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the factory of an event loop: ``asyncio``, ``uvloop``, or ``auto`` for the fastest installed."""
    installed = importlib.util.find_spec("uvloop") is not None
    if choice == "uvloop" and not installed:
        raise click.UsageError("uvloop is not installed")
    if choice != "asyncio" and installed:
        import uvloop  # noqa: PLC0415 - an optional dependency

        factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
        return factory
    return asyncio.new_event_loop


def run(main: Coroutine[Any, Any, int], *, loop: str) -> int:
    """Run a coroutine on the chosen kind of loop, and return its exit code."""
    with asyncio.Runner(loop_factory=event_loop(loop)) as runner:
        return runner.run(main)


def tune() -> None:
    """Raise the limit of descriptors as far as allowed; reduce the work of kernel and garbage collector."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if sys.platform == "linux":
        _raise_descriptor_limit(hard)
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def _raise_descriptor_limit(limit: int) -> None:
    """Grow the kernel's table of descriptors to its final size at once.

    Linux doubles the table when it is full, at 64, 128, 256 and so on. In a process with several threads, the
    ``accept`` that triggers this waits until every processor has left the old table. That takes 7 to 18 ms,
    in which no client is served (``expand_fdtable``, ``synchronize_rcu``).
    """
    most = _DESCRIPTORS if limit == resource.RLIM_INFINITY else min(limit, _DESCRIPTORS)
    with Path(os.devnull).open("rb") as anything:
        os.close(fcntl.fcntl(anything, fcntl.F_DUPFD_CLOEXEC, most - 1))


def end_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends (Linux only).

    SIGKILL also ends a stopped or hung member.

    :param parent: the parent's process id; if the parent has ended already, this process exits at once.
    """
    if sys.platform != "linux":
        logger.warning("members end with their parent on Linux only")
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit(f"the parent process {parent} has ended")


# -- the start --------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def reported(progress: StartProgress, *, name: str, as_json: bool) -> AsyncIterator[None]:
    """Report the progress of the start while the body runs."""
    task = asyncio.create_task(_report(progress, name, as_json=as_json), name="report the start")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _report(progress: StartProgress, name: str, *, as_json: bool) -> None:
    loop = asyncio.get_running_loop()
    before, then = progress.numbers, loop.time()
    while True:
        await asyncio.sleep(_REPORT_INTERVAL)
        numbers, now = progress.numbers, loop.time()
        if numbers == before:
            continue
        steps, checked, read = numbers
        verb, count, former = ("read", read, before[2]) if read else ("checked", checked, before[1])
        rate = round((count - former) / (now - then))
        text = f"{verb} {count:,} messages, {rate:,} a second" if count else "checks the database"
        logger.info("%s starts: %s", name, text)
        if as_json:
            facts = {"event": "starting", "detail": text, "steps": steps, "checked": checked, "read": read}
            click.echo(json.dumps(facts))
        before, then = numbers, now
