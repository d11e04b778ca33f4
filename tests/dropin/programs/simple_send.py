"""Send numbered messages, as fast as credit allows, and wait until all are accepted."""

import sys

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container


class Send(MessagingHandler):
    def __init__(self, url, address, total):
        super().__init__()
        self.url = url
        self.address = address
        self.sent = 0
        self.confirmed = 0
        self.total = total

    def on_start(self, event):
        connection = event.container.connect(self.url)
        event.container.create_sender(connection, self.address)

    def on_sendable(self, event):
        while event.sender.credit and self.sent < self.total:
            event.sender.send(Message(id=self.sent + 1, body={"sequence": self.sent + 1}))
            self.sent += 1

    def on_accepted(self, event):
        self.confirmed += 1
        if self.confirmed % 100 == 0:
            print(self.confirmed, "confirmed", flush=True)
        if self.confirmed == self.total:
            print("all messages confirmed")
            event.connection.close()

    def on_disconnected(self, event):
        self.sent = self.confirmed


Container(Send(sys.argv[1], sys.argv[2], int(sys.argv[3]))).run()
