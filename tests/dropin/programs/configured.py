"""Connect to the address in connect.json, and leave."""

from proton.handlers import MessagingHandler
from proton.reactor import Container


class Visit(MessagingHandler):
    def on_start(self, event):
        event.container.connect()

    def on_connection_opened(self, event):
        print("connected")
        event.connection.close()

    def on_connection_closed(self, event):
        print("closed")


Container(Visit()).run()
