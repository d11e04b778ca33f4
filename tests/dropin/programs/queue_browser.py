"""Browse the messages of a queue without removing them."""

import sys

from proton.handlers import MessagingHandler
from proton.reactor import Container, Copy


class Browse(MessagingHandler):
    def __init__(self, url, address, count):
        super().__init__()
        self.url = url
        self.address = address
        self.left = count

    def on_start(self, event):
        connection = event.container.connect(self.url)
        event.container.create_receiver(connection, self.address, options=Copy())

    def on_message(self, event):
        print(event.message)
        self.left -= 1
        if not self.left:
            event.connection.close()


Container(Browse(sys.argv[1], sys.argv[2], int(sys.argv[3]))).run()
