"""Three nodes of RabbitMQ 4 with quorum queues: every node serves, and each queue has a leader.

The nodes run in a Debian 13 in a folder (``tests.interop.rabbitmq``). A fault hits the node with the most
connections, or the leader of the consumer's queue: see ``Fault``.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from urllib.parse import quote

from haclient.cluster_url.endpoint import Endpoint
from tests.brokers.products import installed
from tests.brokers.products.group import Group, Member
from tests.brokers.products.rabbitmq import ACCOUNT, NodeProcess, RabbitMQCluster
from tests.brokers.topology import (
    ALARM_SECONDS,
    NO_QUORUM_SECONDS,
    ClusterError,
    Fault,
    Launch,
    Stored,
)
from tests.interop import rabbitmq
from tests.interop.rabbitmq import Node, RabbitMQ

_NODES = 3
_PROBE = "judge.probe"
# The limit of the judge's probe queue, which has no consumers.
_MAX_PROBES = 100
_MOST_MEMORY = "0.000001"
_USUAL_MEMORY = "0.6"


def missing() -> str:
    """Return why RabbitMQ 4 cannot be started here; empty if it can."""
    if not rabbitmq.installed(installed.DEBIAN_13):
        return "RabbitMQ 4 is not installed: scripts/setup_brokers.sh installs it"
    return "" if os.geteuid() == 0 else "RabbitMQ 4 runs by chroot, for which only root has the rights"


class RabbitMQ4(RabbitMQCluster):
    """See ``BrokerCluster``."""

    name = "rabbitmq4"
    faults = frozenset(
        {
            Fault.KILL,
            Fault.LEADER,
            Fault.STOP,
            Fault.PAUSE,
            Fault.BOTH_DOWN,
            Fault.DRAIN,
            Fault.CLOSE,
            Fault.ALARM,
            Fault.NO_QUORUM,
        }
    )

    def __init__(self, launch: Launch) -> None:
        super().__init__(RabbitMQ(_NODES, folder=launch.folder, root=installed.DEBIAN_13))
        self._nodes = {node.name: node for node in self._broker.nodes}
        members = [Member(NodeProcess(node), Endpoint(node.host, node.port)) for node in self._broker.nodes]
        self.group = Group(members, ACCOUNT, probe=address(_PROBE), sends=True)
        self._folder = launch.folder
        self._declared: list[str] = []
        self._ends: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """See ``BrokerCluster``."""
        await asyncio.to_thread(self._broker.start)
        await asyncio.to_thread(self._declare, _PROBE, {"x-max-length": _MAX_PROBES})
        self.version = await asyncio.to_thread(lambda: self._broker.version)
        await self.whole()

    async def stop(self) -> None:
        """See ``BrokerCluster``."""
        for task in self._ends:
            task.cancel()
        await super().stop()

    async def inject(self, fault: Fault) -> float:
        """See ``BrokerCluster``."""
        match fault:
            case Fault.BOTH_DOWN:
                return await self.group.inject(fault)
            case Fault.PAUSE:
                return await self._for_a_while(await self._busiest(), Node.pause, Node.resume)
            case Fault.KILL:
                return await self._do(Node.kill, await self._busiest())
            case Fault.LEADER:
                return await self._do(Node.kill, await self._leader())
            case Fault.STOP:
                return await self._do(Node.shut_down, await self._busiest())
            case Fault.DRAIN:
                return await self._drain(await self._busiest())
            case Fault.CLOSE:
                return await self._do(_close_all, await self._busiest())
            case Fault.ALARM:
                return await self._alarm()
            case Fault.NO_QUORUM:
                return await self._no_quorum()
            case _:
                raise ClusterError(f"{self.name} has no fault {fault}")

    async def whole(self) -> None:
        """See ``BrokerCluster``."""
        await asyncio.gather(*self._ends)
        await self.group.whole()
        await self.group.until(self._complete, "node in every queue")

    def queue(self, name: str) -> str:
        """See ``BrokerCluster``. Declares the queue."""
        self._declare(name, {})
        return address(name)

    async def drain(self, name: str) -> list[Stored]:
        """See ``BrokerCluster``."""
        return await self.group.drain(address(name))

    # -- state -------------------------------------------------------------------------------------

    async def _busiest(self) -> Node:
        """Return the node with the most client connections; without any, the leader of the queue."""
        ports = {str(node.port): node for node in self._broker.nodes}
        rows = (await self._ask("list_connections", "port")).split()
        at = Counter(port for port in rows if port in ports)
        if not at:
            return await self._leader()
        return ports[at.most_common(1)[0][0]]

    async def _leader(self) -> Node:
        """Return the node that leads the queue declared first after the probe."""
        wanted = self._declared[1] if len(self._declared) > 1 else _PROBE
        for row in (await self._ask("list_queues", "name", "leader")).splitlines():
            name, _, leader = row.partition("\t")
            if name == wanted and leader in self._nodes:
                return self._nodes[leader]
        raise self.group.failed(f"{wanted} has no leader")

    async def _complete(self) -> bool:
        """Return whether every queue has all of its members online."""
        try:
            rows = (await self._ask("list_queues", "name", "online")).splitlines()
        except (AssertionError, OSError):  # a node that is starting answers no command
            return False
        online = dict(row.split("\t", 1) for row in rows if "\t" in row)
        return all(len(re.findall(r"\w+@\w+", online.get(name, ""))) == _NODES for name in self._declared)

    async def _ask(self, *arguments: str) -> str:
        return await asyncio.to_thread(self._control, *arguments)

    def _control(self, *arguments: str) -> str:
        running = next((node for node in self._broker.nodes if node.running), self._broker.nodes[0])
        return running.control(*arguments)

    def _declare(self, name: str, arguments: dict[str, object]) -> None:
        """Declare a quorum queue at one node, which becomes its leader."""
        queue = {
            "name": name,
            "vhost": "/",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-queue-type": "quorum", "x-delivery-limit": -1, **arguments},
        }
        definitions = self._folder / "queue.json"
        definitions.write_text(json.dumps({"queues": [queue]}))
        self._control("import_definitions", str(definitions))
        self._declared.append(name)

    # -- faults ---------------------------------------------------------------------------------

    async def _do(self, what: Callable[[Node], None], node: Node) -> float:
        began = time.monotonic()
        await asyncio.to_thread(what, node)
        return began

    async def _for_a_while(
        self, node: Node, what: Callable[[Node], None], undo: Callable[[Node], None], seconds: float = 10.0
    ) -> float:
        began = time.monotonic()
        what(node)
        self._later(seconds, lambda: asyncio.to_thread(undo, node))
        return began

    async def _drain(self, node: Node) -> float:
        def drain() -> None:
            node.control("drain", program="rabbitmq-upgrade")

        def revive() -> None:
            node.control("revive", program="rabbitmq-upgrade")

        began = time.monotonic()
        await asyncio.to_thread(drain)
        self._later(0.0, lambda: asyncio.to_thread(revive))
        return began

    async def _alarm(self) -> float:
        def set_all(watermark: str) -> None:
            for node in self._broker.nodes:
                node.control("set_vm_memory_high_watermark", watermark)

        began = time.monotonic()
        await asyncio.to_thread(set_all, _MOST_MEMORY)
        self._later(ALARM_SECONDS, lambda: asyncio.to_thread(set_all, _USUAL_MEMORY))
        return began

    async def _no_quorum(self) -> float:
        kept = await self._busiest()
        away = [node for node in self._broker.nodes if node is not kept]
        began = time.monotonic()
        for node in away:
            node.kill()

        def start() -> None:
            for node in away:
                node.launch()

        self._later(NO_QUORUM_SECONDS, lambda: asyncio.to_thread(start))
        return began

    def _later(self, seconds: float, what: Callable[[], Awaitable[None]]) -> None:
        async def end() -> None:
            try:
                await asyncio.sleep(seconds)
            finally:
                await what()

        task = asyncio.create_task(end())
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)


def address(name: str) -> str:
    """Return the AMQP 1.0 address of a queue."""
    return f"/queues/{quote(name, safe='')}"


def _close_all(node: Node) -> None:
    node.control("close_all_connections", "an operator closes all")
