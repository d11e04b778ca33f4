"""Transactions, and how they end when their connection is lost.

A coordinator rolls back the open transactions of an ended connection (AMQP 1.0 part 4, section 4.3).  It is
unknown whether a commit in flight arrived.

Rules
-----
* A transaction belongs to the connection that declared it, and is lost with it.  Its messages never reach the
  next connection: some brokers store messages of an unknown transaction as if they had none.
* After ``on_disconnected`` its handler gets one event.  A declare or a commit without an answer has failed;
  any other transaction is aborted.
* A discharge of a lost transaction is answered here: a commit has failed, and an abort is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proton import Delivery as ProtonDelivery
from proton import Event as ProtonEvent
from proton import Message, ProtonException
from proton import reactor as proton_reactor
from proton.handlers import OutgoingMessageHandler

from haclient.reactor.proton_events import Event

if TYPE_CHECKING:
    from haclient.reactor.endpoints.deliveries import Delivery
    from haclient.reactor.endpoints.links import Sender


class TransactionAborted(ProtonException):
    """The transaction ended with its connection: declare another, and repeat all its work."""


class Transaction(proton_reactor.Transaction):
    """A transaction of one connection; see ``proton.reactor.Transaction``.

    :raises TransactionAborted: by ``send``, ``accept`` and ``update``, once the connection is lost.
    """

    txn_ctrl: Sender
    _declare: Any
    _discharge: Any

    def __init__(self, txn_ctrl: Sender, handler: Any, settle_before_discharge: bool = False) -> None:  # noqa: FBT001, FBT002 - proton's signature
        self._losses = txn_ctrl.losses
        self._report: TransactionEnded | None = None
        super().__init__(txn_ctrl, handler, settle_before_discharge)
        txn_ctrl.transactions[self] = None

    @property
    def lost(self) -> bool:
        """Return whether its connection, its link to the coordinator, or that link's session has ended."""
        return self._losses != self.txn_ctrl.losses

    def send(self, sender: Any, msg: Message, tag: str | None = None) -> Delivery:
        """Send a message under this transaction.

        :raises TransactionAborted: when its connection is lost; nothing is sent.
        :raises proton.ProtonException: when it is not declared yet.
        """
        self._check()
        sent: Any = super().send(sender, msg, tag)
        delivery: Delivery = sent
        return delivery

    def update(self, delivery: ProtonDelivery, state: Any = None) -> None:
        """Give a received message an outcome under this transaction; ``accept`` does so.

        :raises TransactionAborted: when its connection is lost; nothing is sent.
        :raises proton.ProtonException: when it is not declared yet.
        """
        self._check()
        super().update(delivery, state)

    def discharge(self, failed: bool) -> None:  # noqa: FBT001 - proton's signature
        """End it: ``commit`` and ``abort`` do so."""
        if not self.lost:
            super().discharge(failed)
            return
        self.failed = failed
        if self._report is not None and self._discharge is None:
            self._report.superseded = True  # the answer is the report
        self.txn_ctrl.container.post(TransactionEnded(self, _discharged(failed=failed, accepted=False)))

    def handle_outcome(self, event: Any) -> None:
        """Handle the coordinator's answer."""
        delivery = event.delivery
        if delivery is self._discharge or (delivery is self._declare and not delivery.remote.data):
            self.txn_ctrl.transactions.pop(self, None)
        super().handle_outcome(event)  # type: ignore[no-untyped-call]

    def end_with_connection(self) -> TransactionEnded:
        """End it because its connection is lost; return the event for its handler."""
        discharge = self._discharge
        if discharge is not None:
            # The answer may have been read while its event was not dispatched yet.
            accepted = discharge.settled and discharge.remote_state == ProtonDelivery.ACCEPTED
            end = _discharged(failed=self.failed, accepted=accepted)
        else:
            end = "declare_failed" if self.id is None else "aborted"
        self._report = TransactionEnded(self, end)
        return self._report

    @property
    def waits(self) -> bool:
        """Return whether the coordinator owes an answer."""
        return self._discharge is not None or self.id is None

    def _check(self) -> None:
        if self.lost:
            raise TransactionAborted(
                "the transaction ended with its connection, or its link to the coordinator: declare another"
            )
        if self.id is None:
            raise ProtonException("the transaction is not declared: wait for on_transaction_declared")


def _discharged(*, failed: bool, accepted: bool) -> str:
    if failed:
        return "aborted"
    return "committed" if accepted else "commit_failed"


class TransactionEnded(Event):
    """Reports the end of a transaction to its handler only.

    :param end: the handler's method, without ``on_transaction_``.
    :ivar superseded: whether another event reports the end instead.
    """

    def __init__(self, transaction: Transaction, end: str) -> None:
        link = transaction.txn_ctrl
        delivery = transaction._discharge or transaction._declare
        super().__init__(
            link.container,
            ProtonEvent.DELIVERY,
            delivery,
            connection=link.connection,
            session=link.session,
            link=link,
            delivery=delivery,
        )
        self.transaction = transaction
        self.superseded = False
        self._end = end

    def dispatch(self, handler: Any, type: Any = None) -> None:  # noqa: A002 - proton's signature
        """Call the transaction's handler, once, and not the handlers of the link and the container."""
        transaction = self.transaction
        if self.superseded:
            return
        self.superseded, transaction._report = True, None
        transaction._pending = []
        if transaction.handler is not None:
            getattr(transaction.handler, f"on_transaction_{self._end}")(self)


class CoordinatorHandler(OutgoingMessageHandler):
    """Handles the link to a coordinator: passes answers to the transaction, others to its handler."""

    def __init__(self, handler: Any) -> None:
        super().__init__(auto_settle=True)  # type: ignore[no-untyped-call]
        self._handler = handler

    def on_settled(self, event: Any) -> None:
        """Handle the coordinator's answer."""
        transaction = event.delivery.transaction
        if transaction is not None:
            event.transaction = transaction
            transaction.handle_outcome(event)

    def on_unhandled(self, method: str, event: Any) -> None:
        """Pass other events of the link to the application."""
        if self._handler is not None:
            event.dispatch(self._handler)
