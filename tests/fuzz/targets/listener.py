"""A peer of the drop-in's listener: bytes end at most the peer's own connection, and ``run`` raises
nothing.

The listener requires a certificate by TLS, or accepts any peer (``Mode.CLEAR``): see ``tls_wire``. A
peer without TLS contacts both, and only the latter answers it.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections import defaultdict
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

import proton

from haclient.engine.sasl import server
from haclient.reactor import Container, SSLDomain
from haclient.reactor.listener import Acceptor
from tests.certificates import Authority
from tests.fuzz.script import parse
from tests.fuzz.target import Defect, Target
from tests.fuzz.tls_wire import Contexts, Mode, TlsWire, mode_of
from tests.fuzz.wire import DefectLog, Loop

_OF_THE_PEER = (proton.ProtonException, ValueError, KeyError, TypeError)


class _Program:
    """A program that answers incoming peers, and reads their performatives.

    As with proton, reading a peer's data may raise, and an exception in a handler ends ``run``. So the
    program catches it.
    """

    def __init__(self) -> None:
        self.users: list[str | None] = []

    def on_connection_remote_open(self, event: Any) -> None:
        peer, transport = event.connection, event.transport
        self.users.append(transport.user)
        transport.sasl().user, peer.transport.user
        with contextlib.suppress(*_OF_THE_PEER):
            peer.remote_properties, peer.remote_container, peer.remote_hostname  # noqa: B018 - they are decoded
        peer.open()

    def on_session_remote_open(self, event: Any) -> None:
        event.session.open()

    def on_link_remote_open(self, event: Any) -> None:
        link = event.link
        with contextlib.suppress(*_OF_THE_PEER):
            link.source.copy(link.remote_source)
            link.target.copy(link.remote_target)
        link.open()
        if link.is_receiver:
            link.flow(10)

    def on_link_flow(self, event: Any) -> None:
        if event.link.is_sender and event.link.credit > 0:
            event.link.send(proton.Message(body="one"))

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if not event.link.is_receiver:
            delivery.settle()
        elif delivery.readable and not delivery.partial:
            with contextlib.suppress(*_OF_THE_PEER):
                event.link.recv(delivery.pending)
                delivery.update(proton.Delivery.ACCEPTED)
                delivery.settle()

    def on_link_remote_close(self, event: Any) -> None:
        event.link.close()

    def on_connection_remote_close(self, event: Any) -> None:
        event.connection.close()


class Listener(Target):
    name = "listener"
    scripted = True

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tls-"))
        authority = Authority(self._folder)
        self._contexts = Contexts(authority)
        self._loop, self._log = Loop(), DefectLog()
        self._program = _Program()
        self._container = Container(self._program)
        self._container._loop, self._container._own_loop = self._loop, True
        self._container.start()
        mine = authority.issue("127.0.0.1")
        domain = SSLDomain(SSLDomain.MODE_SERVER)
        domain.set_credentials(str(mine.chain), str(mine.key), None)
        domain.set_trusted_ca_db(str(authority.file))
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER, str(authority.file))
        with mock.patch.object(Acceptor, "_serve", _nothing):
            self._exacting: Any = self._container.listen("127.0.0.1:0", ssl_domain=domain)
            self._open: Any = self._container.listen("127.0.0.1:0")
        self._loop.turn()

    def run(self, data: bytes) -> None:
        mode, steps = mode_of(list(parse(data)))
        context = self._contexts.client(mode)
        for acceptor in (self._exacting, self._open) if context is None else (self._exacting,):
            self._program.users.clear()
            engine = acceptor._accept()
            wire = TlsWire(self._loop, engine, context)
            engine.connection_made(wire)
            self._loop.turn()
            wire.play(steps)
            self._check(wire, mode, acceptor)

    def _check(self, wire: TlsWire, mode: Mode, acceptor: Any) -> None:
        container = self._container
        error, container.error = container.error, None
        if error is not None:
            raise Defect(f"{error!r} leaves run") from error
        left = len(container._alive) - 2
        if left:
            raise Defect(f"{left} connections are left")
        if acceptor is self._exacting:
            if b"AMQP" in wire.sent:
                raise Defect("a peer without TLS is answered")
            if self._program.users and not mode & Mode.CERTIFICATE:
                raise Defect("a peer without a certificate is let in")
        self._log.check(self._loop)

    def planted(self) -> AbstractContextManager[object]:
        """The order of a client's SASL frames is not checked: an answer without a choice then fails."""
        return mock.patch.object(server, "_NEXT", defaultdict(lambda: mock.ANY))

    def close(self) -> None:
        for acceptor in (self._exacting, self._open):
            acceptor.close()
        self._log.close()
        self._loop.close()
        shutil.rmtree(self._folder, ignore_errors=True)


async def _nothing(_acceptor: Acceptor) -> None:
    """Do nothing: the target passes in the peers."""


TARGET = Listener
