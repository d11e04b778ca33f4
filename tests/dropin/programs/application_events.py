"""Handle events from another thread on the container's thread."""

import threading

from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector


class App(MessagingHandler):
    def __init__(self, injector):
        super().__init__()
        self.injector = injector

    def on_start(self, event):
        self.thread = threading.get_ident()
        event.container.selectable(self.injector)
        threading.Thread(target=trigger, args=(self.injector,)).start()

    def on_hello(self, event):
        print("hello", event.subject, threading.get_ident() == self.thread)

    def on_goodbye(self, event):
        print("goodbye", event.subject)


def trigger(injector):
    for name in ("one", "two", "three"):
        injector.trigger(ApplicationEvent("hello", subject=name))
    injector.trigger(ApplicationEvent("goodbye", subject="all"))
    injector.close()


events = EventInjector()
Container(App(events)).run()
print("over")
