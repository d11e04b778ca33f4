"""One RabbitMQ node with its AMQP 1.0 plugin, as in ``tests/interop``.

Queues are declared durable before use: ``/queue/NAME`` would create a transient one, and
``/amq/queue/NAME`` finds the existing one.
"""

from __future__ import annotations

import asyncio
import threading

from haclient.cluster_url.endpoint import Endpoint
from tests.brokers import bare
from tests.brokers.products.group import Group, Member
from tests.brokers.topology import Fault, Launch, Served, Stored
from tests.interop.rabbitmq import Node, RabbitMQ, installed

ACCOUNT = bare.Account("guest", "guest")
_PROBE = "/queue/judge.probe"


def missing() -> str:
    """Return why RabbitMQ cannot be started here; empty if it can."""
    return "" if installed() else "RabbitMQ is not installed: scripts/setup_brokers.sh installs it"


class RabbitMQCluster:
    """The part of ``BrokerCluster`` that versions 3 and 4 share.

    :ivar group: its nodes; made by the subclass.
    """

    detects_duplicates = False
    group: Group

    def __init__(self, broker: RabbitMQ) -> None:
        self._broker = broker
        self.version = ""

    @property
    def url(self) -> str:
        """See ``BrokerCluster``."""
        return f"amqp://guest:guest@{self.group.addresses}"

    async def stop(self) -> None:
        """See ``BrokerCluster``."""
        try:
            await self.group.stop()
        finally:
            await asyncio.to_thread(self._broker.stop)

    async def serving(self) -> Served:
        """See ``BrokerCluster``."""
        return await self.group.serving()


class OneRabbitMQ(RabbitMQCluster):
    """See ``BrokerCluster``. ``tests/interop`` has a cluster with a mirrored queue."""

    name = "rabbitmq"
    faults = frozenset({Fault.KILL, Fault.STOP, Fault.PAUSE, Fault.BOTH_DOWN})

    def __init__(self, launch: Launch) -> None:
        super().__init__(RabbitMQ(folder=launch.folder))
        (node,) = self._broker.nodes
        member = Member(NodeProcess(node), Endpoint(node.host, node.port))
        self.group = Group([member], ACCOUNT, probe=_PROBE, alone=True)

    async def start(self) -> None:
        """See ``BrokerCluster``."""
        await asyncio.to_thread(self._broker.start)
        await self.whole()
        self.version = await asyncio.to_thread(lambda: self._broker.version)

    async def inject(self, fault: Fault) -> float:
        """See ``BrokerCluster``."""
        return await self.group.inject(fault)

    async def whole(self) -> None:
        """See ``BrokerCluster``."""
        await self.group.whole()

    def queue(self, name: str) -> str:
        """See ``BrokerCluster``. Declares the queue while the node runs."""
        (member,) = self.group.members
        asking = bare.refusal(member.endpoint, ACCOUNT, f"/queue/{name}")
        refused: list[str] = []
        thread = threading.Thread(target=lambda: refused.append(asyncio.run(asking)))
        thread.start()
        thread.join()
        if refused != [""]:
            raise self.group.failed(f"no queue {name}: {refused}")
        return f"/amq/queue/{name}"

    async def drain(self, name: str) -> list[Stored]:
        """See ``BrokerCluster``."""
        return await self.group.drain(f"/amq/queue/{name}")


class NodeProcess:
    """A node as a process of a group."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.name = node.name

    @property
    def running(self) -> bool:
        return self._node.running

    def start(self) -> None:
        self._node.launch()

    def send_kill(self) -> None:
        self._node.kill()

    async def kill(self) -> None:
        self._node.kill()

    async def stop(self) -> None:
        await asyncio.to_thread(self._node.shut_down)

    def pause(self) -> None:
        self._node.pause()

    def resume(self) -> None:
        self._node.resume()

    def tail(self) -> str:
        return self._node.tail()
