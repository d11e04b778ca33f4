"""Artemis on this machine: a pair in one of three ways, or one broker.

    cluster = Artemis(Kind.LOCKED, Launch(tmp_path))
    try:
        await cluster.start()
        ...
    finally:
        await cluster.stop()

The passive member refuses TCP.  It is in sync when its log says so after it began to wait for the last time:
AMQ221024 (replication), AMQ221031 (a shared store, where there is nothing to sync).
"""

from __future__ import annotations

import time
from typing import Protocol

from haclient.cluster_url.endpoint import Endpoint
from haclient.testing.peers.listening import loopback_host
from tests.brokers.bare import Account
from tests.brokers.products import installed
from tests.brokers.products.artemis_config import (
    CONNECTION_TTL,
    PASSWORD,
    USER,
    Instance,
    Kind,
    Settings,
    write,
)
from tests.brokers.products.group import COMMON, Group, Member
from tests.brokers.products.member_process import MemberProcess
from tests.brokers.topology import Fault, Launch, Served, Stored
from tests.dnsmasq import free_port

_JAVA = ("-Xms256M", "-XX:+UseSerialGC", "-Dlog4j2.disableJmx=true")
_MAIN = "org.apache.activemq.artemis.boot.Artemis"
_IN_SYNC = {Kind.LOCKED: "AMQ221024", Kind.QUORUM: "AMQ221024", Kind.SHARED: "AMQ221031"}
# It becomes active, or a passive one begins again: AMQ221070 and AMQ221002 say so within one process.
_NOT_IN_SYNC = "AMQ2210(07|10|32|37|70|02)|AMQ221109|Backup Server version|awaiting connection"
# The primary sends files to its backup, and gives it up after ``connection-ttl``: a backup that was busy says
# that it is in sync a moment later, and would not take over.
_SENDS, _GAVE_UP = "AMQ221025", "AMQ222092"
# After SIGSTOP or a partition both members of a pair with a vote are active, for good: it has no majority.
_SPLITS = frozenset({Fault.PAUSE})


class Artemis:
    """See ``BrokerCluster``.

    :param settings: what is to differ from the usual.
    """

    detects_duplicates = True
    version = installed.ARTEMIS_VERSION

    def __init__(self, kind: Kind, launch: Launch, settings: Settings = Settings()) -> None:  # noqa: B008 - frozen
        self.name = f"artemis-{kind.value}"
        self._kind = kind
        self._launch = launch
        self._steady_seconds = 0.0
        self._settings = settings
        self._processes = [self._process(number) for number in range(1 if kind is Kind.SINGLE else 2)]
        self.members = [_listening(process) for process in self._processes]
        self.group = Group(self.members, Account(USER, PASSWORD), alone=kind is Kind.SINGLE)

    @property
    def faults(self) -> frozenset[Fault]:
        """See ``BrokerCluster``."""
        if self._kind is Kind.SINGLE:
            return COMMON - {Fault.SILENCE, Fault.VIP}
        faults = COMMON | {Fault.FAILBACK}
        return faults - _SPLITS if self._kind is Kind.QUORUM else faults

    @property
    def url(self) -> str:
        """See ``BrokerCluster``."""
        return f"amqp://{USER}:{PASSWORD.replace(' ', '%20')}@{self.group.addresses}"

    async def start_process(self) -> None:
        """Start the first member, and wait until it listens: a router takes no sender itself."""
        write(self._instance(0))
        self._processes[0].start()

        async def active() -> bool:
            return self._processes[0].last("AMQ221007") >= 0

        await self.group.until(active, "active member")

    async def start(self) -> None:
        """See ``BrokerCluster``."""
        await self.group.open_routes(self._launch.fault)
        for number in range(len(self.members)):
            write(self._instance(number))
        self.members[0].process.start()
        if self._kind is Kind.SHARED:
            await self.group.primary()  # or the backup might be first to have the journal
        await self.whole()

    async def stop(self) -> None:
        """See ``BrokerCluster``."""
        await self.group.stop()

    async def inject(self, fault: Fault) -> float:
        """See ``BrokerCluster``.

        A backup that is not in sync would not take over; on a busy machine it may lose its primary by itself.
        """
        await self.whole()
        if fault is Fault.PAUSE:
            # Either may find out late that it has lost the other one meanwhile.
            self._steady_seconds = CONNECTION_TTL / 1000
        if fault is not Fault.FAILBACK:
            return await self.group.inject(fault)
        await self.group.inject(Fault.KILL)
        backup = await self.group.primary()
        self.group.start_all()
        return await self.group.refusing(backup)

    async def serving(self) -> Served:
        """See ``BrokerCluster``."""
        return await self.group.serving()

    async def whole(self) -> None:
        """See ``BrokerCluster``."""
        await self.group.whole()
        if self._kind is Kind.SINGLE:
            return
        primary = await self.group.primary()
        active, passive = sorted(self._processes, key=lambda process: process is not primary.process)

        lost = time.monotonic()

        async def in_sync() -> bool:
            nonlocal lost
            if is_in_sync(self._kind, passive, active):
                return time.monotonic() - lost >= self._steady_seconds
            lost = time.monotonic()
            return False

        await self.group.until(in_sync, f"sync of {passive.name}")
        self._steady_seconds = 0.0

    def queue(self, name: str) -> str:
        """See ``BrokerCluster``."""
        return name

    async def drain(self, name: str) -> list[Stored]:
        """See ``BrokerCluster``."""
        return await self.group.drain(name)

    def _process(self, number: int) -> MemberProcess:
        folder = self._launch.folder / f"member-{number}"
        folder.mkdir(parents=True)
        home = installed.ARTEMIS
        properties = {
            "artemis.home": home,
            "artemis.instance": folder,
            "artemis.instance.etc": folder / "etc",
            "data.dir": folder / "data",
            "java.io.tmpdir": folder / "tmp",
            "java.security.auth.login.config": folder / "etc" / "login.config",
            "log4j2.configurationFile": f"file:{folder}/etc/log4j2.properties",
        }
        defined = (f"-D{name}={value}" for name, value in properties.items())
        boot = ("-classpath", str(home / "lib" / "artemis-boot.jar"), _MAIN, "run")
        command = ("java", f"-Xmx{self._settings.heap}M", *_JAVA, *defined, *boot)
        return MemberProcess(f"{self.name} member-{number}", command, folder / "log")

    def _instance(self, number: int) -> Instance:
        folder = self._launch.folder
        own = folder / f"member-{number}" / "data"
        return Instance(
            kind=self._kind,
            number=number,
            folder=folder / f"member-{number}",
            store=folder / "shared" if self._kind is Kind.SHARED else own,
            locks=folder / "locks",
            listen=self.members[number].endpoint,
            connectors=tuple(member.seen.authority for member in self.members),
            failback=self._launch.fault is Fault.FAILBACK,
            settings=self._settings,
        )


class Log(Protocol):
    """What a member printed since its last start; see ``MemberProcess.last``."""

    def last(self, pattern: str) -> int: ...


def is_in_sync(kind: Kind, passive: Log, primary: Log) -> bool:
    """Whether the backup says so, and the primary has not given it up since."""
    if primary.last(_GAVE_UP) > primary.last(_SENDS):
        return False
    return passive.last(_IN_SYNC[kind]) > passive.last(_NOT_IN_SYNC)


def _listening(process: MemberProcess) -> Member:
    host = loopback_host()
    return Member(process, Endpoint(host, free_port(host)))
