"""The options of ``serve`` for a member of a replicated cluster: store, arbiter, addresses of other members.

Rules
-----
* Without an arbiter no member knows whether its store is the newest, so a store on disk needs one.
* With an arbiter the command line cannot make a member primary: the arbiter decides each promotion.
"""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from broker_stub.amqp.password_mechanisms import password_options
from broker_stub.cli.options import check_arbiter, cluster_url, without_secrets
from broker_stub.durability.disk_watch import MIB, NO_LIMITS, DiskLimits
from broker_stub.election.arbiter import open_arbiter
from broker_stub.member.member import ClusterOptions, ClusterSetup
from broker_stub.queueing.queue_limits import DEFAULT_LIMITS
from broker_stub.replication.backup import CAPABILITY, LONGEST_PAUSE
from broker_stub.store import MemoryStore, StartProgress, Store, open_store
from haclient import Credentials, aio
from haclient.cluster_url.endpoint import Endpoint
from haclient.cluster_url.errors import ClusterURLError
from haclient.cluster_url.url import ClusterURL

MEMORY = "memory"
_F = TypeVar("_F", bound=Callable[..., Any])
_MOST_MIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterArguments:
    """The arguments of a member with an arbiter.

    :param store: a directory, or ``memory``.
    :param broker_url: a cluster URL, or the addresses of the members, separated by commas.
    :param separate: true if members search each other there even when clients are given other addresses.
    :param credentials: the cluster-admin's credentials.
    :param tls_ca: certificates of the authority that signs the members' (PEM); ``None`` trusts the system's.
    :param force_primary: take over at the start, even if the store lacks messages.
    :param secure_delete: overwrite data deleted from the store.
    :param disk: the levels of free room on the store's disk at which the member acts.
    :raises click.UsageError: for an invalid arbiter or broker URL.
    """

    arbiter: str
    store: str
    broker_url: str
    credentials: Credentials
    tls_ca: Path | None
    name: str
    backup_timeout: float
    arbiter_interval: float
    force_primary: bool
    separate: bool = False
    secure_delete: bool = False
    disk: DiskLimits = NO_LIMITS

    def __post_init__(self) -> None:
        try:
            ClusterURL.parse(cluster_url(self.broker_url))
        except ClusterURLError as error:
            raise click.UsageError(f"--broker-url: {error}") from error
        check_arbiter(self.arbiter)

    @asynccontextmanager
    async def opened(self, progress: StartProgress) -> AsyncIterator[ClusterSetup]:
        """Keep store and arbiter open while the body runs.

        :param progress: counts the messages read from the store.
        :raises broker_stub.store.StoreFailedError: if the store cannot be used.
        """
        window = DEFAULT_LIMITS.duplicates
        if self.store == MEMORY:
            store: Store = MemoryStore(duplicates=window)
        else:
            store = await open_store(
                Path(self.store),
                duplicates=window,
                secure_delete=self.secure_delete,
                progress=progress,
                reserve=self.disk.reserve,
            )
        options = ClusterOptions(
            name=self.name,
            backup_timeout=self.backup_timeout,
            arbiter_interval=self.arbiter_interval,
            store=self.store,
            arbiter=without_secrets(self.arbiter),
            force_primary=self.force_primary,
            disk=self.disk,
        )
        arbiter = open_arbiter(self.arbiter)
        try:
            yield ClusterSetup(options=options, store=store, arbiter=arbiter, factory=self._factory)
        finally:
            await arbiter.close()
            await store.close()

    def _factory(self, members: tuple[Endpoint, ...], broker_url: str = "") -> aio.ConnectionFactory:
        own = self.broker_url if self.separate else ""
        where = broker_url or own or ",".join(str(member) for member in members) or self.broker_url
        options = ClusterURL.parse(cluster_url(where)).options
        connect = functools.partial(
            aio.ConnectionFactory,
            cluster_url(where),
            credentials=self.credentials,
            **password_options(options, tls_ca=self.tls_ca is not None),
            desired_capabilities=(CAPABILITY,),
            startup_deadline=None,
            backoff_max=LONGEST_PAUSE,
            # The log reports failovers of the member's own links; they are no application's telemetry.
            telemetry="",
        )
        return connect() if self.tls_ca is None else connect(tls_ca=str(self.tls_ca))


def disk_options(command: _F) -> _F:
    """Add the options for the levels of a disk that fills up to a command."""
    levels = (
        ("warn", "1024, or a fifth of the file system", "the member warns"),
        ("hold", "256, or a tenth", "producers get no credit"),
        ("stop", "64, or a twentieth", "nothing more is stored, and a backup leaves its primary"),
    )
    for name, default, effect in reversed(levels):
        text = f"MiB of room on the store's disk below which {effect}; 0 for never.  [default: {default}]"
        command = click.option(f"--disk-{name}", type=click.IntRange(0, _MOST_MIB), help=text)(command)
    return command


def disk_limits(store: str, warn: int | None, hold: int | None, stop: int | None) -> DiskLimits:
    """Return the disk limits for a store.

    :param store: a directory, which need not exist yet, or ``memory``.
    :param warn: MiB, like ``hold`` and ``stop``; ``None`` for the default.
    :raises click.UsageError: if the levels are not in that order.
    """
    given = [None if each is None else each * MIB for each in (warn, hold, stop)]
    if store == MEMORY:
        return NO_LIMITS
    directory = Path(store).absolute()
    there = next(path for path in (directory, *directory.parents) if path.exists())
    found = os.statvfs(there)
    try:
        return DiskLimits.of(found.f_blocks * found.f_frsize, *given)
    except ValueError as error:
        raise click.UsageError(f"--disk-warn, --disk-hold, --disk-stop: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenOptions:
    """The presence of options that exclude or require each other."""

    arbiter: bool
    name: bool
    primary_role: bool
    generation: bool
    primary: bool
    store_on_disk: bool
    broker_url: bool
    members: bool
    password: bool
    force_primary: bool


def check(given: GivenOptions) -> None:
    """Refuse options that contradict each other.

    :raises click.UsageError: with the alternative.
    """
    for reason in _contradictions(given):
        raise click.UsageError(reason)


def _contradictions(given: GivenOptions) -> Iterator[str]:
    if given.primary_role and given.primary:
        yield "--primary names another member: it does not go with --role primary"
    if given.arbiter:
        yield from _contradictions_with_arbiter(given)
        return
    if given.store_on_disk:
        yield (
            "--store DIR needs --arbiter: without one no member knows whether its store is the newest;"
            " a single durable broker is a member with --arbiter directory:PATH that was promoted"
        )
    if given.force_primary:
        yield "--force-primary needs --arbiter; without one use --role primary"
    if given.broker_url:
        yield "--broker-url needs --arbiter: without one nothing is replicated"


def _contradictions_with_arbiter(given: GivenOptions) -> Iterator[str]:
    if given.primary_role:
        yield (
            "--role primary does not go with --arbiter, which decides who is primary:"
            " start the member, then `broker-stub promote` it (or give --force-primary)"
        )
    if given.generation:
        yield "--generation does not go with --arbiter: the store and the arbiter have it"
    if given.primary:
        yield "--primary does not go with --arbiter: the member looks for the primary itself"
    if not given.broker_url and not given.members:
        yield "--arbiter needs --member or --broker-url, to search the primary there"
    if not given.name:
        yield "--arbiter needs --name: each member of a cluster has its own, and the primary knows it by that"
    if not given.password:
        yield "--arbiter needs --password-file: a backup connects to the primary as cluster-admin"
