"""A client of a member with TLS: as ``server``, and a peer without TLS gets no AMQP answer.

Scripts are described in ``tls_wire``.
"""

from __future__ import annotations

import shutil
import ssl
import tempfile
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from unittest import mock

from broker_stub.admission.auth import Auth
from broker_stub.broker import Broker
from haclient.engine.tls import TlsFiles
from haclient.engine.wire.server_tls import TlsSocket
from tests.certificates import Authority
from tests.fuzz.members import OPTIONS
from tests.fuzz.script import parse
from tests.fuzz.target import Defect
from tests.fuzz.targets.server import Server
from tests.fuzz.tls_wire import Contexts, TlsWire, mode_of


class ServerWithTls(Server):
    name = "server_tls"
    auth = Auth()
    asks = False
    """True if each client needs a certificate."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tls-"))
        self.let_in: str | None = None
        """The user of the last input's client, empty for an anonymous one; ``None`` if it was refused."""
        authority = Authority(self._folder)
        self._contexts = Contexts(authority)
        mine = authority.issue("127.0.0.1")
        ca = str(authority.file) if self.asks else None
        files = TlsFiles(certificate=str(mine.chain), key=str(mine.key), ca=ca)
        super().__init__(replace(OPTIONS, auth=self.auth, tls=files))

    def run(self, data: bytes) -> None:
        mode, steps = mode_of(list(parse(data)))
        broker = self._members.make()
        engine = broker._accept_socket()
        wire = TlsWire(self._members.loop, engine, self._contexts.client(mode))
        engine.connection_made(wire)
        self._members.loop.turn()
        with mock.patch.object(broker, "decide", wraps=broker.decide) as decide:
            wire.play(steps)
        self.let_in = decide.call_args.args[0].user or "" if decide.called else None
        left = len(broker._connections)
        self._members.end()
        self._check(broker, wire)
        if left:
            raise Defect(f"{left} connections are left")
        if b"AMQP" in wire.sent:
            raise Defect("a client without TLS is answered")

    def _check(self, broker: Broker, wire: TlsWire) -> None:
        """Check additional rules."""

    def planted(self) -> AbstractContextManager[object]:
        """Bytes that are not TLS raise an error in the member."""
        original = TlsSocket.decrypt

        def wrong(self: TlsSocket, data: bytes) -> bytes:
            try:
                return original(self, data)
            except ssl.SSLError as error:
                raise RuntimeError("no TLS") from error

        return mock.patch.object(TlsSocket, "decrypt", wrong)

    def close(self) -> None:
        super().close()
        shutil.rmtree(self._folder, ignore_errors=True)


TARGET = ServerWithTls
