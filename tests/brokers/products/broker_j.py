"""Broker-J on this machine: three nodes with BDB JE's replication, which elect a master by majority.

A replica has an AMQP port but no virtual host: it refuses the Open with ``amqp:not-found``. REST moves the
mastership and shows each node's role.

Source: the broker's own documentation, chapters "High Availability" and "REST API".
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
from pathlib import Path
from typing import Any

from haclient.cluster_url.endpoint import Endpoint
from haclient.testing.peers.listening import loopback_host
from tests.brokers.bare import Account
from tests.brokers.products import installed
from tests.brokers.products.group import COMMON, Group, Member
from tests.brokers.products.member_process import MemberProcess
from tests.brokers.topology import Fault, Launch, Served, Stored
from tests.dnsmasq import free_port

_USER, _PASSWORD = "guest", "guest"
_HOST = "group"
"""The name of the group and of its virtual host; clients send it as the ``hostname`` of their Open."""
_SIZE = 3
_JAVA = ("-Xms128M", "-Xmx384M", "-XX:MaxDirectMemorySize=256M", "-XX:+UseSerialGC")
_REST_SECONDS = 10.0
# Addresses are created on first use, as durable queues.
QUEUES = {
    "pattern": ".*",
    "nodeType": "queue",
    "attributes": {},
    "createdOnPublish": "true",
    "createdOnConsume": "true",
}


class BrokerJ:
    """See ``BrokerCluster``.

    :param guests: ``url`` names a second port of each node, which admits clients without a user name or a
        virtual host.
    """

    name = "broker-j"
    version = installed.BROKER_J_VERSION
    detects_duplicates = False

    def __init__(self, launch: Launch, *, guests: bool = False) -> None:
        self._launch = launch
        self._guests = guests
        self._nodes = [_Node(number, launch.folder) for number in range(_SIZE)]
        self.members = [node.member for node in self._nodes]
        self.group = Group(self.members, Account(_USER, _PASSWORD, hostname=_HOST))

    @property
    def faults(self) -> frozenset[Fault]:
        """See ``BrokerCluster``."""
        return COMMON | {Fault.MOVE}

    @property
    def url(self) -> str:
        """See ``BrokerCluster``."""
        if self._guests:
            return f"amqp://{','.join(node.guests.authority for node in self._nodes)}"
        return f"amqp://{_USER}:{_PASSWORD}@{self.group.addresses}?vhost={_HOST}"

    async def start(self) -> None:
        """See ``BrokerCluster``."""
        await self.group.open_routes(self._launch.fault)
        for node in self._nodes:
            node.configure(self._nodes)
        # The first node creates the group, which the others join.
        self.members[0].process.start()
        await self.group.primary()
        await self.whole()

    async def stop(self) -> None:
        """See ``BrokerCluster``."""
        await self.group.stop()

    async def inject(self, fault: Fault) -> float:
        """See ``BrokerCluster``."""
        await self.whole()
        if fault is not Fault.MOVE:
            return await self.group.inject(fault)
        primary = await self.group.primary()
        other = next(node for node in self._nodes if node.member is not primary)
        await other.take_mastership()
        return await self.group.refusing(primary)

    async def serving(self) -> Served:
        """See ``BrokerCluster``."""
        return await self.group.serving()

    async def whole(self) -> None:
        """See ``BrokerCluster``."""
        await self.group.whole()
        await self.group.until(self._has_all_roles, "group of a master and replicas")

    def queue(self, name: str) -> str:
        """See ``BrokerCluster``."""
        return name

    async def drain(self, name: str) -> list[Stored]:
        """See ``BrokerCluster``."""
        return await self.group.drain(name)

    async def _has_all_roles(self) -> bool:
        roles = await asyncio.gather(*(node.role() for node in self._nodes))
        return sorted(roles) == ["MASTER", *["REPLICA"] * (_SIZE - 1)]


class _Node:
    """One node: its configuration, and its role by REST."""

    def __init__(self, number: int, folder: Path) -> None:
        self._name = f"node-{number}"
        self._folder = folder / self._name
        self._folder.mkdir(parents=True)
        host = loopback_host()
        self._http = Endpoint(host, free_port(host))
        self._replication = Endpoint(host, free_port(host))
        self.guests = Endpoint(host, free_port(host))
        work, lib = self._folder, installed.BROKER_J / "lib"
        configuration = ("-icp", str(work / "initial.json"), "-sp", str(work / "config.json"))
        main = ("-cp", f"{lib}/*", "org.apache.qpid.server.Main", *configuration)
        # The environment must not configure the node.
        command = ("java", *_JAVA, f"-DQPID_WORK={work}", f"-Djava.io.tmpdir={work}", *main)
        process = MemberProcess(f"broker-j {self._name}", command, work / "log")
        self.member = Member(process, Endpoint(host, free_port(host)))

    def configure(self, nodes: list[_Node]) -> None:
        """Write the configuration for the first start; afterwards the node keeps its own."""
        (self._folder / "initial.json").write_text(json.dumps(self._configuration(nodes), indent=1))

    async def take_mastership(self) -> None:
        """Make the group elect this node."""
        await self._ask("PUT", {"role": "MASTER"})

    async def role(self) -> str:
        """Return MASTER, REPLICA, or another value during a transition."""
        if not self.member.process.running:
            return "gone"
        try:
            found = await self._ask("GET")
        except (OSError, http.client.HTTPException, ValueError) as error:
            return repr(error)
        return str(found.get("role"))

    async def _ask(self, method: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return await asyncio.to_thread(self._ask_and_wait, method, body)

    def _ask_and_wait(self, method: str, body: dict[str, Any] | None) -> dict[str, Any]:
        connection = http.client.HTTPConnection(self._http.host, self._http.port, timeout=_REST_SECONDS)
        account = base64.b64encode(f"{_USER}:{_PASSWORD}".encode()).decode()
        headers = {"Authorization": f"Basic {account}", "Content-Type": "application/json"}
        try:
            path = f"/api/latest/virtualhostnode/{self._name}"
            connection.request(method, path, json.dumps(body) if body else None, headers)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise OSError(f"{method} {path}: {response.status} {text[:300]}")
        found = json.loads(text) if text else {}
        return found[0] if isinstance(found, list) else found

    def _configuration(self, nodes: list[_Node]) -> dict[str, Any]:
        return {
            "name": self._name,
            "modelVersion": "8.0",
            "authenticationproviders": [
                {
                    "name": "plain",
                    "type": "Plain",
                    "secureOnlyMechanisms": [],
                    "users": [{"name": _USER, "type": "managed", "password": _PASSWORD}],
                },
                {"name": "anonymous", "type": "Anonymous"},
            ],
            "ports": [
                self._port("AMQP", self.member.endpoint, "AMQP_1_0")
                | {"virtualhostaliases": [{"name": "nameAlias", "type": "nameAlias"}]},
                self._port("guests", self.guests, "AMQP_1_0")
                | {
                    "authenticationProvider": "anonymous",
                    "virtualhostaliases": [
                        {
                            "name": "any",
                            "type": "patternMatchingAlias",
                            "pattern": ".*",
                            "virtualHostNode": self._name,
                        }
                    ],
                },
                self._port("HTTP", self._http, "HTTP"),
            ],
            "virtualhostnodes": [self._replicated(nodes)],
            "plugins": [
                {
                    "type": "MANAGEMENT-HTTP",
                    "name": "httpManagement",
                    "httpBasicAuthenticationEnabled": True,
                }
            ],
            "brokerloggers": [
                {
                    "name": "console",
                    "type": "Console",
                    "brokerloginclusionrules": [
                        {"name": "all", "type": "NameAndLevel", "level": "WARN", "loggerName": "ROOT"},
                        {"name": "ha", "type": "NameAndLevel", "level": "INFO", "loggerName": _HA_LOG},
                    ],
                }
            ],
        }

    @staticmethod
    def _port(name: str, endpoint: Endpoint, protocol: str) -> dict[str, Any]:
        return {
            "name": name,
            "port": endpoint.port,
            "bindingAddress": endpoint.host,
            "authenticationProvider": "plain",
            "protocols": [protocol],
        }

    def _replicated(self, nodes: list[_Node]) -> dict[str, Any]:
        first = nodes[0]
        return {
            "name": self._name,
            "type": "BDB_HA",
            "groupName": _HOST,
            "address": self._replication.authority,
            "helperAddress": first._replication.authority,
            "helperNodeName": first._name,
            "permittedNodes": [node._replication.authority for node in nodes],
            "virtualHostInitialConfiguration": json.dumps(
                {"type": "BDB_HA", "nodeAutoCreationPolicies": [QUEUES]}
            ),
        }


_HA_LOG = "qpid.message.highavailability.*"
