"""Texts of a peer that are not UTF-8 are escaped where proton raises; no call raises a new kind of error."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import proton
import pytest
from proton import Described, symbol, uint, ulong
from proton.handlers import MessagingHandler

from haclient.reactor import Container
from haclient.testing.peers.listening import url
from haclient.testing.threads import in_thread
from haclient.utils import BlockingConnection
from tests.dropin.test_same_output import free_port
from tests.peers.odd import (
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    END,
    NOT_ASCII,
    NOT_UTF8,
    OPEN,
    Fields,
    changed,
    error,
    frame,
    odd_peer,
)

HEADER = b"AMQP\x00\x01\x00\x00"
ESCAPED = r"\xff\xfe\xff\xfe"
SOURCE, TARGET = (Described(ulong(code), [NOT_UTF8]) for code in (0x28, 0x29))
BAD_ERROR = error(symbol("amqp:not-found"), NOT_UTF8)
ENDS: dict[str, dict[int, Fields]] = {
    "a container id": {OPEN: {0: NOT_UTF8}},
    "a host name": {OPEN: {1: NOT_UTF8}},
    "a name of a link": {ATTACH: {0: NOT_UTF8}},
    "no name": {ATTACH: {0: None}},
    "a source": {ATTACH: {5: SOURCE}},
    "a target": {ATTACH: {6: TARGET}},
    "the description of a Detach": {DETACH: {2: BAD_ERROR}},
    "the condition of a Detach": {DETACH: {2: error(symbol(NOT_ASCII))}},
    "the description of an End": {END: {0: BAD_ERROR}},
    "the description of a Close": {CLOSE: {0: BAD_ERROR}},
    "the condition of a Close": {CLOSE: {0: error(symbol(NOT_ASCII))}},
}
_each = pytest.mark.parametrize("odd", ENDS.values(), ids=ENDS.keys())


@pytest.mark.slow
@_each
@pytest.mark.parametrize("reconnect", [None, False], ids=["failover", "once"])
def test_a_blocking_call_ends_with_an_error_of_proton_at_most(
    odd: dict[int, Fields], reconnect: bool | None
) -> None:
    closes_after = ATTACH if CLOSE in odd else None
    with (
        in_thread(odd_peer(odd, closes_after=closes_after)) as peer,
        contextlib.suppress(proton.ProtonException),
    ):
        connection = BlockingConnection(url(peer, deadline=0.5), timeout=1, reconnect=reconnect)
        with contextlib.suppress(proton.ProtonException):
            connection.create_receiver("q", credit=1).receive(timeout=0.1)
        with contextlib.suppress(proton.ProtonException):
            connection.create_sender("q").send(proton.Message(body="x"), timeout=0.1)
        connection.close()


class Reading(MessagingHandler):
    """Reads every text of the peer, until an event of its last performative."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self.texts: list[Any] = []
        self._last = last

    def _read(self, event: Any, performative: int) -> None:
        connection, link = event.connection, event.link
        self.texts += [connection.remote_container, connection.remote_hostname]
        for endpoint in filter(None, (connection, event.session, link)):
            condition = endpoint.remote_condition
            self.texts += [] if condition is None else [condition.name, condition.description]
        if link is not None:
            self.texts += [link.name, link.remote_source.address, link.remote_target.address]
        if performative == self._last:
            event.container.stop()

    def on_link_remote_open(self, event: Any) -> None:
        event.link.open()
        self._read(event, ATTACH)

    def on_link_error(self, event: Any) -> None:
        self._read(event, DETACH)

    def on_session_error(self, event: Any) -> None:
        self._read(event, END)

    def on_connection_error(self, event: Any) -> None:
        self._read(event, CLOSE)


class Opening(Reading):
    """A client with a link."""

    def __init__(self, last: int, address: str) -> None:
        super().__init__(last)
        self._address = address

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self._address, reconnect=False)
        event.container.create_receiver(connection, "q")


class Listening(Reading):
    """Listens, and has a client that writes all its frames at once."""

    def __init__(self, last: int, frames: bytes) -> None:
        super().__init__(last)
        self._frames = frames
        self.socket: Any = None

    def on_start(self, event: Any) -> None:
        address = free_port()
        event.container.listen(address)
        host, _, port = address.rpartition(":")
        event.container.schedule(0, self)
        self._address = host, int(port)

    def on_timer_task(self, _event: Any) -> None:
        self.socket = socket.create_connection(self._address)
        self.socket.sendall(self._frames)


def last_of(odd: dict[int, Fields]) -> int:
    return max({ATTACH, *odd})


@_each
def test_a_handler_of_a_client_reads_them(odd: dict[int, Fields]) -> None:
    with in_thread(odd_peer(odd, closes_after=ATTACH if CLOSE in odd else None)) as peer:
        handler = Opening(last_of(odd), peer.address)
        Container(handler).run()
    assert ESCAPED in handler.texts or odd == ENDS["no name"]


@_each
def test_a_handler_of_a_listener_reads_them(odd: dict[int, Fields]) -> None:
    ends = [Described(ulong(0x28), ["q"]), Described(ulong(0x29), ["q"])]
    fields: dict[int, list[Any]] = {
        OPEN: ["client", "host"],
        BEGIN: [None, uint(0), uint(2048), uint(2048)],
        ATTACH: ["link", uint(0), False, None, None, *ends, None, None, uint(0)],
        DETACH: [uint(0), True],
        END: [],
        CLOSE: [],
    }
    sent = [code for code in fields if code <= last_of(odd) and (code <= ATTACH or code in odd)]
    frames = (frame(code, changed(fields[code], odd.get(code, {}))) for code in sent)
    handler = Listening(last_of(odd), HEADER + b"".join(frames))
    Container(handler).run()
    handler.socket.close()
    assert ESCAPED in handler.texts or odd == ENDS["no name"]
