"""What the loss of a connection means for its transactions.

A coordinator rolls back what was open when its connection ended (AMQP 1.0 part 4, section 4.3), and
nobody can know whether a commit in flight arrived.  So a declare that had no answer has
failed, a rollback is done, and a commit is reported as failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proton import Event as ProtonEvent

from haclient.reactor.proton_events import Event

if TYPE_CHECKING:
    from haclient.reactor.endpoints.deliveries import Delivery


class TransactionLost(Event):
    """Reports to the handler of a transaction how it ended."""

    def __init__(self, delivery: Delivery) -> None:
        binding = delivery._binding
        super().__init__(
            binding.container,
            ProtonEvent.DELIVERY,
            delivery,
            connection=binding.connection,
            session=delivery.session,
            link=delivery.link,
            delivery=delivery,
        )
        self.transaction = delivery.transaction

    def dispatch(self, handler: Any, type: Any = None) -> None:  # noqa: A002 - proton's signature
        """Call the transaction's handler; that of the link has no say."""
        transaction = self.transaction
        if self.delivery is transaction._declare:
            transaction.handler.on_transaction_declare_failed(self)
            return
        if transaction.failed:
            transaction.handler.on_transaction_aborted(self)
        else:
            transaction.handler.on_transaction_commit_failed(self)
        transaction._clear_pending()
