"""Answer requests in capitals, until a request says stop."""

import sys

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container


class Server(MessagingHandler):
    def __init__(self, url, address):
        super().__init__()
        self.url = url
        self.address = address

    def on_start(self, event):
        self.connection = event.container.connect(self.url)
        self.receiver = event.container.create_receiver(self.connection, self.address)
        self.server = event.container.create_sender(self.connection, None)

    def on_link_opened(self, event):
        if event.receiver == self.receiver:
            print("listening", flush=True)

    def on_message(self, event):
        message = event.message
        self.server.send(
            Message(
                address=message.reply_to, body=message.body.upper(), correlation_id=message.correlation_id
            )
        )
        if message.body == "stop":
            self.stopping = True

    def on_accepted(self, event):
        if getattr(self, "stopping", False):
            print("stopped")
            event.connection.close()


Container(Server(sys.argv[1], sys.argv[2])).run()
