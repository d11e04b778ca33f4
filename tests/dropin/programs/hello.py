"""Send a message and receive it, with every event of a handler."""

import sys

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container


class Hello(MessagingHandler):
    def __init__(self, url, address):
        super().__init__()
        self.url = url
        self.address = address
        self.left = {"settled", "message"}

    def on_start(self, event):
        print("start")
        connection = event.container.connect(self.url)
        event.container.create_receiver(connection, self.address)
        event.container.create_sender(connection, self.address)

    def on_connection_opened(self, event):
        print("connection opened")

    def on_session_opened(self, event):
        print("session opened")

    def on_link_opened(self, event):
        print("link opened", "to" if event.link.is_sender else "from", self.address)

    def on_sendable(self, event):
        print("sendable")
        message = Message(
            id="one",
            subject="greeting",
            reply_to="nobody",
            properties={"colour": "green"},
            body="Hello World!",
        )
        self.delivery = event.sender.send(message)
        event.sender.close()

    def on_accepted(self, event):
        print("accepted", event.delivery == self.delivery, event.delivery.tag)

    def on_settled(self, event):
        print("settled", event.delivery == self.delivery)
        self.done("settled", event)

    def on_link_closed(self, event):
        print("link closed")

    def on_message(self, event):
        print(event.message)
        print(event.receiver.connection == event.connection)
        self.done("message", event)

    def done(self, what, event):
        self.left.discard(what)
        if not self.left:
            event.connection.close()

    def on_connection_closed(self, event):
        print("connection closed")

    def on_delivery(self, event):
        print("delivery")

    def on_unhandled(self, method, event):
        if method in ("on_transport_closed", "on_reactor_final"):
            print(method)


Container(Hello(sys.argv[1], sys.argv[2])).run()
