"""Send messages that another thread passes in events, one after the other."""

import queue
import sys
import threading

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector


class Send(MessagingHandler):
    def __init__(self, url, address, injector, confirmed):
        super().__init__()
        self.url = url
        self.address = address
        self.injector = injector
        self.confirmed = confirmed

    def on_start(self, event):
        event.container.selectable(self.injector)
        self.connection = event.container.connect(self.url)
        self.sender = event.container.create_sender(self.connection, self.address)

    def on_record(self, event):
        self.sender.send(Message(id=event.subject, body={"sequence": event.subject}))

    def on_accepted(self, event):
        self.confirmed.put(event.delivery.tag)

    def on_done(self, event):
        self.injector.close()
        self.connection.close()


def produce(injector, confirmed, total):
    for number in range(1, total + 1):
        injector.trigger(ApplicationEvent("record", subject=number))
        confirmed.get()
        if number % 10 == 0:
            print(number, "confirmed", flush=True)
    injector.trigger(ApplicationEvent("done"))


events = EventInjector()
accepted = queue.Queue()
threading.Thread(target=produce, args=(events, accepted, int(sys.argv[3])), daemon=True).start()
Container(Send(sys.argv[1], sys.argv[2], events, accepted)).run()
