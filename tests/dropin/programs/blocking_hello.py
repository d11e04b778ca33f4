"""Send messages and receive them, one call after the other."""

import sys

from proton import Message
from proton.handlers import IncomingMessageHandler
from proton.utils import BlockingConnection, LinkDetached


class Printing(IncomingMessageHandler):
    def on_message(self, event):
        print("handled", event.message.body)
        self.seen = True


url, address, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
connection = BlockingConnection(url, timeout=30)
receiver = connection.create_receiver(address)
sender = connection.create_sender(address)
for number in range(count):
    delivery = sender.send(Message(id=number, body=f"hello {number}"))
    message = receiver.receive(timeout=30)
    receiver.accept()
    while message.id != number:  # a redelivery, since its acceptance was lost
        message = receiver.receive(timeout=30)
        receiver.accept()
    print(message.body, delivery.remote_state, delivery.settled, flush=True)
print(sender.target.address, receiver.source.address, receiver.credit)
receiver.close()

handler = Printing()
handler.seen = False
handled = connection.create_receiver(address, handler=handler)
sender.send(Message(body="to a handler"))
connection.wait(lambda: handler.seen)

try:
    connection.create_receiver("$no/such place")
except LinkDetached as error:
    print(type(error).__name__, error.condition)
connection.close()
connection.close()
