"""Artemis on this machine: a pair of one of three kinds, or a single broker.

    cluster = Artemis(Kind.LOCKED, Launch(tmp_path))
    try:
        await cluster.start()
        ...
    finally:
        await cluster.stop()

The passive member refuses TCP. It is in sync if its log says so after it last began to wait: AMQ221024
(replication), AMQ221031 (a shared store, where nothing needs syncing).
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
# The member becomes active, or a passive one starts over: AMQ221070 and AMQ221002 within one process.
_NOT_IN_SYNC = "AMQ2210(07|10|32|37|70|02)|AMQ221109|Backup Server version|awaiting connection"
# The primary sends files to its backup, and drops it after ``connection-ttl``. A busy backup may log
# afterwards that it is in sync, but would not take over.
_SENDS, _GAVE_UP = "AMQ221025", "AMQ222092"
# After SIGSTOP or a partition both members of a voting pair stay active: neither has a majority.
_SPLITS = frozenset({Fault.PAUSE})


class Artemis:
    """See ``BrokerCluster``.

    :param settings: the deviations from the usual configuration.
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
        """Start the first member, and wait until it listens. A router itself attaches no sender."""
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
            await self.group.primary()  # otherwise the backup might open the journal first
        await self.whole()

    async def stop(self) -> None:
        """See ``BrokerCluster``."""
        await self.group.stop()

    async def inject(self, fault: Fault) -> float:
        """See ``BrokerCluster``.

        A backup that is not in sync would not take over. On a busy machine it may lose its primary without
        a fault.
        """
        await self.whole()
        if fault is Fault.PAUSE:
            # Either member may notice late that it has lost its peer meanwhile.
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
        if self._settings.kerberos is not None:
            properties["java.security.krb5.conf"] = self._settings.kerberos.config
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
    """A member's output since its last start; see ``MemberProcess.last``."""

    def last(self, pattern: str) -> int: ...


def is_in_sync(kind: Kind, passive: Log, primary: Log) -> bool:
    """Return whether the backup is in sync, and the primary has not dropped it since."""
    if primary.last(_GAVE_UP) > primary.last(_SENDS):
        return False
    return passive.last(_IN_SYNC[kind]) > passive.last(_NOT_IN_SYNC)


def _listening(process: MemberProcess) -> Member:
    host = loopback_host()
    return Member(process, Endpoint(host, free_port(host)))
