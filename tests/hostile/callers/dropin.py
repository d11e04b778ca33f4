"""Calls of the drop-in: ``python -m tests.hostile.callers.dropin utils|reactor URL SEED SECONDS``."""

from __future__ import annotations

import faulthandler
import functools
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from proton import Message, ProtonException
from proton.handlers import MessagingHandler

from haclient.errors import HaclientError
from haclient.reactor import Container
from haclient.utils import BlockingConnection
from tests.hostile.callers.report import GRACE, Report, begin

_PAUSE = 0.1
_CREDIT = 10


class Blocking:
    """Calls of ``haclient.utils``, one after the other."""

    def __init__(self, url: str, rng: random.Random, until: float, report: Report) -> None:
        self._url, self._rng, self._until, self._report = url, rng, until, report
        self._connection: Any = None
        self._links: list[Any] = []

    def run(self) -> None:
        """Connect repeatedly."""
        while time.monotonic() < self._until:
            timeout = self._rng.choice((0.3, 1.0, 2.0))
            connect = functools.partial(BlockingConnection, self._url, timeout=timeout)
            connection = self._call("BlockingConnection", connect, timeout)
            if connection is not None:
                self._use(connection, timeout)
            time.sleep(_PAUSE)

    def _use(self, connection: Any, timeout: float) -> None:
        sender = self._call("create_sender", lambda: connection.create_sender("q"), timeout)
        receiver = self._call(
            "create_receiver", lambda: connection.create_receiver("q", credit=_CREDIT), timeout
        )
        calls: list[tuple[str, Callable[[], Any]]] = []
        if sender is not None:
            calls.append(("send", lambda: sender.send(Message(body="x"), timeout=timeout)))
        if receiver is not None:
            calls.append(("receive", lambda: receiver.receive(timeout=timeout)))
            calls.append(("accept", lambda: receiver.accept() if receiver.fetcher.unsettled else None))
            calls.append(("release", lambda: receiver.release() if receiver.fetcher.unsettled else None))
        for _ in range(self._rng.randint(5, 40) if calls else 0):
            if time.monotonic() > self._until:
                break
            name, call = self._rng.choice(calls)
            self._call(name, call, timeout)
            time.sleep(_PAUSE)
        for link in (sender, receiver):
            if link is not None and self._rng.random() < 0.5:
                self._call("close of a link", link.close, timeout)
        self._call("close", connection.close, timeout)

    def _call(self, name: str, call: Callable[[], Any], timeout: float) -> Any:
        # A process that hangs prints its stack, and exits with 1.
        faulthandler.dump_traceback_later(timeout + GRACE, exit=True)
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - which ones it may be is what the report knows
            self._report.ended(name, error)
            return None
        finally:
            faulthandler.cancel_dump_traceback_later()
        self._report.ended(name, None)
        return result


class Handler(MessagingHandler):
    """A program for proton's reactor that opens, sends, receives and closes, until its time is up."""

    def __init__(self, url: str, rng: random.Random, seconds: float, report: Report) -> None:
        super().__init__(prefetch=_CREDIT)
        self._url, self._rng, self._report = url, rng, report
        self._until = time.monotonic() + seconds
        self._container: Any = None
        self._connection: Any = None

    def on_start(self, event: Any) -> None:
        """Connect."""
        self._container = event.container
        self._connect()
        event.container.schedule(_PAUSE, self)

    def on_timer_task(self, event: Any) -> None:
        """Perform a random action, or stop."""
        if time.monotonic() > self._until:
            self._connection.close()
            self._container.stop()
            return
        self._container.schedule(_PAUSE, self)
        match self._rng.randrange(6):
            case 0:
                self._connection.close()
                self._connect()
            case 1:
                self._safely("create_sender", lambda: self._container.create_sender(self._connection, "q"))
            case 2:
                self._safely(
                    "create_receiver", lambda: self._container.create_receiver(self._connection, "q")
                )

    def _connect(self) -> None:
        self._connection = self._container.connect(self._url)

    def _safely(self, name: str, call: Callable[[], Any]) -> None:
        try:
            call()
        except (ProtonException, HaclientError) as error:
            self._report.ended(name, error)
        else:
            self._report.ended(name, None)

    def on_sendable(self, event: Any) -> None:
        """Send a message."""
        if event.sender.credit and self._rng.random() < 0.2:
            self._safely("send", lambda: event.sender.send(Message(body="x")))

    def on_message(self, event: Any) -> None:
        """Count the message; the handler accepts it automatically."""
        self._report.ended("message", None)

    def on_link_error(self, event: Any) -> None:
        """Count the error, and close the link."""
        self._report.ends["on_link_error"] += 1
        event.link.close()

    def on_connection_error(self, event: Any) -> None:
        """Count the error."""
        self._report.ends["on_connection_error"] += 1

    def on_transport_error(self, event: Any) -> None:
        """Count the error."""
        self._report.ends["on_transport_error"] += 1


def main(name: str, url: str, seed: str, seconds: str) -> None:
    """Make calls for this many seconds."""
    report = begin()
    rng = random.Random(seed)
    if name == "utils":
        Blocking(url, rng, time.monotonic() + float(seconds), report).run()
    else:
        faulthandler.dump_traceback_later(float(seconds) + GRACE, exit=True)
        try:
            Container(Handler(url, rng, float(seconds), report)).run()
        except Exception as error:  # noqa: BLE001 - which ones it may be is what the report knows
            report.ended("run", error)
        faulthandler.cancel_dump_traceback_later()
    report.write()


if __name__ == "__main__":
    main(*sys.argv[1:])
