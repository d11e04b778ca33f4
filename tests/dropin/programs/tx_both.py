"""Send in a transaction that is rolled back, and in one that is committed."""

import sys

from proton import Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container


class TxBoth(MessagingHandler, TransactionHandler):
    def __init__(self, url, address):
        super().__init__()
        self.url = url
        self.address = address
        self.bodies = ["never mind", "for good"]

    def on_start(self, event):
        self.container = event.container
        self.connection = self.container.connect(self.url)
        self.sender = self.container.create_sender(self.connection, self.address)

    def on_sendable(self, event):
        if len(self.bodies) == 2:
            self.declare()

    def declare(self):
        self.body = self.bodies.pop(0)
        self.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declared(self, event):
        print("declared", bytes(event.transaction.id))
        event.transaction.send(self.sender, Message(body=self.body))
        event.transaction.commit() if not self.bodies else event.transaction.abort()

    def on_transaction_aborted(self, event):
        print("rolled back")
        self.declare()

    def on_transaction_committed(self, event):
        print("committed")
        self.connection.close()

    def on_transaction_declare_failed(self, event):
        print("not declared")

    def on_transaction_commit_failed(self, event):
        print("not committed")


Container(TxBoth(sys.argv[1], sys.argv[2])).run()
