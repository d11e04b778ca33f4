"""``pair``: runs a local cluster with its supervisor, until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import click

from broker_stub.admission.controller import RateSource
from broker_stub.admission.user_file import DEFAULT_ADMIN
from broker_stub.cli import event_loop
from broker_stub.cli.admission_options import MEMBER_LIMITS, MemberLimits, member_limits, rate_options
from broker_stub.cli.options import (
    ANONYMOUS,
    LINK_PASSWORDS,
    LINK_USERS,
    LOG_LEVEL,
    LOOP,
    check_arbiter,
    read_users,
    start_logging,
)
from broker_stub.cli.pair_screens import JsonLines, LiveTable, PlainLines, Screen
from broker_stub.command_options import ADDRESS, FILE, REFUSED
from broker_stub.local_cluster.certificates import CertificateError
from broker_stub.local_cluster.ports import claimed_ports, free_ports
from broker_stub.local_cluster.supervisor import LocalCluster, LocalClusterEvent, LocalClusterOptions
from broker_stub.permissions import UMASK
from broker_stub.tokens.options import TokenOptions, token_options
from haclient.cluster_url.endpoint import Endpoint
from haclient.command_line.groups import Command, examples
from haclient.printable.lines import echo_line

# The error of a member whose port is taken (``serve``).
_PORT_TAKEN = "cannot listen on"


_OPTION_GROUPS = {
    "Cluster": ("members", "listen", "cluster", "arbiter"),
    "Messages": ("store", "memory", "backup-timeout"),
    "Users and TLS": ("tls", "users", "anonymous", "link-user", "link-passwords"),
    "Supervisor": ("restart", "probe-interval", "probe-timeout", "probes-missed"),
    "Admission": ("accept-rate", "accept-burst"),
    "Limits": MEMBER_LIMITS,
    "Output and process": ("json", "log-level", "telemetry", "loop"),
}
_EXAMPLES = examples(
    "broker-stub",
    "broker-stub pair",
    "broker-stub pair --members 3 --store cluster --tls",
    "broker-stub pair --json --memory --listen 127.0.0.1:0 --listen 127.0.0.1:0",
)


@click.command(cls=Command, option_groups=_OPTION_GROUPS, epilog=_EXAMPLES)
@click.option(
    "--listen",
    type=ADDRESS,
    multiple=True,
    help="Endpoint of a member, once for each; port 0 takes a free one."
    "  [default: 127.0.0.1, ports 5672 and 5673 when they are free, else free ones]",
)
@click.option(
    "--members", type=click.IntRange(1), help="How many: ports 5672 and up when all are free.  [default: 2]"
)
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
@click.option("--tls", is_flag=True, help="Make certificates for the members, with the command openssl.")
@click.option("--cluster", default="haclient", show_default=True, help="The cluster's name.")
@click.option(
    "--users",
    type=FILE,
    help="File with a line for each user: name:password.",
)
@token_options
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
    tls: bool,
    cluster: str,
    users: Path | None,
    tokens: TokenOptions,
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
    """Run two members (or the number given by --members or --listen), one of them primary.

    If the primary dies, another member is promoted. Prints the cluster URL for clients.
    """
    start_logging("error" if log_level == "info" else log_level)
    if listen and members not in (None, len(listen)):
        raise click.UsageError(f"--members {members} does not go with {len(listen)} times --listen")
    if memory and store is not None:
        raise click.UsageError("--memory does not go with --store")
    if arbiter is not None:
        check_arbiter(arbiter)
    if users is not None:
        read_users(users)
    tokens.read(frozenset({DEFAULT_ADMIN, *link_users}))
    options = LocalClusterOptions(
        listen=listen,
        tls=tls,
        store=None if store is None else store.absolute(),
        memory=memory,
        arbiter=arbiter,
        backup_timeout=backup_timeout,
        cluster=cluster,
        users_file=users,
        has_tokens=tokens.accept_any,
        anonymous=anonymous,
        restart=restart,
        probe_interval=probe_interval,
        probe_timeout=probe_timeout,
        probes_missed=probes_missed,
        loop=loop,
        serve_arguments=limits.serve_arguments
        + tokens.serve_arguments
        + _serve_arguments(accept_rate, accept_burst, link_users, link_passwords, telemetry),
    )
    os.umask(UMASK)
    screen: Screen
    if as_json:
        screen = JsonLines()
    elif sys.stdout.isatty():
        screen = LiveTable()
    else:
        screen = PlainLines()
    try:
        sys.exit(event_loop.run(_run(options, members or 2, screen), loop=loop))
    except (CertificateError, OSError) as error:
        echo_line(str(error), err=True)
        sys.exit(REFUSED)


def _serve_arguments(
    accept_rate: float | RateSource,
    accept_burst: float | None,
    link_users: tuple[str, ...],
    link_passwords: Path | None,
    telemetry: Path | None,
) -> tuple[str, ...]:
    """Return the arguments that every member gets unchanged."""
    given: list[tuple[str, object]] = [("--accept-rate", accept_rate), ("--accept-burst", accept_burst)]
    given += [("--link-user", name) for name in link_users]
    directories = (("--link-passwords", link_passwords), ("--telemetry", telemetry))
    given += [(option, None if path is None else path.absolute()) for option, path in directories]
    return tuple(part for option, value in given if value is not None for part in (option, str(value)))


async def _run(options: LocalClusterOptions, members: int, screen: Screen) -> int:
    """Run the cluster at the addresses of ``--listen``, else at AMQP's ports, else at free ones."""
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    try:
        if options.listen:
            return await _run_at(options, screen, stop) or 0
        with claimed_ports(members) as claimed:
            if claimed.taken_by:
                echo_line(f"{claimed.taken_by}: the members listen on free ports", err=True)
            code = await _run_at(
                replace(options, listen=claimed.addresses), screen, stop, leave=not claimed.taken_by
            )
        if code is not None:
            return code
        # Another process took a port between the check and the member's start.
        echo_line("a port is in use by now: the members listen on free ports", err=True)
        return await _run_at(replace(options, listen=free_ports(members)), screen, stop) or 0
    finally:
        screen.close()


async def _run_at(
    options: LocalClusterOptions, screen: Screen, stop: asyncio.Event, *, leave: bool = False
) -> int | None:
    """Run the cluster until it is stopped; return its exit code.

    :param leave: true to end with ``None`` if a member does not get its port at the start.
    """
    port_taken = asyncio.Event()

    def heard(event: LocalClusterEvent) -> None:
        screen.event(event)
        if leave and event.kind == "failed" and _PORT_TAKEN in event.detail:
            port_taken.set()

    pair = LocalCluster(options, on_event=heard)
    waits = [asyncio.create_task(event.wait()) for event in (stop, port_taken)]
    try:
        await pair.start()
        ready = asyncio.create_task(pair.wait_ready())
        await asyncio.wait([ready, *waits], return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            ready.result()
            screen.ready(pair)
            await stop.wait()
        ready.cancel()
        return 0 if stop.is_set() else None
    except TimeoutError as error:
        echo_line(str(error), err=True)
        return REFUSED
    finally:
        for wait in waits:
            wait.cancel()
        await pair.stop()
