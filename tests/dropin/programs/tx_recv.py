"""Receive in a transaction."""

import sys

from proton.handlers import TransactionalClientHandler
from proton.reactor import Container


class TxRecv(TransactionalClientHandler):
    def __init__(self, url, address):
        super().__init__(prefetch=0)
        self.url = url
        self.address = address

    def on_start(self, event):
        self.connection = event.container.connect(self.url)
        self.receiver = event.container.create_receiver(self.connection, self.address)
        event.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declared(self, event):
        print("declared")
        self.receiver.flow(1)
        self.transaction = event.transaction

    def on_message(self, event):
        print(event.message.body)
        self.accept(event.delivery, self.transaction)
        self.transaction.commit()

    def on_transaction_committed(self, event):
        print("committed")
        event.connection.close()

    def on_link_error(self, event):
        print("refused:", event.link.remote_condition.name, event.link.remote_condition.description)
        event.connection.close()


Container(TxRecv(sys.argv[1], sys.argv[2])).run()
