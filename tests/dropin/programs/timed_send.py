"""Send a message at every tick of a timer, and wait until all are accepted."""

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
        self.container = event.container
        self.connection = event.container.connect(self.url)
        self.sender = event.container.create_sender(self.connection, self.address)

    def on_link_opened(self, event):
        if not self.sent:
            self.on_timer_task(event)

    def on_timer_task(self, event):
        self.sent += 1
        self.sender.send(Message(id=self.sent, body={"sequence": self.sent}))
        if self.sent < self.total:
            self.container.schedule(0.002, self)

    def on_accepted(self, event):
        self.confirmed += 1
        if self.confirmed % 10 == 0:
            print(self.confirmed, "confirmed", flush=True)
        if self.confirmed == self.total:
            event.connection.close()


Container(Send(sys.argv[1], sys.argv[2], int(sys.argv[3]))).run()
