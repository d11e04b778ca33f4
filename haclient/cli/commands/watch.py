"""``haclient watch``: print the events of a connection as they occur."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click

from haclient.cli.exit_codes import client_errors, examples
from haclient.cli.formatting import json_of, line_of
from haclient.cli.streams import Output, descriptor_of
from haclient.cli.target import OVERRIDES, URL_ARGUMENT, Target, target_of
from haclient.command_line.interrupts import code_of
from haclient.command_line.signals import until_stopped
from haclient.events import GaveUp
from haclient.events.event_log import AsyncEvents
from haclient.printable.text import printable_json

_EXAMPLES = examples(
    "haclient watch amqp://broker-a,broker-b",
    "haclient watch --duration 3600 --json > night.jsonl    # the URL is in HACLIENT_URL",
    "haclient watch amqp://a,b -o standby=warm -o deadline=60",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchArguments:
    """The arguments of ``watch``."""

    count: int | None
    duration: float | None
    as_json: bool


@click.command(epilog=_EXAMPLES)
@URL_ARGUMENT
@OVERRIDES
@click.option("-n", "--count", type=click.IntRange(min=1), help="End after so many events.")
@click.option("--duration", type=click.FloatRange(min=0, min_open=True), help="End after so many seconds.")
@click.option("--json", "as_json", is_flag=True, help="Each event is a JSON object on a line.")
def watch(
    url: str | None,
    overrides: Sequence[tuple[str, str]],
    count: int | None,
    duration: float | None,
    *,
    as_json: bool,
) -> None:
    """Keep a connection to the primary, and print its events, one on each line.

    Events are attempts, redirects, delays, connected, disconnected, reconnected.  Ends on Ctrl-C or SIGTERM,
    or after --count events or --duration seconds.  If the search for a primary gives up (see the options
    `deadline` and `startup_deadline`), the command ends with an error.
    """
    target = target_of(url, overrides)
    arguments = WatchArguments(count=count, duration=duration, as_json=as_json)
    with client_errors():
        stopped = asyncio.run(_run(target, arguments))
    if stopped is not None and (arguments.count is not None or arguments.duration is not None):
        raise click.exceptions.Exit(code_of(stopped))


async def _run(target: Target, arguments: WatchArguments) -> signal.Signals | None:
    async def limited() -> None:
        with contextlib.suppress(TimeoutError, BrokenPipeError):
            async with asyncio.timeout(arguments.duration):
                await _watch(target, arguments)

    return await until_stopped(limited())


async def _watch(target: Target, arguments: WatchArguments) -> None:
    core = target.core()
    events = AsyncEvents()
    core.subscribe(events, None)
    connection = core.connection()
    opening = asyncio.create_task(connection.open())
    try:
        await _print(events, arguments)
        if connection.error is not None:
            raise connection.error
    finally:
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        await core.close()


async def _print(events: AsyncEvents, arguments: WatchArguments) -> None:
    output, seen = Output(descriptor_of(sys.stdout, "output")), 0
    async for event in events:
        line = printable_json(json_of(event)) if arguments.as_json else line_of(event)
        await output.write(f"{line}\n".encode())
        seen += 1
        if seen == arguments.count or isinstance(event, GaveUp):
            return
