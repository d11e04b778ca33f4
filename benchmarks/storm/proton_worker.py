"""The worker of kind ``proton``: connections of proton's own ``Container`` with its default reconnect.

``Container.connect(urls=...)`` reconnects by itself after a lost socket and after a Close with
``amqp:connection:forced``.  Any other Close with a condition, such as a passive member's redirect, ends
the connection for good (``proton._handlers.EndpointStateHandler.on_connection_remote_close``).  An
application must then connect again itself.  This worker does, beginning with the next member, after the
delays of proton's own backoff.  It reports each such redial (``redial``).

The container waits with ``select()``, which takes file descriptors below 1024.

Proton has a defect: if a socket ends in the same turn in which its heartbeat is due, ``Container.run`` raises
``AttributeError: 'NoneType' object has no attribute 'capacity'``.  The I/O handler forgets the transport at
the end of the socket, and does not check for that at the heartbeat
(``proton._handlers.IOHandler.on_selectable_expired``).  In a large storm this happens to some client, and
would end all connections of the process.  Here the container goes on and reports each error (``defect``).
"""

from __future__ import annotations

import logging
import os
import queue
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import proton
from proton.handlers import MessagingHandler
from proton.reactor import Backoff, Container

from benchmarks.storm.lines import Command, body, format_line, read_command
from benchmarks.storm.worker import arguments_of
from haclient.cluster_url.url import ClusterURL

# Seconds between two looks for commands, with a write of all new lines.
_TICK = 0.05


class Later(proton.Handler):
    """Calls a function when its timer expires (``Container.schedule``)."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act

    def on_timer_task(self, event: proton.Event) -> None:
        """Call the function."""
        self._act()


class Survivor(proton.Handler):
    """Forwards every event to the container's own I/O handler, and catches its defects.

    :param on_defect: called with each of them.
    """

    def __init__(self, io: proton.Handler, on_defect: Callable[[AttributeError], object]) -> None:
        super().__init__()
        self._io = io
        self._on_defect = on_defect

    def on_unhandled(self, method: str, event: proton.Event) -> None:
        """Forward any event."""
        try:
            event.dispatch(self._io)
        except AttributeError as error:
            self._on_defect(error)


class Client(MessagingHandler):
    """One connection and its sender."""

    def __init__(self, number: int, worker: Worker) -> None:
        super().__init__()
        self._number = number
        self._worker = worker
        self._rng = random.Random(f"{worker.seed}/{number}")
        self._usable = False
        self._turn = 0
        self._delays = iter(Backoff())
        self._sender: proton.Sender | None = None
        self._waiting: list[tuple[int, float]] = []
        self._unsettled: dict[proton.Delivery, tuple[int, float]] = {}
        self._sent = 0

    # -- commands -------------------------------------------------------------------------------

    def obey(self, command: Command) -> None:
        """Dial or send at random moments of the command's time."""
        act, count = (self._send, command.count) if command.do == "send" else (self._dial, 1)
        for _ in range(count):
            self._worker.later(self._rng.uniform(0, command.over), act)

    def _dial(self) -> None:
        container = self._worker.container
        urls = self._worker.urls
        turn, self._turn = self._turn % len(urls), self._turn + 1
        credentials = self._worker.credentials
        connection = container.connect(urls=[*urls[turn:], *urls[:turn]], handler=self, **credentials)
        self._sender = container.create_sender(connection, self._worker.address)

    def _send(self) -> None:
        self._waiting.append((self._sent, time.monotonic()))
        self._sent += 1
        self._send_waiting()

    def _send_waiting(self) -> None:
        sender = self._sender
        while self._usable and self._waiting and sender is not None and sender.credit > 0:
            number, asked = self._waiting.pop(0)
            message = proton.Message(body=body(self._number, number))
            # An unsettled link returns a delivery, not a number of bytes.
            self._unsettled[cast("proton.Delivery", sender.send(message))] = number, asked

    # -- events of proton -----------------------------------------------------------------------

    def on_connection_bound(self, event: proton.Event) -> None:
        """Report a dial: the connection has got a transport."""
        assert event.connection is not None
        url = cast("proton.Url", event.connection.url)
        self._write("attempt", to=f"{url.host}:{url.port}")

    def on_session_opened(self, event: proton.Event) -> None:
        """Report that the Begin was answered."""
        if not self._usable:
            self._usable = True
            self._delays = iter(Backoff())
            self._write("usable")

    def on_sendable(self, event: proton.Event) -> None:
        """Send the waiting messages: the link has credit."""
        self._send_waiting()

    def on_accepted(self, event: proton.Event) -> None:
        """Report a settled message."""
        # A broker may accept a message of a connection that is gone; the message was queued again then.
        message = self._unsettled.pop(cast("proton.Delivery", event.delivery), None)
        if message is not None:
            number, asked = message
            self._write("settled", number=number, took=time.monotonic() - asked)

    def on_transport_error(self, event: proton.Event) -> None:
        """Ignore the error: after a failed authentication the default handler would end the client."""

    def on_transport_closed(self, event: proton.Event) -> None:
        """Queue every unsettled message again: the socket is gone."""
        self._waiting = sorted([*self._unsettled.values(), *self._waiting])
        self._unsettled.clear()
        if self._usable:
            self._usable = False
            self._write("lost")

    def on_connection_error(self, event: proton.Event) -> None:
        """Dial again: after a Close with a condition proton does not."""
        self._write("redial")
        self._worker.later(next(self._delays), self._dial)

    def _write(self, what: str, **facts: Any) -> None:
        self._worker.write_line(what, client=self._number, at=time.monotonic(), **facts)


class Worker(MessagingHandler):
    """The program: reads commands, writes lines."""

    def __init__(self) -> None:
        super().__init__()
        arguments = arguments_of(__doc__)
        seeds = ClusterURL.parse(arguments.url).seeds
        self.urls = [f"amqp://{seed.endpoint.host}:{seed.endpoint.port}" for seed in seeds]
        user, password = seeds[0].user, seeds[0].password
        self.credentials: dict[str, Any] = (
            {} if user is None or password is None else {"user": user, "password": password.reveal()}
        )
        self.address: str = arguments.address
        self.seed: int = arguments.seed
        self.container: Container
        self._lines: list[str] = []
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        numbers = range(arguments.first, arguments.first + arguments.count)
        self._clients = [Client(number, self) for number in numbers]

    def write_line(self, what: str, **facts: Any) -> None:
        """Queue a line for the next tick."""
        self._lines.append(format_line(what, **facts))

    def defect(self, error: AttributeError) -> None:
        """Report an error of the container's own I/O."""
        self.write_line("defect", at=time.monotonic(), why=str(error))

    def later(self, delay: float, act: Callable[[], object]) -> None:
        """Call a function after ``delay`` seconds."""
        self.container.schedule(delay, Later(act))

    def on_start(self, event: proton.Event) -> None:
        """Start to read commands and to tick: the container runs."""
        self.container = event.container
        threading.Thread(target=self._read, daemon=True).start()
        self.write_line("ready")
        self._tick()

    def _read(self) -> None:
        for text in sys.stdin:
            self._commands.put(read_command(text))
        self._commands.put(None)

    def _tick(self) -> None:
        sys.stdout.write("".join(self._lines))
        sys.stdout.flush()
        self._lines.clear()
        while not self._commands.empty():
            command = self._commands.get()
            if command is None:
                os._exit(0)
            for client in self._clients:
                client.obey(command)
        self.later(_TICK, self._tick)


if __name__ == "__main__":
    logging.getLogger("proton").setLevel(logging.CRITICAL)
    worker = Worker()
    container = Container(worker)
    container.global_handler = Survivor(container.global_handler, worker.defect)
    container.run()
