"""Listen, and keep messages that a peer sends in committed transactions."""

import sys

from proton import Terminus
from proton.handlers import MessagingHandler
from proton.reactor import Container

DECLARED = 0x33
TRANSACTIONAL = 0x34


class Coordinator(MessagingHandler):
    def __init__(self, url):
        super().__init__(auto_accept=False)
        self.url = url
        self.declared = 0
        self.sent = {}

    def on_start(self, event):
        self.acceptor = event.container.listen(self.url)
        print("listening", flush=True)

    def on_link_opening(self, event):
        event.link.target.copy(event.link.remote_target)

    def on_message(self, event):
        if event.link.remote_target.type == Terminus.COORDINATOR:
            self.on_control(event.delivery, event.message.body)
        else:
            assert event.delivery.remote_state == TRANSACTIONAL
            self.sent[bytes(event.delivery.remote.data[0])].append(event.message.body)
            self.accept(event.delivery)

    def on_control(self, delivery, body):
        if str(body.descriptor) == "amqp:declare:list":
            self.declared += 1
            name = b"tx-%d" % self.declared
            self.sent[name] = []
            delivery.local.data = [name]
            self.settle(delivery, DECLARED)
        else:
            name, failed = bytes(body.value[0]), body.value[1]
            print(name, "dropped" if failed else "kept", self.sent.pop(name))
            self.accept(delivery)

    def on_connection_closed(self, event):
        self.acceptor.close()


Container(Coordinator(sys.argv[1])).run()
