"""One node of RabbitMQ 4, for tests that need no cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.brokers.products import installed
from tests.interop.rabbitmq import RabbitMQ


class OneNode:
    """A running node."""

    def __init__(self, rabbitmq: RabbitMQ) -> None:
        self.url = rabbitmq.url
        self.node = rabbitmq.nodes[0]
        self._declared = 0

    def declare(self, kind: str, **arguments: object) -> str:
        """Declare a queue of this kind, and return its name."""
        self._declared += 1
        queue = {
            "name": f"q{self._declared}",
            "vhost": "/",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-queue-type": kind, **arguments},
        }
        definitions = self.node.folder.parent / "queues.json"
        definitions.write_text(json.dumps({"queues": [queue]}))
        self.node.control("import_definitions", str(definitions))
        return str(queue["name"])


@contextmanager
def one_node() -> Iterator[OneNode]:
    """Start a node, and stop it at the end."""
    with RabbitMQ(root=installed.DEBIAN_13) as rabbitmq:
        yield OneNode(rabbitmq)
