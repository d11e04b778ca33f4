"""The shim of the drop-in: a program for proton, except for its imports.

``python -m tests.interop.qit.dropin send ...``
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import proton
from proton.handlers import MessagingHandler

from haclient.reactor import Container
from tests.interop.qit.shim import SEND_TIMEOUT, Client, run


class _Timed(MessagingHandler):
    """A handler whose container ends after a fixed number of seconds in any case."""

    def __init__(self, url: str, timeout: float, **options: Any) -> None:
        super().__init__(**options)
        self._url, self._timeout = url, timeout
        self.connection: Any = None
        self._timer: Any = None
        self.over = False

    def on_start(self, event: Any) -> None:
        self._timer = event.container.schedule(self._timeout, self)
        self.connection = event.container.connect(self._url)

    def on_timer_task(self, event: Any) -> None:
        self.end()

    def end(self) -> None:
        if not self.over:
            self.over = True
            self._timer.cancel()
            self.connection.close()


class _Sending(_Timed):
    """Sends messages, and counts the broker's outcomes."""

    def __init__(self, url: str, queue: str, messages: Sequence[proton.Message]) -> None:
        super().__init__(url, SEND_TIMEOUT)
        self._queue, self._messages = queue, messages
        self._sent = 0
        self.accepted = 0

    def on_start(self, event: Any) -> None:
        super().on_start(event)
        event.container.create_sender(self.connection, self._queue)

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self._sent < len(self._messages):
            event.sender.send(self._messages[self._sent])
            self._sent += 1

    def on_accepted(self, event: Any) -> None:
        self.accepted += 1
        if self.accepted == len(self._messages):
            self.end()

    def on_rejected(self, event: Any) -> None:
        sys.stderr.write(f"refused: {event.delivery.remote.condition}\n")
        self.end()

    on_released = on_rejected


class _Receiving(_Timed):
    """Receives a fixed number of messages."""

    def __init__(self, url: str, queue: str, count: int, timeout: float) -> None:
        super().__init__(url, timeout, prefetch=count)
        self._queue, self._count = queue, count
        self.messages: list[proton.Message] = []

    def on_start(self, event: Any) -> None:
        super().on_start(event)
        event.container.create_receiver(self.connection, self._queue)

    def on_message(self, event: Any) -> None:
        if len(self.messages) < self._count:
            self.messages.append(event.message)
        if len(self.messages) == self._count:
            self.end()


def _send(url: str, queue: str, messages: Sequence[proton.Message]) -> None:
    sending = _Sending(url, queue, messages)
    Container(sending).run()
    if sending.accepted < len(messages):
        raise SystemExit(f"{sending.accepted} of {len(messages)} messages were accepted")


def _receive(url: str, queue: str, count: int, timeout: float) -> Sequence[proton.Message]:
    receiving = _Receiving(url, queue, count, timeout)
    Container(receiving).run()
    return receiving.messages


CLIENT = Client(send=_send, receive=_receive)

if __name__ == "__main__":
    sys.exit(run(CLIENT))
