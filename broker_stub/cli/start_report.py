"""Reports how a member's start goes on: a large store takes its time, and whoever waits must know of it.

Rules
-----
* There is a report only when there was progress since the one before: without one for a while, nothing moves.
* With ``--json`` it is a line of its own on the standard output, before the one that says ``listening``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator

import click

from broker_stub.store import StartProgress

logger = logging.getLogger("broker_stub.cli.start_report")

# Seconds: the shortest start that anybody should hear of.
_INTERVAL = 1.0


@contextlib.asynccontextmanager
async def reported(progress: StartProgress, *, name: str, as_json: bool) -> AsyncIterator[None]:
    """Report while the body runs."""
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
        await asyncio.sleep(_INTERVAL)
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
