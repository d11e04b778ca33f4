"""A cluster of two or three nodes under Corosync and Pacemaker, set up by the documented commands.

    with running(tmp_path, size=2, tool="crmsh") as cluster:
        before = cluster.primary()
        cluster.member_signal(before, signal.SIGKILL)
        cluster.wait_for_primary(other_than=before)

Pacemaker, Corosync, the agents and the members are real. The clients are on an additional host.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import secrets
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest

from broker_stub.admission.user_file import DEFAULT_ADMIN
from broker_stub.management_client import AdminClient, AdminError, MemberStatus
from haclient import Credentials
from haclient.cluster_url.endpoint import Endpoint
from tests.hosts.lab import Lab
from tests.pacemaker.fencing import PowerSwitch
from tests.pacemaker.installed import missing
from tests.pacemaker.node import Node, wait_for
from tests.pacemaker.page import blocks

NAMES = ("broker-a.example", "broker-b.example", "broker-c.example")
CLIENTS = "clients"
VIP = "192.0.2.10"
_PORT = 5672
_HERE = Path(__file__).parent
_CLIENT = "orders"
_PID_FILE = "/run/broker-stub/broker.pid"
# Seconds for the daemons to form a cluster, and to elect and start resources, on a busy machine.
_FORMING, _SETTLING = 90.0, 120.0
_ASK = 1.0
_WENT_WELL = re.compile(r": (ok|promoted|Cancelled) \|")


class Cluster:
    """See ``running``."""

    def __init__(self, lab: Lab, nodes: list[Node], password: str) -> None:
        self.lab = lab
        self.nodes = nodes
        self.fenced: list[str] = []
        self._password = password

    # -- state -------------------------------------------------------------------------------------

    @property
    def client_url(self) -> str:
        """Return the cluster URL for clients, with the members and no virtual address."""
        members = ",".join(f"{self.lab.address(node.name)}:{_PORT}" for node in self.nodes)
        return f"amqp://{_CLIENT}:{self._password}@{members}"

    @property
    def names(self) -> dict[str, str]:
        """Return the member's name for each address of the URL."""
        return {f"{self.lab.address(node.name)}:{_PORT}": node.name for node in self.nodes}

    def status(self, node: Node) -> MemberStatus | None:
        """Return a member's status, as seen from the clients' host; ``None`` without an answer."""

        async def ask() -> MemberStatus:
            address = Endpoint(self.lab.address(node.name), _PORT)
            async with await AdminClient.connect(
                address, Credentials(user=DEFAULT_ADMIN, password=self._password), timeout=_ASK
            ) as client:
                return await client.status()

        try:
            with self.lab.on(CLIENTS):
                return asyncio.run(ask())
        except AdminError:
            return None

    def primary(self) -> Node:
        """Return the node whose member serves."""
        return self.wait_for_primary()

    def wait_for_primary(self, *, other_than: Node | None = None, timeout: float = _SETTLING) -> Node:
        """Wait until a member serves, other than ``other_than``."""
        found: list[Node] = []

        def look() -> bool:
            for node in self.nodes:
                if node is not other_than and node.is_on:
                    status = self.status(node)
                    if status is not None and status.serves:
                        found.append(node)
                        return True
            return False

        wait_for(look, "a primary", timeout)
        return found[0]

    def wait_until_ready(self, count: int, timeout: float = _SETTLING) -> None:
        """Wait until ``count`` backups are ready and Pacemaker may promote each of them."""

        def ready() -> bool:
            statuses = [self.status(node) for node in self.nodes if node.is_on]
            return sum(status is not None and status.role == "ready" for status in statuses) >= count

        wait_for(ready, f"{count} ready backups", timeout)
        wait_for(lambda: self._scores().count("100") >= count, f"{count} scores of 100", timeout)

    def wait_until_idle(self, timeout: float = _SETTLING) -> None:
        """Wait until Pacemaker is idle."""
        self.manager().run("crm_resource", "--wait", "--timeout", f"{timeout:g}s", timeout=timeout + 30)

    def manager(self) -> Node:
        """Return a running node, whose tools can be used."""
        return next(node for node in self.nodes if node.is_on)

    def has_vip(self, node: Node) -> bool:
        """Return whether the node holds the virtual address."""
        return f"{VIP}/" in node.run("ip", "-o", "-4", "address", "show")

    def _scores(self) -> list[str]:
        tree = ElementTree.fromstring(self.manager().run("cibadmin", "--query"))  # noqa: S314 - our own
        pairs = tree.iterfind(".//status/node_state/transient_attributes//nvpair")
        return [pair.get("value", "") for pair in pairs if pair.get("name") == "master-broker"]

    def fail_counts(self) -> dict[str, int]:
        """Return the broker's fail counts, by node."""
        tree = ElementTree.fromstring(self.manager().run("cibadmin", "--query"))  # noqa: S314 - our own
        counts: Counter[str] = Counter()
        for state in tree.iterfind(".//status/node_state"):
            for pair in state.iterfind("./transient_attributes//nvpair"):
                if pair.get("name", "").startswith("fail-count-broker#"):
                    counts[state.get("uname", "")] += int(pair.get("value", ""))
        return dict(counts)

    def recovery(self, node: Node) -> float:
        """Return the seconds from the last failed monitor on a node until now."""
        lines = node.path("/var/log/pacemaker/pacemaker.log").read_text(errors="replace").splitlines()
        failures = [line for line in lines if "Result of monitor operation for broker on" in line]
        failures = [line for line in failures if not _WENT_WELL.search(line)]
        if not failures:
            return math.nan
        moment = datetime.strptime(f"{_now().year} {failures[-1][:19]}", "%Y %b %d %H:%M:%S.%f")  # noqa: DTZ007
        return round((_now() - moment).total_seconds(), 1)

    # -- actions -----------------------------------------------------------------------------------

    def member_signal(self, node: Node, number: signal.Signals) -> None:
        """Send a signal to the node's member."""
        node.run("kill", f"-{number.name.removeprefix('SIG')}", str(self.member_pid(node)))

    def other(self, node: Node) -> Node:
        """Return the second node of a pair."""
        return next(other for other in self.nodes if other is not node)

    def member_pid(self, node: Node) -> int:
        """Return the process id of the node's member, inside the node."""
        return int(node.path(_PID_FILE).read_text())

    def serves_anew(self, former: dict[str, int]) -> bool:
        """Return whether a member serves in a new process."""
        for node in self.nodes:
            status = self.status(node)
            if status is not None and status.serves and status.facts["pid"] != former[node.name]:
                return True
        return False

    def power_on(self, node: Node) -> None:
        """Boot a node that was lost, and its cluster daemons."""
        node.power_on()
        self._start_daemons(node)

    # -- setting up -----------------------------------------------------------------------------

    def form(self) -> None:
        """Start the daemons on all nodes, and wait until the nodes form one cluster."""
        for node in self.nodes:
            self._prepare(node)
            self._start_daemons(node)
        online = f"Online: [ {' '.join(node.name for node in self.nodes)} ]"
        first = self.nodes[0]
        wait_for(lambda: online in first.run("crm_mon", "-1", check=False), online, _FORMING)

    def _prepare(self, node: Node) -> None:
        node.write("/etc/hosts", "127.0.0.1 localhost\n" + self._hosts())
        node.write("/etc/corosync/corosync.conf", self._corosync())
        # A first start waits this long for an existing coordinator.
        folder = "/var/lib/pacemaker/cib"
        node.shell(
            f"cibadmin --empty >{folder}/cib.xml; export CIB_file={folder}/cib.xml;"
            "crm_attribute --name dc-deadtime --update 4s;"
            f"chown hacluster:haclient {folder}/cib.xml; chmod 600 {folder}/cib.xml"
        )
        node.run("ln", "-s", sys.prefix, "/opt/haclient")
        node.write("/usr/sbin/fence_lab", (_HERE / "fence_lab").read_text(), 0o755)
        page = blocks()
        for name in ("users", "agent"):
            node.run("env", f"PASSWORD={self._password}", "sh", "-euc", page[name])
        node.shell(f"echo {_CLIENT}:{self._password} >>/etc/broker-stub/users")

    def _start_daemons(self, node: Node) -> None:
        node.start("corosync", "-f", log="/var/log/corosync.out")
        wait_for(lambda: "Quorate" in node.run("corosync-quorumtool", check=False), "corosync")
        node.start("pacemakerd", "-f", log="/var/log/pacemakerd.out")

    def _hosts(self) -> str:
        return "".join(f"{self.lab.address(node.name)} {node.name}\n" for node in self.nodes)

    def _corosync(self) -> str:
        members = "".join(
            f"node {{\nname: {node.name}\nnodeid: {number}\nring0_addr: {self.lab.address(node.name)}\n}}\n"
            for number, node in enumerate(self.nodes, start=1)
        )
        two = "two_node: 1\n" if len(self.nodes) == 2 else ""
        return (
            "totem {\nversion: 2\ncluster_name: lab\ntransport: knet\n}\n"
            f"nodelist {{\n{members}}}\n"
            f"quorum {{\nprovider: corosync_votequorum\n{two}}}\n"
            "logging {\nto_syslog: no\nto_logfile: yes\nlogfile: /var/log/corosync.log\n}\n"
        )

    def configure(self, tool: str, *, fencing: bool) -> None:
        """Configure Pacemaker as on the page, with one of its tools."""
        page = blocks()
        node = self.nodes[0]
        node.shell(page["arbiter"])
        if fencing:
            node.shell("crm configure primitive fencing stonith:fence_lab op monitor interval=60s")
        else:
            node.shell(page[f"no fencing with {tool}"])
        commands = page[tool]
        if len(self.nodes) == 3:
            two, three = ",".join(f"{name}:{_PORT}" for name in NAMES[:2]), f",{NAMES[2]}:{_PORT}"
            assert two in commands
            commands = commands.replace(two, two + three).replace("clone-max=2", "clone-max=3")
        node.shell(commands)

    def logs(self, folder: Path) -> None:
        """Copy the nodes' logs, to investigate a failure."""
        for node in self.nodes:
            if node.is_on:
                shutil.copytree(node.path("/var/log"), folder / node.name, dirs_exist_ok=True, symlinks=True)


@contextmanager
def running(
    folder: Path, *, size: int, tool: str | None = "crmsh", fencing: bool = False
) -> Iterator[Cluster]:
    """Run a cluster with a primary and its ready backups; stop all its processes at the end of the block.

    :param tool: the tool whose commands of the page configure it; ``None`` to leave it unconfigured.
    """
    if reason := missing():
        pytest.fail(reason)
    shared = folder / "shared"
    shared.mkdir()
    # The agent's Python finds the broker of this checkout.
    os.environ.setdefault("PYTHONPATH", str(_HERE.parents[1]))
    with ExitStack() as stack:
        lab = stack.enter_context(Lab((*NAMES[:size], CLIENTS), seed=1))
        nodes = [
            Node(lab, name, folder / name, shared, (f"192.0.2.{number}/24",))
            for number, name in enumerate(NAMES[:size], start=1)
        ]
        cluster = Cluster(lab, nodes, secrets.token_hex(8))
        for node in nodes:
            stack.callback(node.power_off)
            node.power_on()
        cluster.fenced = stack.enter_context(PowerSwitch(shared, nodes)).fenced
        try:
            cluster.form()
            if tool is not None:
                cluster.configure(tool, fencing=fencing)
                cluster.wait_for_primary()
                cluster.wait_until_ready(size - 1)
                cluster.wait_until_idle()
            yield cluster
        finally:
            cluster.logs(folder)


def _now() -> datetime:
    # Pacemaker logs the machine's local time.
    return datetime.now()  # noqa: DTZ005


def elapsed(began: float) -> float:
    """Return the seconds since ``began``, rounded for printing."""
    return round(time.monotonic() - began, 1)
