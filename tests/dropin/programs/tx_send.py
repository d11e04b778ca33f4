"""Send in transactions of some messages."""

import sys

from proton import Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container


class TxSend(MessagingHandler, TransactionHandler):
    def __init__(self, url, address, total, batch):
        super().__init__()
        self.url = url
        self.address = address
        self.current = 0
        self.committed = 0
        self.total = total
        self.batch = batch
        self.transaction = None

    def on_start(self, event):
        self.container = event.container
        self.connection = self.container.connect(self.url)
        self.sender = self.container.create_sender(self.connection, self.address)
        self.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declared(self, event):
        print("declared")
        self.transaction = event.transaction
        for _ in range(self.batch):
            self.transaction.send(self.sender, Message(body="in a transaction"))
        self.transaction.commit()

    def on_transaction_committed(self, event):
        print("committed")
        event.connection.close()

    def on_transaction_declare_failed(self, event):
        print("not declared")
        event.connection.close()

    def on_link_error(self, event):
        print("refused:", event.link.remote_condition.name, event.link.remote_condition.description)
        event.connection.close()


Container(TxSend(sys.argv[1], sys.argv[2], 6, 3)).run()
