"""Request some lines in capitals, one after the other."""

import sys

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container


class Client(MessagingHandler):
    def __init__(self, url, address, requests):
        super().__init__()
        self.url = url
        self.address = address
        self.requests = requests

    def on_start(self, event):
        connection = event.container.connect(self.url)
        self.sender = event.container.create_sender(connection, self.address)
        self.receiver = event.container.create_receiver(connection, None, dynamic=True)

    def next_request(self):
        self.sender.send(
            Message(
                reply_to=self.receiver.remote_source.address,
                correlation_id=self.requests[0],
                body=self.requests[0],
            )
        )

    def on_link_opened(self, event):
        if event.receiver == self.receiver:
            self.next_request()

    def on_message(self, event):
        if not self.requests or event.message.correlation_id != self.requests[0]:
            return
        print(f"{self.requests.pop(0)} => {event.message.body}", flush=True)
        if self.requests:
            self.next_request()
        else:
            event.connection.close()


Container(Client(sys.argv[1], sys.argv[2], sys.argv[3:])).run()
