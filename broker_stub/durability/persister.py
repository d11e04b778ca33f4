"""Writes what happens to queues and wiring into the store, and acknowledges to the guard what is durable.

Rules
-----
* A temporary queue is never written, nor is a binding to one.
* The store deletes a binding together with its queue or its exchange.
* A message waits for the store from the moment it is enqueued (``Message.pending_acks``).
* Dequeues and acquisitions of one iteration of the event loop are one operation, but never overtaken
  by a later message of the same queue.

Replicated or restored content does not pass the observer: ``put`` writes one replicated message.
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
    """A message that another member or a site event has, to be written as it is there."""

    @property
    def id(self) -> int:
        """The number that it has in its queue."""

    @property
    def delivery_count(self) -> int:
        """How often it was delivered."""

    @property
    def expires_at_ms(self) -> int:
        """Milliseconds since the epoch, 0 for never."""

    @property
    def data(self) -> bytes:
        """The encoded message."""


class Persister:
    """The observer of every queue that is kept (``queue.Observer``, ``nodes.Watcher``)."""

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
        """A queue is new: write it down, and follow it."""
        if not queue.temporary:
            self.queue_changed(queue)
            self.follow(queue)

    def queue_changed(self, queue: Queue) -> None:
        """Write a queue down as it is declared now."""
        site = {} if queue.site is SiteMode.NONE else {SITE_PROPERTY: str(queue.site)}
        record = QueueRecord(
            identity=uuid.UUID(queue.identity),
            name=queue.name,
            replicate=queue.replicate,
            arguments={**queue.options.plain(), **site},
        )
        self._store.put_queue(record)

    def follow(self, queue: Queue) -> None:
        """Keep a queue that the store has already."""
        self._keys[queue.identity] = self._store.queue_key(uuid.UUID(queue.identity))
        queue.guard = self._guard
        queue.observe(self)

    def queue_deleted(self, queue: Queue) -> None:
        """A queue is gone."""
        key = self._keys.pop(queue.identity, None)
        if key is not None:
            queue.unobserve(self)
            self._removed.pop(queue, None)
            self._counted.pop(queue, None)
            self._store.delete_queue(key)

    # -- exchanges ------------------------------------------------------------------------------

    def exchange_added(self, exchange: Exchange) -> None:
        """An exchange is new, or its options are."""
        record = ExchangeRecord(
            identity=uuid.UUID(exchange.identity),
            name=exchange.name,
            type=str(exchange.type),
            arguments={**exchange.options, REPLICATE_PROPERTY: str(exchange.replicate)},
        )
        self._store.put_exchange(record)

    def exchange_deleted(self, exchange: Exchange) -> None:
        """An exchange is gone."""
        self._store.delete_exchange(uuid.UUID(exchange.identity))

    def binding_added(self, binding: Binding) -> None:
        """A binding is new."""
        if not binding.queue.temporary:
            self._store.put_binding(_binding_record(binding))

    def binding_deleted(self, binding: Binding) -> None:
        """A binding is gone."""
        if not binding.queue.temporary:
            self._store.delete_binding(_binding_record(binding))

    # -- messages -------------------------------------------------------------------------------

    def enqueued(self, queue: Queue, message: Message) -> None:
        """A new message."""
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
        # Where there is a listener, it changes the progress, and writes it then.
        if queue.site_progress is not None and queue.site_listener is None:
            sequence = self.put_site_progress(queue)
        self._committing.append((sequence, message))
        message.pending_acks += 1  # last: what is counted here is acknowledged in any case

    def withdrawn(self, queue: Queue, message: Message) -> None:
        """A message is not in its queue after all: the store has neither the message nor its id."""
        self.dequeued(queue, message)
        duplicate_id = message.envelope.duplicate_id
        if duplicate_id is not None:
            self.put_duplicates(queue, [(duplicate_id, NO_MESSAGE)])

    def progress_changed(self, queue: Queue, completion: Message) -> None:
        """The site progress of a queue has changed, after everything that happened to it before."""
        if self._removed or self._counted:
            self.flush()
        completion.pending_acks += 1
        self._committing.append((self.put_site_progress(queue), completion))

    def completion(self) -> Message:
        """Completes when the store has all that it was given so far."""
        completion = Message(0, b"", PLAIN)
        sequence = self.flush()
        if self._store.committed < sequence:
            completion.pending_acks += 1
            self._committing.append((sequence, completion))
        return completion

    def confirmed(self, queue: Queue, numbers: Sequence[int], owner: bytes, completion: Message) -> None:
        """Messages that have left were accepted: write who did, in the transaction that removes them."""
        sequence = self.flush()
        if numbers:
            sequence = self.put_confirmed(queue, [(owner, number) for number in numbers])
        if self._store.committed < sequence:
            completion.pending_acks += 1
            self._committing.append((sequence, completion))

    def put_confirmed(self, queue: Queue, pairs: Iterable[tuple[bytes, int]]) -> int:
        """Write who accepted messages; the store's sequence of it."""
        key = self._keys[queue.identity]
        return self._store.put_confirmed(key, pairs, keep=queue.confirmations.size)

    def clear_confirmed(self, queue: Queue) -> int:
        """Forget who accepted messages of a queue."""
        return self._store.clear_confirmed(self._keys[queue.identity])

    def put_site_progress(self, queue: Queue) -> int:
        """Write the site progress of a queue as it is now; the store's sequence of it."""
        assert queue.site_progress is not None, "only a queue with site progress changes it"
        return self._store.put_site_progress(self._keys[queue.identity], queue.site_progress.plain())

    def put(self, queue: Queue, message: MessageCopy, duplicate_id: bytes | None) -> int:
        """Write a copied message; the store's sequence of it."""
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
        """Write duplicate-detection ids that the primary remembers."""
        return self._store.put_duplicates(self._keys[queue.identity], pairs)

    def clear_duplicates(self, queue: Queue) -> int:
        """Forget the duplicate-detection ids of a queue."""
        return self._store.clear_duplicates(self._keys[queue.identity])

    def dequeued(self, queue: Queue, message: Message) -> None:
        """A message has left."""
        self._removed.setdefault(queue, []).append(message.number)
        self._later()

    def acquired(self, queue: Queue, message: Message) -> None:
        """A message was given to a consumer."""
        self.counted(queue, (message.number,))

    def annotated(self, queue: Queue, message: Message) -> None:
        """A consumer has added annotations.  Nobody waits until they are written, on a full disk either."""
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
        """Write messages anew that a queue has, as they are now; the store's sequence of it."""
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
        """Messages were given to consumers, here or at the primary."""
        self._counted.setdefault(queue, []).extend(numbers)
        self._later()

    def flush(self) -> int:
        """Hand what was collected to the store; its sequence then."""
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

    def _later(self) -> None:
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
