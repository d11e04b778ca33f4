"""Listen, and print received messages."""

import sys

from proton.handlers import MessagingHandler
from proton.reactor import Container


class Recv(MessagingHandler):
    def __init__(self, url, count):
        super().__init__()
        self.url = url
        self.expected = count
        self.received = 0

    def on_start(self, event):
        self.acceptor = event.container.listen(self.url)
        print("listening", flush=True)

    def on_link_opening(self, event):
        print("link opening to", event.receiver.remote_target.address)

    def on_message(self, event):
        print(event.message.body)
        self.received += 1
        if self.received == self.expected:
            event.receiver.close()
            event.connection.close()
            self.acceptor.close()

    def on_connection_closed(self, event):
        print("connection closed")


Container(Recv(sys.argv[1], int(sys.argv[2]))).run()
