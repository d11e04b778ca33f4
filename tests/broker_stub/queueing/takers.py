"""Consumers without sockets, for tests of the delivery of a queue."""

from __future__ import annotations

from typing import Any

import proton

from broker_stub.queueing.message import Consumer, Message, Selects
from broker_stub.queueing.queue import Queue


class Taker:
    """A consumer with a number of credits; it keeps its messages."""

    def __init__(
        self,
        queue: Queue,
        credit: int = 1000,
        *,
        selects: Selects | None = None,
        browsing: bool = False,
        settles: bool = False,
    ) -> None:
        self.queue = queue
        self.credit = credit
        self.got: list[Message] = []
        self.consumer: Consumer = queue.subscribe(self, browsing=browsing, settles=settles, selects=selects)
        queue.ready(self.consumer)

    def capacity(self) -> int:
        return self.credit

    def deliver(self, message: Message) -> None:
        assert self.credit > 0, "delivered without credit"
        self.credit -= 1
        self.got.append(message)

    def grant(self, credit: int) -> None:
        self.credit += credit
        self.queue.ready(self.consumer)

    def queue_deleted(self) -> None: ...

    def idle(self) -> None: ...

    @property
    def numbers(self) -> list[int]:
        return [message.number for message in self.got]

    @property
    def contents(self) -> list[bytes]:
        """Return its messages as encoded in the queue."""
        return [message.data for message in self.got]

    @property
    def bodies(self) -> list[Any]:
        """Decode the bodies of AMQP messages."""
        return [decoded(message.data).body for message in self.got]


def decoded(data: bytes) -> proton.Message:
    message = proton.Message()
    message.decode(data)
    return message
