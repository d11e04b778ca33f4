"""The queues of a broker, by address.  No I/O.

Rules
-----
* An address that is not there is made when somebody attaches to it, unless the broker was told
  not to.
* Addresses that start with ``$`` are the broker's own; none of them is a queue.
* A temporary queue belongs to one connection: only that one may take from it, anyone may send
  to it, and it ends with the connection.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from broker_stub.messages import DEFAULT_LIMITS, QueueLimits, Replicate
from broker_stub.queues import Queue

logger = logging.getLogger("broker_stub.addresses")

TEMPORARY_PREFIX = "temporary/"
REPLICATE_PROPERTY = "x-qpid-replicate"
# Long enough for any name a person gives; the name is kept in logs and in status answers.
_MAX_NAME = 1024


class AddressRefusedError(Exception):
    """An address that cannot be used, with the AMQP condition that says why."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition
        self.description = description


class Watcher(Protocol):
    """Learns of queues that are made and deleted: the store and the replicas."""

    def queue_added(self, queue: Queue) -> None:
        """A queue is new."""

    def queue_deleted(self, queue: Queue) -> None:
        """A queue is gone, with what was in it."""


class Addresses:
    """Every queue of the broker."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        limits: QueueLimits = DEFAULT_LIMITS,
        auto_create: bool = True,
        replicate: Replicate = Replicate.ALL,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._auto_create = auto_create
        self._replicate = replicate
        self._now_ms = now_ms
        self._queues: dict[str, Queue] = {}
        self._by_identity: dict[str, Queue] = {}
        self.watcher: Watcher | None = None

    def __iter__(self) -> Iterator[Queue]:
        return iter(tuple(self._queues.values()))

    def queue(self, name: str | None, *, replicate: str | None = None) -> Queue:
        """The queue of an address.

        :param replicate: what ``x-qpid-replicate`` says, for a queue that is made now.
        :raises AddressRefusedError: when there is none and none may be made.
        """
        mode = self._mode(replicate)
        queue = self._queues.get(name or "")
        if queue is not None:
            return queue
        if not name or len(name) > _MAX_NAME:
            raise AddressRefusedError("amqp:invalid-field", f"an address has 1 to {_MAX_NAME} characters")
        if not self._auto_create or name.startswith(("$", TEMPORARY_PREFIX)):
            raise AddressRefusedError("amqp:not-found", f"there is no address {name!r}")
        return self.declare(name, replicate=mode)

    def declare(self, name: str, *, replicate: Replicate | None = None, identity: str | None = None) -> Queue:
        """Make a queue of that name; one of another identity is replaced."""
        former = self._queues.get(name)
        if former is not None:
            self.delete(former)
        mode = self._replicate if replicate is None else replicate
        queue = Queue(
            name,
            self._clock,
            limits=self._limits,
            identity=identity,
            replicate=mode,
            now_ms=self._now_ms,
        )
        return self._add(queue)

    def by_identity(self, identity: str) -> Queue | None:
        """The queue of an identity."""
        return self._by_identity.get(identity)

    def delete(self, queue: Queue) -> None:
        """Delete a queue with what is in it."""
        queue.deleted = True
        if self._queues.get(queue.name) is queue:
            del self._queues[queue.name]
        self._by_identity.pop(queue.identity, None)
        if self.watcher is not None:
            self.watcher.queue_deleted(queue)

    def _mode(self, text: str | None) -> Replicate | None:
        if text is None:
            return None
        try:
            return Replicate(text)
        except ValueError:
            choices = ", ".join(Replicate)
            raise AddressRefusedError(
                "amqp:invalid-field", f"{REPLICATE_PROPERTY} is {choices}, and not {text!r}"
            ) from None

    def temporary(self, owner: object) -> Queue:
        """A new queue with a name of its own, for one connection."""
        name = f"{TEMPORARY_PREFIX}{uuid.uuid4()}"
        return self._add(Queue(name, self._clock, limits=self._limits, exclusive_to=owner, temporary=True))

    def end_of(self, owner: object, queues: set[Queue]) -> None:
        """A connection is over, and the temporary queues it had are with it."""
        for queue in queues:
            if queue.exclusive_to is owner:
                self.delete(queue)

    def expire(self) -> None:
        """Drop what is too old in every queue."""
        for queue in self._queues.values():
            count = queue.expire()
            if count:
                logger.debug("%s: %d messages expired", queue.name, count)

    def status(self) -> list[dict[str, Any]]:
        """Every queue's depth and counters."""
        return [queue.status() for queue in self._queues.values()]

    def _add(self, queue: Queue) -> Queue:
        self._queues[queue.name] = queue
        self._by_identity[queue.identity] = queue
        if self.watcher is not None:
            self.watcher.queue_added(queue)
        return queue
