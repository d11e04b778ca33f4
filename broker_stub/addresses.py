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
from collections.abc import Callable
from typing import Any

from broker_stub.messages import DEFAULT_LIMITS, QueueLimits
from broker_stub.queues import Queue

logger = logging.getLogger("broker_stub.addresses")

TEMPORARY_PREFIX = "temporary/"
# Long enough for any name a person gives; the name is kept in logs and in status answers.
_MAX_NAME = 1024


class AddressRefusedError(Exception):
    """An address that cannot be used, with the AMQP condition that says why."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition
        self.description = description


class Addresses:
    """Every queue of the broker."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        limits: QueueLimits = DEFAULT_LIMITS,
        auto_create: bool = True,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._auto_create = auto_create
        self._queues: dict[str, Queue] = {}

    def queue(self, name: str | None) -> Queue:
        """The queue of an address.

        :raises AddressRefusedError: when there is none and none may be made.
        """
        queue = self._queues.get(name or "")
        if queue is not None:
            return queue
        if not name or len(name) > _MAX_NAME:
            raise AddressRefusedError("amqp:invalid-field", f"an address has 1 to {_MAX_NAME} characters")
        if not self._auto_create or name.startswith(("$", TEMPORARY_PREFIX)):
            raise AddressRefusedError("amqp:not-found", f"there is no address {name!r}")
        return self._add(Queue(name, self._clock, limits=self._limits))

    def temporary(self, owner: object) -> Queue:
        """A new queue with a name of its own, for one connection."""
        name = f"{TEMPORARY_PREFIX}{uuid.uuid4()}"
        return self._add(Queue(name, self._clock, limits=self._limits, exclusive_to=owner, temporary=True))

    def end_of(self, owner: object, queues: set[Queue]) -> None:
        """A connection is over, and the temporary queues it had are with it."""
        for queue in queues:
            if queue.exclusive_to is owner:
                queue.deleted = True
                self._queues.pop(queue.name, None)

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
        return queue
