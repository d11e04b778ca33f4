"""Stores and replicates every change of the wiring: queues, exchanges and bindings.

Rules
-----
* The persister writes every change, made here or received from the primary.
* A primary sends each change to its replicas in the event-loop iteration in which it is made.  From then on,
  messages of a new queue wait for the replicas.  So none is settled before the replicas have the queue.
* Replicas get a queue or an exchange unless its ``x-qpid-replicate`` is ``none``.  They get a binding if they
  have its queue and its exchange.  Temporary queues are never sent or written.
"""

from __future__ import annotations

from collections.abc import Callable

from broker_stub.durability.persister import Persister
from broker_stub.queueing.exchanges import Binding, Exchange
from broker_stub.queueing.queue import Queue
from broker_stub.replication import definitions
from broker_stub.replication.replica_set import ReplicaSet


class Wiring:
    """The watcher of a member's addresses (``nodes.Watcher``).

    :param replica_set: returns the replicas, while the member is primary.
    """

    def __init__(self, persister: Persister, replica_set: Callable[[], ReplicaSet | None]) -> None:
        self._persister = persister
        self._replica_set = replica_set

    def queue_added(self, queue: Queue) -> None:
        """Store and replicate a new queue."""
        self._persister.queue_added(queue)
        replica_set = self._replica_set()
        if replica_set is None or queue.temporary:
            return
        queue.start_generation(replica_set.held.generation)
        if definitions.is_on_backups(queue):
            replica_set.wiring_changed("queue", definitions.queue_entry(queue))
        if queue.is_replicated:
            replica_set.queue_added(queue)

    def queue_changed(self, queue: Queue) -> None:
        """Store and replicate a queue's new site mode."""
        self._persister.queue_changed(queue)
        replica_set = self._replica_set()
        if replica_set is not None and definitions.is_on_backups(queue):
            replica_set.wiring_changed("queue", definitions.queue_entry(queue))

    def queue_deleted(self, queue: Queue) -> None:
        """Store and replicate a deletion."""
        self._persister.queue_deleted(queue)
        replica_set = self._replica_set()
        if replica_set is not None and not queue.temporary:
            replica_set.queue_removed(queue)

    def exchange_added(self, exchange: Exchange) -> None:
        """Store and replicate a new or changed exchange."""
        self._persister.exchange_added(exchange)
        replica_set = self._replica_set()
        if replica_set is not None and definitions.is_on_backups(exchange):
            replica_set.wiring_changed("exchange", definitions.exchange_entry(exchange))

    def exchange_deleted(self, exchange: Exchange) -> None:
        """Store and replicate a deletion."""
        self._persister.exchange_deleted(exchange)
        replica_set = self._replica_set()
        if replica_set is not None:
            replica_set.wiring_changed("exchange-deleted", {"identity": exchange.identity})

    def binding_added(self, binding: Binding) -> None:
        """Store and replicate a new binding."""
        self._persister.binding_added(binding)
        self._binding_changed("binding", binding)

    def binding_deleted(self, binding: Binding) -> None:
        """Store and replicate a deletion."""
        self._persister.binding_deleted(binding)
        self._binding_changed("binding-deleted", binding)

    def _binding_changed(self, operation: str, binding: Binding) -> None:
        replica_set = self._replica_set()
        if replica_set is not None and definitions.binding_is_on_backups(binding):
            replica_set.wiring_changed(operation, definitions.binding_entry(binding))
