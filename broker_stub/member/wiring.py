"""What a member does when its wiring changes: queues, exchanges and bindings.

Rules
-----
* Every change is written down, by the keeper, whether it began here or came from the primary.
* A primary tells its replicas of each change in the turn in which it is made.  A new queue is
  waited for from that turn on, so no message in it is settled before the replicas know the queue.
* Replicas are told of a queue or an exchange unless its ``x-qpid-replicate`` is ``none``, and of
  a binding when they are told of both its ends.  Temporary queues are never told, nor written.
"""

from __future__ import annotations

from collections.abc import Callable

from broker_stub.durability.persister import Keeper, is_replicated
from broker_stub.queueing.exchanges import Binding, Exchange
from broker_stub.queueing.queue import Queue
from broker_stub.replication import apply
from broker_stub.replication.replica_set import Leading


class Wiring:
    """The watcher of a member's addresses (``addresses.Watcher``).

    :param leading: the leading part, while the member is primary.
    """

    def __init__(self, keeper: Keeper, leading: Callable[[], Leading | None]) -> None:
        self._keeper = keeper
        self._leading = leading

    def queue_added(self, queue: Queue) -> None:
        """A queue is new, here or at the primary."""
        self._keeper.queue_added(queue)
        leading = self._leading()
        if leading is None or queue.temporary:
            return
        queue.start_generation(leading.held.number)
        if apply.is_told(queue):
            leading.wiring_changed("queue", apply.queue_entry(queue))
        if is_replicated(queue):
            leading.queue_added(queue)

    def queue_changed(self, queue: Queue) -> None:
        """Another site gets more or less of a queue than before."""
        self._keeper.queue_changed(queue)
        leading = self._leading()
        if leading is not None and apply.is_told(queue):
            leading.wiring_changed("queue", apply.queue_entry(queue))

    def queue_deleted(self, queue: Queue) -> None:
        """A queue is gone."""
        self._keeper.queue_deleted(queue)
        leading = self._leading()
        if leading is not None and not queue.temporary:
            leading.queue_removed(queue)

    def exchange_added(self, exchange: Exchange) -> None:
        """An exchange is new, or its options are."""
        self._keeper.exchange_added(exchange)
        leading = self._leading()
        if leading is not None and apply.is_told(exchange):
            leading.wiring_changed("exchange", apply.exchange_entry(exchange))

    def exchange_deleted(self, exchange: Exchange) -> None:
        """An exchange is gone."""
        self._keeper.exchange_deleted(exchange)
        leading = self._leading()
        if leading is not None:
            leading.wiring_changed("exchange-deleted", {"identity": exchange.identity})

    def binding_added(self, binding: Binding) -> None:
        """A binding is new."""
        self._keeper.binding_added(binding)
        self._binding_changed("binding", binding)

    def binding_deleted(self, binding: Binding) -> None:
        """A binding is gone."""
        self._keeper.binding_deleted(binding)
        self._binding_changed("binding-deleted", binding)

    def _binding_changed(self, operation: str, binding: Binding) -> None:
        leading = self._leading()
        if leading is not None and apply.is_told_binding(binding):
            leading.wiring_changed(operation, apply.binding_entry(binding))
