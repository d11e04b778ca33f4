"""Receive a number of messages and print them."""

import sys

from proton.handlers import MessagingHandler
from proton.reactor import Container


class Recv(MessagingHandler):
    def __init__(self, url, expected):
        super().__init__()
        self.url = url
        self.expected = expected
        self.seen = set()

    def on_start(self, event):
        event.container.create_receiver(self.url)

    def on_message(self, event):
        if event.message.id in self.seen:
            return
        self.seen.add(event.message.id)
        print(event.message.body, flush=True)
        if len(self.seen) == self.expected:
            event.receiver.close()
            event.connection.close()


Container(Recv(sys.argv[1], int(sys.argv[2]))).run()
