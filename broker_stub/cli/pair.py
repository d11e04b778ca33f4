"""``pair``: runs a local cluster with its supervisor, until Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from broker_stub.admission.controller import RateSource
from broker_stub.broker import ANY_PORT
from broker_stub.cli import event_loop
from broker_stub.cli.admission_options import MemberLimits, member_limits, rate_options
from broker_stub.cli.cluster_options import check_arbiter, without_secrets
from broker_stub.cli.options import (
    ANONYMOUS,
    LINK_PASSWORDS,
    LINK_USERS,
    LOG_LEVEL,
    LOOP,
    read_users,
    start_logging,
)
from broker_stub.command_options import ADDRESS, FILE, REFUSED
from broker_stub.local_cluster.supervisor import (
    LocalCluster,
    LocalClusterEvent,
    LocalClusterOptions,
    describe,
)
from broker_stub.permissions import UMASK
from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.sasl import SaslUnavailableError

_EVENTS_SHOWN = 12


@click.command()
@click.option(
    "--listen",
    type=ADDRESS,
    multiple=True,
    help="Endpoint of a member, once for each; port 0 takes a free one.  [default: two on 127.0.0.1]",
)
@click.option("--members", type=click.IntRange(1), help="How many, on free ports.  [default: 2]")
@click.option(
    "--store",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the stores, kept at the end.  [default: a temporary one]",
)
@click.option("--memory", is_flag=True, help="Keep messages in memory only.")
@click.option(
    "--arbiter",
    help="directory:PATH or zookeeper:HOST:PORT/PATH; a new one unless --store is kept too."
    "  [default: a directory in --store]",
)
@click.option(
    "--backup-timeout",
    type=float,
    default=10.0,
    show_default=True,
    help="Seconds until a backup that acknowledges nothing is dropped.",
)
@click.option("--cluster", default="haclient", show_default=True, help="The cluster's name.")
@click.option("--users", type=FILE, help="File of name:password lines.")
@ANONYMOUS
@LINK_USERS
@LINK_PASSWORDS
@click.option(
    "--telemetry",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory where the members write admissions and role changes.",
)
@rate_options
@member_limits
@click.option("--restart/--no-restart", default=True, show_default=True, help="Start dead members again.")
@click.option("--probe-interval", type=float, default=0.5, show_default=True, help="Seconds.")
@click.option("--probe-timeout", type=float, default=2.0, show_default=True, help="Seconds.")
@click.option("--probes-missed", type=click.IntRange(1), default=3, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print each event as a JSON object in one line.")
@LOOP
@LOG_LEVEL
def pair(
    *,
    listen: tuple[Endpoint, ...],
    members: int | None,
    store: Path | None,
    memory: bool,
    arbiter: str | None,
    backup_timeout: float,
    cluster: str,
    users: Path | None,
    anonymous: bool | None,
    link_users: tuple[str, ...],
    link_passwords: Path | None,
    telemetry: Path | None,
    accept_rate: float | RateSource,
    accept_burst: float | None,
    limits: MemberLimits,
    restart: bool,
    probe_interval: float,
    probe_timeout: float,
    probes_missed: int,
    as_json: bool,
    loop: str,
    log_level: str,
) -> None:
    """Run two members (or as many as --members or --listen says), one of them primary.

    When the primary dies another one is promoted.  Prints the cluster URL for clients.
    """
    start_logging("error" if log_level == "info" else log_level)
    if listen and members not in (None, len(listen)):
        raise click.UsageError(f"--members {members} does not go with {len(listen)} times --listen")
    if memory and store is not None:
        raise click.UsageError("--memory does not go with --store")
    if arbiter is not None:
        check_arbiter(arbiter)
    options = LocalClusterOptions(
        listen=listen or (ANY_PORT,) * (members or 2),
        store=None if store is None else store.absolute(),
        memory=memory,
        arbiter=arbiter,
        backup_timeout=backup_timeout,
        cluster=cluster,
        passwords=read_users(users) if users else {},
        anonymous=anonymous,
        restart=restart,
        probe_interval=probe_interval,
        probe_timeout=probe_timeout,
        probes_missed=probes_missed,
        loop=loop,
        serve_arguments=limits.serve_arguments
        + _serve_arguments(accept_rate, accept_burst, link_users, link_passwords, telemetry),
    )
    os.umask(UMASK)
    screen: Screen
    if as_json:
        screen = JsonLines()
    elif sys.stdout.isatty():
        screen = LiveTable(Console())
    else:
        screen = PlainLines()
    try:
        sys.exit(event_loop.run(_run(options, screen), loop=loop))
    except SaslUnavailableError as error:
        click.echo(str(error), err=True)
        sys.exit(REFUSED)


def _serve_arguments(
    accept_rate: float | RateSource,
    accept_burst: float | None,
    link_users: tuple[str, ...],
    link_passwords: Path | None,
    telemetry: Path | None,
) -> tuple[str, ...]:
    """What every member gets as it was given here."""
    given: list[tuple[str, object]] = [("--accept-rate", accept_rate), ("--accept-burst", accept_burst)]
    given += [("--link-user", name) for name in link_users]
    directories = (("--link-passwords", link_passwords), ("--telemetry", telemetry))
    given += [(option, None if path is None else path.absolute()) for option, path in directories]
    return tuple(part for option, value in given if value is not None for part in (option, str(value)))


async def _run(options: LocalClusterOptions, screen: Screen) -> int:
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    pair = LocalCluster(options, on_event=screen.event)
    try:
        await pair.start()
        ready = asyncio.create_task(pair.wait_ready())
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([ready, stopped], return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            ready.result()
            screen.ready(pair)
        ready.cancel()
        await stopped
    except TimeoutError as error:
        click.echo(str(error), err=True)
        return REFUSED
    finally:
        await pair.stop()
        screen.close()
    return 0


class Screen(Protocol):
    """The output of the command."""

    def event(self, event: LocalClusterEvent) -> None:
        """Show an event."""

    def ready(self, pair: LocalCluster) -> None:
        """Show that the cluster serves."""

    def close(self) -> None:
        """End the output."""


class JsonLines:
    """For programs: one object a line."""

    def event(self, event: LocalClusterEvent) -> None:
        """Print the event."""
        facts = asdict(event)
        click.echo(json.dumps({"event": facts.pop("kind"), **facts}))

    def ready(self, pair: LocalCluster) -> None:
        """Print the facts that a client and an admin need."""
        facts = {"event": "ready", "url": pair.url, "password_file": str(pair.password_file)}
        where = {"store": pair.store, "arbiter": without_secrets(pair.arbiter)}
        click.echo(json.dumps({**facts, **where, "members": describe(pair)}))

    def close(self) -> None:
        """There is nothing to close."""


class PlainLines:
    """For logs."""

    def event(self, event: LocalClusterEvent) -> None:
        """One line."""
        click.echo(_line(event))

    def ready(self, pair: LocalCluster) -> None:
        """The URL, and how to manage."""
        for line in _heads(pair):
            click.echo(line)

    def close(self) -> None:
        """There is nothing to close."""


class LiveTable:
    """For people: a live table of the members and the last events."""

    def __init__(self, console: Console) -> None:
        self._events: list[LocalClusterEvent] = []
        self._pair: LocalCluster | None = None
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4)
        self._live.start()

    def event(self, event: LocalClusterEvent) -> None:
        """Keep the event for the next refresh."""
        self._events = [*self._events, event][-_EVENTS_SHOWN:]

    def ready(self, pair: LocalCluster) -> None:
        """Start to show the table."""
        self._pair = pair

    def close(self) -> None:
        """Leave the last table on the screen."""
        self._live.stop()

    def _render(self) -> Group:
        lines = [Text(_line(event), style="dim") for event in self._events]
        if self._pair is None:
            return Group("starting...", *lines)
        heads = (Text(line) for line in _heads(self._pair))
        return Group(*heads, _table(self._pair), *lines)


def _heads(pair: LocalCluster) -> tuple[str, ...]:
    kept = pair.options.memory or pair.options.store is not None
    return (
        f"cluster URL: {pair.url}",
        f"cluster-admin's password: {pair.password_file}",
        f"store: {pair.store}{'' if kept else ' (removed at the end)'}",
        f"arbiter: {without_secrets(pair.arbiter)}",
    )


def _table(pair: LocalCluster) -> Table:
    columns = ("name", "address", "state", "generation", "connections", "pid")
    table = Table(*columns)
    for member in describe(pair):
        cells = ("" if member[column] is None else str(member[column]) for column in columns)
        table.add_row(*cells, style="bold green" if member["state"] == "primary" else "")
    return table


def _line(event: LocalClusterEvent) -> str:
    when = time.strftime("%H:%M:%S", time.localtime(event.at))
    return f"{when} {event.member} {event.kind}: {event.detail}"
