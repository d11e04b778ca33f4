"""The options, members and events of a local cluster."""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from broker_stub.local_cluster.member_process import MemberProcess
from broker_stub.management_client import AdminClient, MemberStatus
from haclient.cluster_url.endpoint import Endpoint


class MemberState(enum.StrEnum):
    """A member's state as the supervisor sees it."""

    STARTING = "starting"
    CONNECTING = "connecting"
    CATCHUP = "catchup"
    READY = "ready"
    RECOVERING = "recovering"
    PRIMARY = "primary"
    DEAD = "dead"

    @property
    def serves(self) -> bool:
        """Return whether the member is primary or about to be."""
        return self in (MemberState.PRIMARY, MemberState.RECOVERING)

    @property
    def stands_by(self) -> bool:
        """Return whether the member's state allows a promotion."""
        return self in (MemberState.READY, MemberState.CONNECTING)


@dataclass(frozen=True, slots=True)
class LocalClusterEvent:
    """An event of one member.

    :param kind: ``started``, ``promoted``, ``demoted``, ``follows``, ``silent``, ``fenced``, ``died``,
        ``failed``, or ``starting`` for each progress report of a long start.
    :param at: seconds since the epoch.
    """

    kind: str
    member: str
    detail: str
    at: float = field(default_factory=time.time)


TWO_ON_LOOPBACK = (Endpoint("127.0.0.1", 0), Endpoint("127.0.0.1", 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalClusterOptions:
    """The options of a local cluster.

    :param listen: the members' addresses; port 0 is replaced by a free one.
    :param passwords: ordinary users and their passwords.
    :param users_file: a file of further ones, as ``serve --users`` reads it.
    :param has_tokens: true if ``serve_arguments`` let members accept tokens.
    :param anonymous: true if clients may connect without a name; ``None`` to allow it only without users
        and tokens.
    :param restart: true if a dead member is started again, as a backup.
    :param probe_interval: seconds between two probes of a member.
    :param probe_timeout: seconds that a member may take to answer.
    :param probes_missed: consecutive unanswered probes after which the supervisor kills the member.
    :param store: directory of the members' stores and the arbiter; ``None`` for one that is removed at the
        end.
    :param arbiter: URL of the arbiter; ``None`` for a directory beside the stores.
    :param memory: keep messages in memory only.
    :param tls: make certificates, and listen with TLS.
    :param backup_timeout: see ``member.ClusterOptions``.
    :param serve_arguments: more arguments for every ``serve``.
    :param member_arguments: more arguments for the ``serve`` of single members, by name.
    :param wrappers: prefix of the command of single members, by name: ``ip netns exec ...``.
    """

    listen: tuple[Endpoint, ...] = TWO_ON_LOOPBACK
    cluster: str = "haclient"
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    users_file: Path | None = None
    has_tokens: bool = False
    anonymous: bool | None = None
    restart: bool = True
    probe_interval: float = 0.5
    probe_timeout: float = 2.0
    probes_missed: int = 3
    loop: str = "auto"
    store: Path | None = None
    arbiter: str | None = None
    memory: bool = False
    tls: bool = False
    backup_timeout: float = 10.0
    serve_arguments: tuple[str, ...] = ()
    member_arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    wrappers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def lets_anonymous_in(self) -> bool:
        """Return whether clients may connect without a name."""
        has_users = bool(self.passwords) or self.users_file is not None or self.has_tokens
        return not has_users if self.anonymous is None else self.anonymous


class Member:
    """One member of a local cluster."""

    def __init__(self, name: str, address: Endpoint, process: MemberProcess) -> None:
        self.name = name
        self.address = address
        self.process = process
        self.state = MemberState.STARTING
        self.status: MemberStatus | None = None
        self.admin: AdminClient | None = None
        self.follows: Endpoint | None = None
        self.refusal = ""
        """The reason that it gave when it last refused to be promoted."""
        self.restart_requested = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The process id while the member runs."""
        return self.process.pid

    @property
    def generation(self) -> int:
        """The generation in the member's last status, 0 while unknown."""
        return self.status.generation if self.status is not None else 0

    @property
    def alive(self) -> bool:
        """Return whether there is a management connection to the member."""
        return self.state not in (MemberState.STARTING, MemberState.DEAD) and self.admin is not None


DEFAULT_OPTIONS = LocalClusterOptions()
