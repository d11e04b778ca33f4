"""Receive the green messages of a queue."""

import sys

from proton.handlers import MessagingHandler
from proton.reactor import Container, Selector


class Recv(MessagingHandler):
    def __init__(self, url, address):
        super().__init__()
        self.url = url
        self.address = address

    def on_start(self, event):
        connection = event.container.connect(self.url)
        event.container.create_receiver(connection, self.address, options=Selector("colour = 'green'"))

    def on_link_opened(self, event):
        print("opened, filter", dict(event.receiver.remote_source.filter.get_dict() if has(event) else {}))

    def on_link_error(self, event):
        print("refused:", event.link.remote_condition.name, event.link.remote_condition.description)
        event.connection.close()

    def on_message(self, event):
        print(event.message.body)
        if event.message.properties == {"colour": "green", "last": True}:
            event.connection.close()


def has(event):
    data = event.receiver.remote_source.filter
    data.rewind()
    return data.next() is not None


Container(Recv(sys.argv[1], sys.argv[2])).run()
