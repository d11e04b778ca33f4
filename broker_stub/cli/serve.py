"""``serve``: one member in this process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click

from broker_stub import process
from broker_stub.access import DEFAULT_ADMIN, Access, write_users
from broker_stub.address import Address
from broker_stub.arbiter import open_arbiter
from broker_stub.broker import Broker, BrokerOptions
from broker_stub.cli.options import ADDRESS, FILE, LOG_LEVEL, LOOP, REFUSED, read_users, start_logging
from broker_stub.member import ClusterOptions, ClusterSetup
from broker_stub.membership import Membership, Role
from broker_stub.messages import Replicate
from broker_stub.replication.backup import CAPABILITY
from broker_stub.store import MemoryStore, open_store
from haclient import Credentials, aio
from haclient.engine.tls import TlsFiles


@click.command()
@click.option("--listen", type=ADDRESS, default="127.0.0.1:5672", show_default=True)
@click.option("--name", default="member", show_default=True, help="This member's name.")
@click.option("--cluster", default="haclient", show_default=True, help="The cluster's name.")
@click.option("--role", type=click.Choice(["passive", "primary"]), default="passive", show_default=True)
@click.option("--generation", type=click.IntRange(0), help="Generation to start in.  [default: 1 as primary]")
@click.option("--primary", type=ADDRESS, help="Where the primary is, as far as known.")
@click.option("--member", "members", type=ADDRESS, multiple=True, help="A member of the cluster (repeat).")
@click.option("--admin", default=DEFAULT_ADMIN, show_default=True, help="The cluster-admin's user name.")
@click.option(
    "--users",
    type=click.Path(exists=True, path_type=Path),
    help="Directory of a Cyrus user database, or a file of name:password lines.",
)
@click.option("--anonymous/--no-anonymous", default=True, show_default=True)
@click.option("--tls-cert", type=FILE, help="Certificate (PEM); makes the listener amqps.")
@click.option("--tls-key", type=FILE, help="Key of the certificate (PEM).")
@click.option("--tls-client-ca", type=FILE, help="Require client certificates of this CA (EXTERNAL).")
@click.option(
    "--auto-create/--no-auto-create", default=True, show_default=True, help="Make queues on attach."
)
@click.option("--handshake-timeout", type=float, default=10.0, show_default=True, help="Seconds until Open.")
@click.option("--heartbeat", type=float, default=10.0, show_default=True, help="Seconds; 0 turns it off.")
@click.option("--max-connections", type=click.IntRange(1), default=20_000, show_default=True)
@click.option("--arbiter", help="directory:PATH or zookeeper:HOST:PORT/PATH: replicate (not finished yet).")
@click.option("--store", "store_path", help="Directory of the store, or memory.  [default: memory]")
@click.option("--broker-url", help="Where backups look for the primary.  [default: the --member list]")
@click.option("--password-file", type=FILE, help="File with the cluster-admin's password, for backups.")
@click.option("--backup-timeout", type=float, default=10.0, show_default=True, help="Seconds.")
@click.option(
    "--replicate",
    type=click.Choice([str(mode) for mode in Replicate]),
    default="all",
    show_default=True,
    help="What backups have of a queue without x-qpid-replicate.",
)
@click.option("--exit-with-parent", type=int, metavar="PID", help="Die when the parent, PID, dies (Linux).")
@click.option("--json", "as_json", is_flag=True, help="Say in JSON where the member listens.")
@LOOP
@LOG_LEVEL
def serve(
    *,
    listen: Address,
    name: str,
    cluster: str,
    role: str,
    generation: int | None,
    primary: Address | None,
    members: tuple[Address, ...],
    admin: str,
    users: Path | None,
    anonymous: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    auto_create: bool,
    handshake_timeout: float,
    heartbeat: float,
    max_connections: int,
    arbiter: str | None,
    store_path: str | None,
    broker_url: str | None,
    password_file: Path | None,
    backup_timeout: float,
    replicate: str,
    exit_with_parent: int | None,
    as_json: bool,
    loop: str,
    log_level: str,
) -> None:
    """Run one member until SIGTERM or Ctrl-C."""
    if exit_with_parent is not None:
        process.end_with_parent(exit_with_parent)
    start_logging(log_level)
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key go together")
    tls = None
    if tls_cert is not None and tls_key is not None:
        tls = TlsFiles(
            certificate=str(tls_cert), key=str(tls_key), ca=str(tls_client_ca) if tls_client_ca else None
        )
    if generation is None:
        generation = 1 if role == Role.PRIMARY else 0
    with tempfile.TemporaryDirectory(prefix="broker-stub-") as scratch:
        options = BrokerOptions(
            listen=listen,
            name=name,
            cluster=cluster,
            membership=Membership(Role(role), generation, primary if role == Role.PASSIVE else None),
            members=members,
            access=Access(
                admin=admin,
                users=_user_database(users, Path(scratch)),
                anonymous=anonymous,
                external=tls_client_ca is not None,
            ),
            tls=tls,
            auto_create=auto_create,
            handshake_timeout=handshake_timeout,
            heartbeat=heartbeat,
            max_connections=max_connections,
            replicate=Replicate(replicate),
        )
        part = None
        if arbiter is not None:
            password = password_file.read_text().strip() if password_file is not None else None
            part = ClusterPart(
                arbiter=arbiter,
                store=store_path or "memory",
                broker_url=broker_url or ",".join(str(member) for member in members),
                credentials=Credentials(admin, password) if password else Credentials(),
                options=ClusterOptions(name=name, backup_timeout=backup_timeout),
            )
        process.tune()
        sys.exit(process.run(_serve(options, part, as_json=as_json), loop=loop))


def _user_database(users: Path | None, scratch: Path) -> Path | None:
    """The directory of a user database: the given one, or one made from a list of passwords."""
    if users is None or users.is_dir():
        return users
    write_users(scratch, read_users(users))
    return scratch


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPart:
    """What the command line says of the member's part in its cluster."""

    arbiter: str
    store: str
    broker_url: str
    credentials: Credentials
    options: ClusterOptions

    async def setup(self) -> ClusterSetup:
        """Open store and arbiter."""
        store = MemoryStore() if self.store == "memory" else await open_store(Path(self.store))
        return ClusterSetup(
            options=self.options, store=store, arbiter=open_arbiter(self.arbiter), factory=self._factory
        )

    def _factory(self) -> aio.ConnectionFactory:
        url = _cluster_url(self.broker_url)
        return aio.ConnectionFactory(
            url, credentials=self.credentials, desired_capabilities=(CAPABILITY,), startup_deadline=None
        )


def _cluster_url(text: str) -> str:
    """A list of members as one cluster URL."""
    members = text.split(",")
    return members[0] if len(members) == 1 else f"failover:({text})"


async def _serve(options: BrokerOptions, part: ClusterPart | None, *, as_json: bool) -> int:
    setup = None if part is None else await part.setup()
    try:
        return await _run(Broker(options, setup), as_json=as_json)
    finally:
        if setup is not None:
            await setup.store.close()
            await setup.arbiter.close()


async def _run(broker: Broker, *, as_json: bool) -> int:
    options = broker.options
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, broker.request_stop)
    try:
        await broker.start()
    except OSError as error:
        click.echo(f"cannot listen on {options.listen.authority}: {error.strerror or error}", err=True)
        return REFUSED
    facts = {
        "event": "listening",
        "name": options.name,
        "address": broker.address.authority,
        "pid": os.getpid(),
    }
    click.echo(json.dumps(facts) if as_json else f"{options.name} listens on {broker.address}")
    await broker.run()
    return 0
