"""Writes changes of queues and wiring into the store, and acknowledges commits to the guard.

Rules
-----
* Temporary queues, and bindings to them, are never written.
* The store deletes a binding together with its queue or its exchange.
* A message waits for the store from the moment it is enqueued (``Message.pending_acks``).
* The dequeues and acquisitions of one event-loop iteration are one operation.  No later message of the same
  queue is written before them.

The observer is not called for replicated or restored content: ``put`` writes one replicated message.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from broker_stub.amqp.message_format import PLAIN
from broker_stub.durability.guard import Guard
from broker_stub.queueing.annotations import stored, stored_prefix
from broker_stub.queueing.duplicate_detection import NO_MESSAGE
from broker_stub.queueing.exchanges import Binding, Exchange
from broker_stub.queueing.message import Message
from broker_stub.queueing.nodes import REPLICATE_PROPERTY
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.site_state import SITE_PROPERTY, SiteMode
from broker_stub.store import BindingRecord, ExchangeRecord, QueueRecord, Store


class MessageCopy(Protocol):
    """A message from another member or a site event, to be written unchanged."""

    @property
    def id(self) -> int:
        """The number of the message in its queue."""

    @property
    def delivery_count(self) -> int:
        """The delivery count."""

    @property
    def expires_at_ms(self) -> int:
        """The expiry time in milliseconds since the epoch, 0 for never."""

    @property
    def data(self) -> bytes:
        """The encoded message."""


class Persister:
    """The observer of every stored queue (``queue.Observer``, ``nodes.Watcher``)."""

    def __init__(self, store: Store, guard: Guard) -> None:
        self._store = store
        self._guard = guard
        self._keys: dict[str, int] = {}
        self._committing: deque[tuple[int, Message]] = deque()
        self._removed: dict[Queue, list[int]] = {}
        self._counted: dict[Queue, list[int]] = {}
        self._flush: asyncio.Handle | None = None
        store.on_committed(self._committed)

    # -- queues ---------------------------------------------------------------------------------

    def queue_added(self, queue: Queue) -> None:
        """Write a new queue, and observe it."""
        if not queue.temporary:
            self.queue_changed(queue)
            self.follow(queue)

    def queue_changed(self, queue: Queue) -> None:
        """Write the present declaration of a queue."""
        site = {} if queue.site is SiteMode.NONE else {SITE_PROPERTY: str(queue.site)}
        record = QueueRecord(
            identity=uuid.UUID(queue.identity),
            name=queue.name,
            replicate=queue.replicate,
            arguments={**queue.options.plain(), **site},
        )
        self._store.put_queue(record)

    def follow(self, queue: Queue) -> None:
        """Observe a queue that is in the store already."""
        self._keys[queue.identity] = self._store.queue_key(uuid.UUID(queue.identity))
        queue.guard = self._guard
        queue.observe(self)

    def queue_deleted(self, queue: Queue) -> None:
        """Delete a queue from the store."""
        key = self._keys.pop(queue.identity, None)
        if key is not None:
            queue.unobserve(self)
            self._removed.pop(queue, None)
            self._counted.pop(queue, None)
            self._store.delete_queue(key)

    # -- exchanges ------------------------------------------------------------------------------

    def exchange_added(self, exchange: Exchange) -> None:
        """Write a new exchange, or its new options."""
        record = ExchangeRecord(
            identity=uuid.UUID(exchange.identity),
            name=exchange.name,
            type=str(exchange.type),
            arguments={**exchange.options, REPLICATE_PROPERTY: str(exchange.replicate)},
        )
        self._store.put_exchange(record)

    def exchange_deleted(self, exchange: Exchange) -> None:
        """Delete an exchange from the store."""
        self._store.delete_exchange(uuid.UUID(exchange.identity))

    def binding_added(self, binding: Binding) -> None:
        """Write a new binding."""
        if not binding.queue.temporary:
            self._store.put_binding(_binding_record(binding))

    def binding_deleted(self, binding: Binding) -> None:
        """Delete a binding from the store."""
        if not binding.queue.temporary:
            self._store.delete_binding(_binding_record(binding))

    # -- messages -------------------------------------------------------------------------------

    def enqueued(self, queue: Queue, message: Message) -> None:
        """Write a new message."""
        if self._removed or self._counted:
            self.flush()
        sequence = self._store.put_message(
            self._keys[queue.identity],
            message.number,
            message.data,
            delivery_count=message.delivery_count,
            expires_at=message.expires_at_ms,
            duplicate_id=message.envelope.duplicate_id,
        )
        # If there is a listener, it changes the progress later and writes it itself.
        if queue.site_progress is not None and queue.site_listener is None:
            sequence = self.put_site_progress(queue)
        self._committing.append((sequence, message))
        message.pending_acks += 1  # last, when nothing can raise: this is certain to be acknowledged

    def withdrawn(self, queue: Queue, message: Message) -> None:
        """Delete a message that did not enter its queue, and its duplicate-detection id."""
        self.dequeued(queue, message)
        duplicate_id = message.envelope.duplicate_id
        if duplicate_id is not None:
            self.put_duplicates(queue, [(duplicate_id, NO_MESSAGE)])

    def progress_changed(self, queue: Queue, completion: Message) -> None:
        """Write the changed site progress of a queue, after all earlier changes of the queue."""
        if self._removed or self._counted:
            self.flush()
        completion.pending_acks += 1
        self._committing.append((self.put_site_progress(queue), completion))

    def completion(self) -> Message:
        """Return a message that completes when the store has committed everything so far."""
        completion = Message(0, b"", PLAIN)
        sequence = self.flush()
        if self._store.committed < sequence:
            completion.pending_acks += 1
            self._committing.append((sequence, completion))
        return completion

    def confirmed(self, queue: Queue, numbers: Sequence[int], owner: bytes, completion: Message) -> None:
        """Write the owner of accepted messages in the transaction that removes them."""
        sequence = self.flush()
        if numbers:
            sequence = self.put_confirmed(queue, [(owner, number) for number in numbers])
        if self._store.committed < sequence:
            completion.pending_acks += 1
            self._committing.append((sequence, completion))

    def put_confirmed(self, queue: Queue, pairs: Iterable[tuple[bytes, int]]) -> int:
        """Write the owners of accepted messages; return the store's sequence."""
        key = self._keys[queue.identity]
        return self._store.put_confirmed(key, pairs, keep=queue.confirmations.size)

    def clear_confirmed(self, queue: Queue) -> int:
        """Delete the owners of accepted messages of a queue."""
        return self._store.clear_confirmed(self._keys[queue.identity])

    def put_site_progress(self, queue: Queue) -> int:
        """Write the present site progress of a queue; return the store's sequence."""
        assert queue.site_progress is not None, "only a queue with site progress changes it"
        return self._store.put_site_progress(self._keys[queue.identity], queue.site_progress.plain())

    def put(self, queue: Queue, message: MessageCopy, duplicate_id: bytes | None) -> int:
        """Write a copied message; return the store's sequence."""
        if self._removed or self._counted:
            self.flush()
        return self._store.put_message(
            self._keys[queue.identity],
            message.id,
            message.data,
            delivery_count=message.delivery_count,
            expires_at=message.expires_at_ms or None,
            duplicate_id=duplicate_id,
        )

    def put_duplicates(self, queue: Queue, pairs: Iterable[tuple[bytes, int]]) -> int:
        """Write duplicate-detection ids."""
        return self._store.put_duplicates(self._keys[queue.identity], pairs)

    def clear_duplicates(self, queue: Queue) -> int:
        """Delete the duplicate-detection ids of a queue."""
        return self._store.clear_duplicates(self._keys[queue.identity])

    def dequeued(self, queue: Queue, message: Message) -> None:
        """Remove a message that has left, with the next ``flush``."""
        self._removed.setdefault(queue, []).append(message.number)
        self._schedule_flush()

    def acquired(self, queue: Queue, message: Message) -> None:
        """Count a delivery to a consumer."""
        self.counted(queue, (message.number,))

    def annotated(self, queue: Queue, message: Message) -> None:
        """Rewrite a message with new annotations; nothing waits for this, even on a full disk."""
        self.flush()
        self._store.rewrite_message(
            self._keys[queue.identity],
            message.number,
            message.data,
            prefix=stored_prefix(message.annotations),
            delivery_count=message.failover_delivery_count,
            expires_at=message.expires_at_ms,
        )

    def rewrite(self, queue: Queue, messages: Iterable[Message]) -> int:
        """Write messages of a queue again in their present state; return the store's sequence."""
        self.flush()
        for message in messages:
            self._store.put_message(
                self._keys[queue.identity],
                message.number,
                stored(message.data, message.annotations),
                delivery_count=message.failover_delivery_count,
                expires_at=message.expires_at_ms,
            )
        return self._store.sequence

    def counted(self, queue: Queue, numbers: Iterable[int]) -> None:
        """Count deliveries to consumers, here or at the primary, with the next ``flush``."""
        self._counted.setdefault(queue, []).extend(numbers)
        self._schedule_flush()

    def flush(self) -> int:
        """Hand the collected changes to the store; return its sequence."""
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        counted, self._counted = self._counted, {}
        removed, self._removed = self._removed, {}
        for queue, numbers in counted.items():
            self._store.count_delivery(self._keys[queue.identity], numbers)
        for queue, numbers in removed.items():
            self._store.remove_messages(self._keys[queue.identity], numbers)
        return self._store.sequence

    def _schedule_flush(self) -> None:
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_soon(self.flush)

    def _committed(self, sequence: int) -> None:
        committing, guard = self._committing, self._guard
        while committing and committing[0][0] <= sequence:
            guard.acknowledged(committing.popleft()[1])


def _binding_record(binding: Binding) -> BindingRecord:
    return BindingRecord(
        exchange=uuid.UUID(binding.exchange.identity),
        queue=uuid.UUID(binding.queue.identity),
        key=binding.key,
    )
