"""Small programs on proton itself that show its defects: ``programs_of_defects.py NAME ADDRESS...``."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

from proton import ConnectionException, Endpoint, Message
from proton.handlers import MessagingHandler
from proton.reactor import Backoff, Container
from proton.utils import BlockingConnection


def say(*words: object) -> None:
    """Print a line at once."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


class Saying(MessagingHandler):
    """Connects, with a sender, and prints every event."""

    reconnect: Any = None
    heartbeat: Any = None

    def __init__(self, *addresses: str) -> None:
        super().__init__()
        self.addresses = addresses

    def on_start(self, event: Any) -> None:
        self.connection = event.container.connect(
            urls=self.addresses, reconnect=self.reconnect, heartbeat=self.heartbeat
        )
        self.sender = event.container.create_sender(self.connection, "orders")

    def on_connection_opened(self, event: Any) -> None:
        say("opened")

    def on_disconnected(self, event: Any) -> None:
        say("disconnected")

    def on_connection_error(self, event: Any) -> None:
        say("error", event.connection.remote_condition.name)

    def on_accepted(self, event: Any) -> None:
        say("accepted", event.delivery.tag)


class Sending(Saying):
    """Sends three messages over the first connection, and one over the next."""

    def on_link_opened(self, event: Any) -> None:
        self.opened = getattr(self, "opened", 0) + 1
        for _ in range(3 if self.opened == 1 else 1):
            self.sender.send(Message(body=self.opened))


class Crediting(Saying):
    """Prints the credit of its sender without a connection."""

    def on_sendable(self, event: Any) -> None:
        say("sendable")

    def on_disconnected(self, event: Any) -> None:
        say("credit", self.sender.credit)


class Streaming(Saying):
    """Writes half of a message to each connection."""

    def on_link_opened(self, event: Any) -> None:
        data = Message(body=b"0123456789" * 1000).encode()
        if not self.sender.current:
            self.sender.delivery("cut")
            self.sender.stream(data[:5000])
            say("a half")
        else:
            self.sender.stream(data[5000:])
            self.sender.advance()


class Backing(Saying):
    """Has an object for its delays."""

    reconnect = Backoff(initial=0.01, max_delay=0.01, max_tries=3)


class Sleeping(Saying):
    """Computes for longer than its heartbeat."""

    heartbeat = 0.4

    def on_connection_opened(self, event: Any) -> None:
        say("opened")
        time.sleep(1)


class Closing(Saying):
    """Closes its connection between a loss and the next attempt."""

    reconnect = (0, 0.2)

    def on_disconnected(self, event: Any) -> None:
        event.container.schedule(0.01, self)

    def on_timer_task(self, event: Any) -> None:
        self.connection.close()


def crowded(*addresses: str) -> None:
    """Run with more open files than select supports."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
    for _ in range(1100):
        os.open(os.devnull, os.O_RDONLY)
    Container(Saying(*addresses)).run()


def blocking(*addresses: str) -> None:
    """Send again after the reconnect."""
    connection: Any = BlockingConnection(urls=list(addresses), timeout=20)
    sender = connection.create_sender("orders")
    say("ready")
    try:
        connection.wait(lambda: False)
    except ConnectionException:
        while not sender.state & Endpoint.REMOTE_ACTIVE or sender.credit == 0:
            connection.container.process()
    try:
        sender.send(Message(body="one"))
    except ConnectionException as error:
        say("raised", type(error).__name__)


PROGRAMS: dict[str, Callable[..., object]] = {"crowded": crowded, "blocking": blocking}

if __name__ == "__main__":
    name, given = sys.argv[1], sys.argv[2:]
    if name in PROGRAMS:
        PROGRAMS[name](*given)
    else:
        Container(globals()[name](*given)).run()
