"""Send in transactions of some messages, as credit allows; after a loss, repeat the current transaction."""

import sys

from proton import Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container


class TxBatches(MessagingHandler, TransactionHandler):
    def __init__(self, url, total, size):
        super().__init__()
        self.url = url
        self.total = total
        self.size = size
        self.committed = 0
        self.sent = 0
        self.transaction = None

    def on_start(self, event):
        self.container = event.container
        self.connection = self.container.connect(self.url)
        self.sender = self.container.create_sender(self.connection, "batches")
        self.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declared(self, event):
        self.transaction = event.transaction
        self.fill()

    def on_sendable(self, event):
        self.fill()

    def fill(self):
        while self.transaction is not None and self.sender.credit > 0:
            self.sent += 1
            number = self.committed + self.sent
            self.transaction.send(self.sender, Message(id=number, body=number))
            if self.sent == self.size:
                open_until_now, self.transaction = self.transaction, None
                open_until_now.commit()

    def on_transaction_committed(self, event):
        self.committed += self.sent
        self.sent = 0
        print(self.committed, "committed")
        if self.committed == self.total:
            self.connection.close()
        else:
            self.container.declare_transaction(self.connection, handler=self)

    def on_disconnected(self, event):
        self.sent = 0


Container(TxBatches(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))).run()
