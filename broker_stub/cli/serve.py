"""``serve``: runs one member in this process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import sys
from pathlib import Path

import click

from broker_stub.admission.auth import Auth
from broker_stub.admission.controller import AdmissionOptions, RateSource
from broker_stub.admission.user_file import DEFAULT_ADMIN
from broker_stub.broker import Broker, BrokerOptions
from broker_stub.cli import event_loop
from broker_stub.cli.admission_options import (
    MEMBER_LIMITS,
    MemberLimits,
    limit_options,
    member_limits,
    rate_options,
)
from broker_stub.cli.cluster_options import (
    MEMORY,
    ClusterArguments,
    GivenOptions,
    check,
    disk_limits,
    disk_options,
)
from broker_stub.cli.options import (
    ANONYMOUS,
    LINK_PASSWORDS,
    LINK_USERS,
    LOG_LEVEL,
    LOOP,
    PASSWORD_VARIABLE,
    read_password,
    read_users,
    start_logging,
)
from broker_stub.command_options import ADDRESS, ARBITER_VARIABLE, FILE, REFUSED
from broker_stub.election.roles import Membership, MoveRefusedError, Role
from broker_stub.member.member import StartRefusedError
from broker_stub.member.role_command import RoleCommand
from broker_stub.permissions import UMASK
from broker_stub.queueing.message import Replicate
from broker_stub.sites.password_file import PasswordFileError, PasswordFiles
from broker_stub.store import StartProgress, StoreFailedError
from broker_stub.telemetry import settings_of
from broker_stub.tokens.options import TokenOptions, token_options
from haclient import Credentials
from haclient.cluster_url.endpoint import Endpoint
from haclient.command_line.groups import Command, examples
from haclient.engine.tls import TlsFiles
from haclient.printable.lines import echo_line
from haclient.telemetry.settings import VARIABLE

_OPTION_GROUPS = {
    "Member": ("listen", "name", "cluster", "advertise", "replicate", "auto-create"),
    "Without an arbiter": ("role", "generation", "primary"),
    "With an arbiter": (
        "arbiter", "arbiter-interval", "member", "broker-url", "password-file", "backup-timeout",
        "force-primary",
    ),
    "Store": ("store", "secure-delete", "disk-warn", "disk-hold", "disk-stop"),
    "Users and TLS": (
        "users", "admin", "anonymous", "link-user", "link-passwords", "tls-cert", "tls-key", "tls-client-ca",
        "tls-ca",
    ),
    "Admission": (
        "accept-rate", "accept-burst", "max-connections", "max-handshakes", "handshake-timeout", "park-limit",
        "park-timeout", "heartbeat",
    ),
    "Limits": MEMBER_LIMITS,
    "Output and process": ("json", "log-level", "telemetry", "on-role-change", "exit-with-parent", "loop"),
}  # fmt: skip
_EXAMPLES = examples(
    "broker-stub",
    "broker-stub serve --role primary              # one broker, in memory",
    "broker-stub serve --name a --listen 10.0.0.1:5672 --store /var/lib/a \\",
    "    --arbiter zookeeper:10.0.0.9:2181/orders --password-file admin.txt \\",
    "    --member 10.0.0.1:5672 --member 10.0.0.2:5672",
)


@click.command(cls=Command, option_groups=_OPTION_GROUPS, epilog=_EXAMPLES)
@click.option("--listen", type=ADDRESS, default="127.0.0.1:5672", show_default=True)
@click.option(
    "--name",
    help="This member's name, unlike any other in the cluster; required with --arbiter.  [default: member]",
)
@click.option("--cluster", default="haclient", show_default=True, help="The cluster's name.")
@click.option(
    "--role",
    type=click.Choice(["passive", "primary"]),
    default="passive",
    show_default=True,
    help="Role at the start, without --arbiter.",
)
@click.option(
    "--generation",
    type=click.IntRange(0),
    help="Generation at the start, without --arbiter.  [default: 1 as primary]",
)
@click.option("--primary", type=ADDRESS, help="Endpoint of the primary, without --arbiter.")
@click.option("--member", "members", type=ADDRESS, multiple=True, help="A member of the cluster (repeat).")
@click.option("--admin", default=DEFAULT_ADMIN, show_default=True, help="The cluster-admin's user name.")
@click.option(
    "--users",
    type=FILE,
    help="File with a line for each user: name:password.",
)
@token_options
@ANONYMOUS
@LINK_USERS
@LINK_PASSWORDS
@click.option("--tls-cert", type=FILE, help="Certificate (PEM); makes the listener amqps.")
@click.option("--tls-key", type=FILE, help="Key of the certificate (PEM).")
@click.option("--tls-client-ca", type=FILE, help="Require client certificates of this CA (EXTERNAL).")
@click.option(
    "--tls-ca", type=FILE, help="Certificates of the authority that signs the members' (PEM), for a backup."
)
@click.option(
    "--auto-create/--no-auto-create", default=True, show_default=True, help="Create queues on attach."
)
@click.option("--handshake-timeout", type=float, default=10.0, show_default=True, help="Seconds until Open.")
@click.option("--heartbeat", type=float, default=10.0, show_default=True, help="Seconds; 0 turns it off.")
@click.option("--max-connections", type=click.IntRange(1), default=20_000, show_default=True)
@rate_options
@limit_options
@member_limits
@click.option(
    "--arbiter",
    envvar=ARBITER_VARIABLE,
    help="directory:PATH or zookeeper:[USER:PASSWORD@]HOST:PORT/PATH; makes the member replicated."
    f"  Or set ${ARBITER_VARIABLE}.",
)
@click.option(
    "--store", "store_path", default=MEMORY, show_default=True, help="Directory of the store, or memory."
)
@click.option(
    "--secure-delete/--no-secure-delete",
    default=False,
    show_default=True,
    help="Overwrite what is deleted from the store.",
)
@disk_options
@click.option("--broker-url", help="Where backups search the primary.  [default: the --member list]")
@click.option(
    "--advertise",
    type=ADDRESS,
    help="Where clients reach this member, for redirects.  [default: where its backups do]",
)
@click.option(
    "--password-file",
    type=FILE,
    help=f"File with the cluster-admin's password, for a backup; or set ${PASSWORD_VARIABLE}.",
)
@click.option(
    "--force-primary",
    is_flag=True,
    help="Take over at once, whatever the store lacks.  May lose messages; stop every other primary first.",
)
@click.option("--backup-timeout", type=float, default=10.0, show_default=True, help="Seconds.")
@click.option(
    "--arbiter-interval",
    type=click.FloatRange(0, min_open=True),
    default=3.0,
    show_default=True,
    help="Seconds after which a primary reads the arbiter again, and steps down for a newer primary.",
)
@click.option(
    "--replicate",
    type=click.Choice([str(mode) for mode in Replicate]),
    default="all",
    show_default=True,
    help="What is replicated of a queue without x-qpid-replicate.",
)
@click.option(
    "--telemetry",
    type=click.Path(file_okay=False, path_type=Path),
    envvar=VARIABLE,
    help=f"Directory where to write admissions and role changes; or set ${VARIABLE}.",
)
@click.option(
    "--on-role-change",
    metavar="COMMAND",
    help="Run COMMAND ROLE when the role has changed; for resource managers.",
)
@click.option("--exit-with-parent", type=int, metavar="PID", help="Exit when process PID exits (Linux).")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the member's address, and then each new role, as JSON lines.",
)
@LOOP
@LOG_LEVEL
def serve(
    *,
    listen: Endpoint,
    name: str | None,
    cluster: str,
    role: str,
    generation: int | None,
    primary: Endpoint | None,
    members: tuple[Endpoint, ...],
    admin: str,
    users: Path | None,
    tokens: TokenOptions,
    anonymous: bool | None,
    link_users: tuple[str, ...],
    link_passwords: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    tls_ca: Path | None,
    auto_create: bool,
    handshake_timeout: float,
    heartbeat: float,
    max_connections: int,
    accept_rate: float | RateSource,
    accept_burst: float | None,
    max_handshakes: int,
    park_limit: int,
    park_timeout: float,
    limits: MemberLimits,
    arbiter: str | None,
    store_path: str,
    secure_delete: bool,
    disk_warn: int | None,
    disk_hold: int | None,
    disk_stop: int | None,
    broker_url: str | None,
    advertise: Endpoint | None,
    password_file: Path | None,
    backup_timeout: float,
    arbiter_interval: float,
    force_primary: bool,
    replicate: str,
    telemetry: Path | None,
    on_role_change: str | None,
    exit_with_parent: int | None,
    as_json: bool,
    loop: str,
    log_level: str,
) -> None:
    """Run one member until SIGTERM or Ctrl-C.

    With --arbiter it starts as a backup, and is replicated; without, it has the role of --role.
    """
    if exit_with_parent is not None:
        event_loop.end_with_parent(exit_with_parent)
    start_logging(log_level)
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key go together")
    if tls_client_ca is not None and tls_cert is None:
        raise click.UsageError("--tls-client-ca needs --tls-cert")
    if link_users and users is None and tls_client_ca is None:
        raise click.UsageError("--link-user needs --users: without them no client has a name")
    if anonymous is False and users is None and tls_client_ca is None:
        raise click.UsageError("--no-anonymous needs --users or --tls-client-ca: nobody could connect")
    password = read_password(password_file) if arbiter is not None else None
    check(
        GivenOptions(
            arbiter=arbiter is not None,
            name=bool(name),
            primary_role=role == Role.PRIMARY,
            generation=generation is not None,
            primary=primary is not None,
            store_on_disk=store_path != MEMORY,
            broker_url=broker_url is not None,
            members=bool(members),
            password=password is not None,
            force_primary=force_primary,
        )
    )
    name = name or "member"
    tls = None
    if tls_cert is not None and tls_key is not None:
        tls = TlsFiles(
            certificate=str(tls_cert), key=str(tls_key), ca=str(tls_client_ca) if tls_client_ca else None
        )
    role_command = None if on_role_change is None else _role_command(on_role_change)
    roles = _Roles(role_command)
    if generation is None:
        generation = 1 if role == Role.PRIMARY else 0
    os.umask(UMASK)  # for the files of SQLite and telemetry
    options = BrokerOptions(
        listen=listen,
        name=name,
        cluster=cluster,
        membership=Membership(Role(role), generation, primary if role == Role.PASSIVE else None),
        members=members,
        advertise=advertise,
        auth=Auth(
            admin=admin,
            users=None if users is None else read_users(users),
            tokens=tokens.read(frozenset({admin, *link_users})),
            claims=tokens.claims,
            anonymous=anonymous,
            external=tls_client_ca is not None,
            link_users=frozenset(link_users),
        ),
        tls=tls,
        auto_create=auto_create,
        handshake_timeout=handshake_timeout,
        heartbeat=heartbeat,
        max_connections=max_connections,
        max_user_connections=limits.user_connections,
        max_frame_size=limits.frame_size,
        connection_limits=limits.connection,
        store_limits=limits.store,
        site_at_limit=limits.site_at_limit,
        admission=AdmissionOptions(
            rate=accept_rate,
            burst=accept_burst,
            max_handshakes=max_handshakes,
            park_limit=park_limit,
            park_timeout=park_timeout,
        ),
        replicate=Replicate(replicate),
        telemetry=None if telemetry is None else settings_of(telemetry),
        password_files=_password_files(link_passwords),
        on_role=roles.changed,
    )
    cluster_arguments = None
    if arbiter is not None:
        cluster_arguments = ClusterArguments(
            arbiter=arbiter,
            store=store_path,
            broker_url=broker_url or ",".join(str(member) for member in members),
            separate=broker_url is not None,
            credentials=Credentials(user=admin, password=password),
            tls_ca=tls_ca,
            name=name,
            backup_timeout=backup_timeout,
            arbiter_interval=arbiter_interval,
            force_primary=force_primary,
            secure_delete=secure_delete,
            disk=disk_limits(store_path, disk_warn, disk_hold, disk_stop),
        )
    event_loop.tune()
    serving = _serve(options, cluster_arguments, role_command, roles if as_json else None)
    sys.exit(event_loop.run(serving, loop=loop))


def _role_command(words: str) -> RoleCommand:
    try:
        return RoleCommand(words)
    except ValueError as error:
        raise click.UsageError(f"--on-role-change: {error}") from error


def _password_files(directory: Path | None) -> PasswordFiles:
    """Return the password files that links may read.

    :raises click.UsageError: if the directory is not safe.
    """
    files = PasswordFiles(None if directory is None else directory.absolute())
    if directory is not None:
        try:
            files.check_directory()
        except PasswordFileError as error:
            raise click.UsageError(f"--link-passwords: {error}") from error
    return files


async def _serve(
    options: BrokerOptions,
    cluster_arguments: ClusterArguments | None,
    role_command: RoleCommand | None,
    lines: _Roles | None,
) -> int:
    async with contextlib.AsyncExitStack() as stack:
        if role_command is not None:
            stack.push_async_callback(role_command.close)
        if cluster_arguments is None:
            return await _run(Broker(options), StartProgress(), lines)
        progress = StartProgress()
        try:
            async with contextlib.AsyncExitStack() as opened:
                async with event_loop.reported(progress, name=options.name, as_json=lines is not None):
                    setup = await opened.enter_async_context(cluster_arguments.opened(progress))
                return await _run(Broker(options, setup), progress, lines)
        except StoreFailedError as error:
            echo_line(str(error), err=True)
            return REFUSED


async def _run(broker: Broker, progress: StartProgress, lines: _Roles | None) -> int:
    """Run a member; with ``lines``, standard output is JSON."""
    options = broker.options
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, broker.request_stop)
    try:
        async with event_loop.reported(progress, name=options.name, as_json=lines is not None):
            await broker.start()
    except (OSError, MoveRefusedError, StartRefusedError) as error:
        await broker.stop()
        echo_line(_error_text(error, options), err=True)
        return REFUSED
    if lines is not None:
        _print_facts("listening", name=options.name, address=broker.address.authority, pid=os.getpid())
        lines.printed = True
    else:
        echo_line(f"{options.name} listens on {broker.address}")
    await broker.run()
    return REFUSED if broker.failure else 0


def _print_facts(event: str, **facts: object) -> None:
    click.echo(json.dumps({"event": event, **facts}))


class _Roles:
    """Reports each change of the role, to the role command and on standard output.

    :ivar printed: true if each change is printed as a line.
    """

    def __init__(self, command: RoleCommand | None) -> None:
        self._command = command
        self.printed = False

    def changed(self, role: Role) -> None:
        """Report a new role; a full pipe without a reader does not block the member."""
        if self._command is not None:
            self._command.role_changed(role)
        if self.printed:
            with contextlib.suppress(OSError):
                if select.select([], [sys.stdout], [], 0)[1]:
                    _print_facts("role", role=role)


def _error_text(error: OSError | MoveRefusedError | StartRefusedError, options: BrokerOptions) -> str:
    if isinstance(error, StartRefusedError):
        return f"{options.name} does not start: {error}"
    if isinstance(error, MoveRefusedError):
        return f"--force-primary: {error}"
    return f"cannot listen on {options.listen.authority}: {error.strerror or error}"
