"""Listen, and answer requests in capitals to the addresses made for the clients."""

import sys

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container


class Server(MessagingHandler):
    def __init__(self, url):
        super().__init__()
        self.url = url
        self.senders = {}

    def on_start(self, event):
        self.acceptor = event.container.listen(self.url)
        print("listening", flush=True)

    def on_link_opening(self, event):
        if event.link.is_sender:
            if event.link.remote_source and event.link.remote_source.dynamic:
                event.link.source.address = f"reply-{len(self.senders)}"
                self.senders[event.link.source.address] = event.link
        elif event.link.remote_target and event.link.remote_target.address:
            event.link.target.address = event.link.remote_target.address

    def on_message(self, event):
        sender = self.senders.get(event.message.reply_to)
        sender.send(
            Message(
                address=event.message.reply_to,
                body=event.message.body.upper(),
                correlation_id=event.message.correlation_id,
            )
        )
        print("answered", event.message.body, "to", event.message.reply_to)

    def on_connection_closing(self, event):
        print("a client leaves")
        self.acceptor.close()


Container(Server(sys.argv[1])).run()
