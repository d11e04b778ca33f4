"""A cluster on separate hosts: members, an arbiter in ZooKeeper, clients, and a manager.

    with Lab(HOSTS, seed=1) as lab, lab.on(MANAGER):
        async with on_hosts(lab, folder) as site:
            await site.members.kill(site.members.primary)

``site.members`` is the ``Cluster`` of ``tests.faults``, whose manager promotes a member whenever there
is no primary. Members and clients use their real addresses, so redirects and lists of members are
followed. The manager's own cables stay intact: faults make it act wrongly on purpose.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from haclient.cluster_url.endpoint import Endpoint
from haclient.testing.network import CLIENTS, Cut
from tests.faults.cluster import ATTEMPT_TIMEOUT, PATIENCE, Cluster, ClusterOptions, NotWholeError
from tests.faults.network import ARBITER
from tests.hostile.clients.pair import hostile_clients
from tests.hosts.lab import Lab
from tests.hosts.switch import Conditions
from tests.zookeeper import ZooKeeper

MANAGER = "manager"
MEMBERS = ("member-1", "member-2", "member-3")
CLIENT_HOSTS = ("client-1", "client-2")
HOSTILE = "hostile"
"""The host whose clients continuously send invalid and extreme data. No fault affects its cables."""
HOSTS = (*MEMBERS, ARBITER, *CLIENT_HOSTS, MANAGER, HOSTILE)

# Seconds, longer than on loopback: a delay of a second on a cable must not end a connection by itself.
_HEARTBEAT, _BACKUP_TIMEOUT = 2.0, 2.5
_PORT, _ZOOKEEPER_PORT = 5672, 2181
_PATH = "/haclient"
# The share of the usual load: messages pass a switch in user space, and ten processes share the machine.
_SHARE = 0.2
# Some acts a second, as the machine has two cores for all hosts.
_HOSTILE_CLIENTS, _HOSTILE_PAUSE = 2, 0.5
# Messages left for the drain, more than a run sends: a loss in a consumed queue can stay unnoticed.
_KEPT = 10**6
_OPTIONS = ClusterOptions(
    members=len(MEMBERS), arbiter="zookeeper", heartbeat=_HEARTBEAT, backup_timeout=_BACKUP_TIMEOUT
)


class HostCluster(Cluster):
    """A cluster whose clients and members follow redirects and member lists."""

    @property
    def _client_options(self) -> str:
        timeouts = f"heartbeat={self.options.heartbeat}&attempt_timeout={ATTEMPT_TIMEOUT}"
        return f"{timeouts}&backoff_base=0.02&backoff_max=0.25"


class LabNetwork:
    """A ``Network`` whose routes are the lab's cables."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.addresses = tuple(Endpoint(lab.address(member), _PORT) for member in MEMBERS)

    def client_addresses(self) -> list[str]:
        """See ``Network``."""
        return [address.authority for address in self.addresses]

    def peer_addresses(self, member: str) -> list[str]:
        """See ``Network``."""
        return [self.listen(other) for other in MEMBERS if other != member]

    def listen(self, member: str) -> str:
        """See ``Network``."""
        return f"{self._lab.address(member)}:{_PORT}"

    def wrapper(self, member: str) -> tuple[str, ...]:
        """See ``Network``."""
        return self._lab.wrapper(member)

    def cut(self, one: str, other: str, how: Cut) -> None:
        """See ``Network``; the partition always holds."""
        ends = [CLIENT_HOSTS if party == CLIENTS else (party,) for party in (one, other)]
        pairs = self._lab.between(*ends) + self._lab.between(*reversed(ends))
        self._lab.change(pairs, Conditions(cut=True))

    def heal(self) -> None:
        """See ``Network``."""
        self._lab.heal()


class LabArbiter:
    """The ``ArbiterRoutes`` of the lab."""

    def __init__(self, network: LabNetwork, zookeeper: ZooKeeper) -> None:
        self._network = network
        self.zookeeper = zookeeper
        self.url = zookeeper.url(_PATH)

    def member_url(self, member: str) -> str:
        """See ``ArbiterRoutes``."""
        return self.url

    def cut(self, member: str, how: Cut) -> None:
        """See ``ArbiterRoutes``."""
        self._network.cut(member, ARBITER, how)

    def heal(self) -> None:
        """See ``ArbiterRoutes``."""
        self._network.heal()


@dataclass(slots=True)
class Site:
    """The processes on the hosts.

    :param journals: the clients' journals, one file for each host.
    """

    lab: Lab
    members: HostCluster
    zookeeper: ZooKeeper
    folder: Path
    journals: list[Path] = field(default_factory=list)
    _clients: list[subprocess.Popen[str]] = field(default_factory=list)
    _hostile: subprocess.Popen[str] | None = None

    async def start_clients(self, seed: int, hosts: Sequence[str] = CLIENT_HOSTS) -> None:
        """Start a load on the cluster; return when every client has its connections."""
        for host in hosts:
            journal = self.folder / f"{host}.jsonl"
            self.journals.append(journal)
            options = {
                "url": self.members.url,
                "journal": str(journal),
                "process": host,
                "seed": seed,
                "names": self.members.names,
                "share": _SHARE,
                "kept": _KEPT,
            }
            with (self.folder / f"{host}.log").open("wb") as log:
                command = (sys.executable, "-m", "tests.hosts.client", json.dumps(options))
                streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
                self._clients.append(self.lab.start(host, command, text=True, **streams))
        for client in self._clients:
            assert client.stdout is not None
            async with asyncio.timeout(PATIENCE):
                if not await asyncio.to_thread(client.stdout.readline):
                    raise NotWholeError(f"a client did not start: see the logs in {self.folder}")

    def start_hostile(self, seed: int) -> None:
        """Start hostile clients on one host, which use their own queues."""
        addresses = [self.members.network.listen(member) for member in MEMBERS]
        command = hostile_clients(addresses, seed, clients=_HOSTILE_CLIENTS, pause=_HOSTILE_PAUSE)
        with (self.folder / f"{HOSTILE}.log").open("wb") as log:
            streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
            self._hostile = self.lab.start(HOSTILE, command, text=True, **streams)

    async def finish_hostile(self) -> dict[str, int]:
        """Stop the hostile clients; return the number of acts by act and result.

        :raises NotWholeError: if their process has ended by itself, or an act failed unexpectedly.
        """
        hostile = self._hostile
        if hostile is None:
            return {}
        out, _ = await asyncio.to_thread(hostile.communicate, timeout=PATIENCE)
        lines = out.splitlines()
        facts = json.loads(lines[-1]) if len(lines) > 1 else {"wrong": "no report"}
        if hostile.returncode or facts["wrong"]:
            raise NotWholeError(f"hostile clients ended with {hostile.returncode}: {facts['wrong']}")
        ends: dict[str, int] = facts["ends"]
        return dict(sorted(ends.items()))

    def make_queue(self, number: int) -> None:
        """Make a new queue with a few messages."""
        self._tell(self._clients[number % len(self._clients)], f"queue made-{number}")

    def check_clients(self) -> None:
        """Raise an error if a client has ended."""
        for client, journal in zip(self._clients, self.journals, strict=True):
            if client.poll() is not None:
                raise NotWholeError(
                    f"{journal.stem} ended with {client.returncode}: {journal.with_suffix('.log')}"
                )

    async def finish_clients(self) -> None:
        """Stop all sending; wait for every outcome and the clients' end."""
        self.check_clients()
        for client in self._clients:
            self._tell(client, "finish")
        for client in self._clients:
            if code := await asyncio.to_thread(client.wait, 2 * PATIENCE):
                raise NotWholeError(f"a client ended with {code}: see the logs in {self.folder}")

    def _tell(self, client: subprocess.Popen[str], line: str) -> None:
        assert client.stdin is not None
        with suppress(BrokenPipeError):  # ``check_clients`` reports it
            client.stdin.write(f"{line}\n")
            client.stdin.flush()


@asynccontextmanager
async def on_hosts(lab: Lab, folder: Path) -> AsyncIterator[Site]:
    """Start arbiter and members, ready when the body starts. The caller must be on the manager's host."""
    network = LabNetwork(lab)
    (folder / "zookeeper").mkdir()
    zookeeper = ZooKeeper(
        folder / "zookeeper",
        host=lab.address(ARBITER),
        port=_ZOOKEEPER_PORT,
        wrapper=lab.wrapper(ARBITER),
    )
    async with AsyncExitStack() as stack:
        stack.callback(zookeeper.stop)
        await asyncio.to_thread(zookeeper.start)
        members = HostCluster(folder, _OPTIONS, MEMBERS, network, LabArbiter(network, zookeeper))
        try:
            await members.pair.start()
            await members.whole()
            yield Site(lab, members, zookeeper, folder)
        finally:
            members.wake()
            members.keep_logs()
            await members.pair.stop()
