"""Listen, and send to the peer that asks for messages."""

import sys

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container


class Send(MessagingHandler):
    def __init__(self, url, total):
        super().__init__()
        self.url = url
        self.sent = 0
        self.confirmed = 0
        self.total = total

    def on_start(self, event):
        self.acceptor = event.container.listen(self.url)
        print("listening", flush=True)

    def on_sendable(self, event):
        while event.sender.credit and self.sent < self.total:
            event.sender.send(Message(id=self.sent + 1, body={"sequence": self.sent + 1}))
            self.sent += 1

    def on_accepted(self, event):
        self.confirmed += 1
        if self.confirmed == self.total:
            print("all messages confirmed")
            self.acceptor.close()

    def on_link_closed(self, event):
        print("link closed")


Container(Send(sys.argv[1], int(sys.argv[2]))).run()
