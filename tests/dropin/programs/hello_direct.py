"""Listen, and send a message to oneself."""

import sys

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container


class Hello(MessagingHandler):
    def __init__(self, url):
        super().__init__()
        self.url = url

    def on_start(self, event):
        self.acceptor = event.container.listen(self.url)
        event.container.create_sender(self.url)

    def on_sendable(self, event):
        event.sender.send(Message(body="Hello World!"))
        event.sender.close()

    def on_accepted(self, event):
        print("accepted")
        event.connection.close()

    def on_message(self, event):
        print(event.message.body)

    def on_connection_closed(self, event):
        print("connection closed")
        self.acceptor.close()


Container(Hello(sys.argv[1] + "/examples")).run()
