"""A client of a member that requires certificates: as ``server_tls``, and each user has a certificate's
name.

The member answers no AMQP before SASL has determined that name.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest import mock

from proton import SASL

from broker_stub.admission.auth import Auth
from broker_stub.broker import Broker
from haclient.engine.sasl import frames as sasl_frames
from haclient.engine.settings import SaslServer
from tests.fuzz.target import Defect
from tests.fuzz.targets.server_tls import ServerWithTls
from tests.fuzz.tls_wire import TlsWire

_AMQP = b"AMQP\x00\x01\x00\x00"
_OK = sasl_frames.outcome(SASL.OK)
# proton's answer to a protocol other than AMQP, in an Open and a Close.
_REFUSED = b"Unknown protocol detected"


class ServerWithCertificates(ServerWithTls):
    name = "server_certificates"
    auth = Auth(external=True, anonymous=False)
    asks = True

    def _check(self, broker: Broker, wire: TlsWire) -> None:
        if self.let_in is not None and "CN=carol" not in self.let_in.split(","):
            raise Defect(f"a client is let in as {self.let_in!r}")
        before, amqp, behind = bytes(wire.plain).partition(_AMQP)
        if amqp and not before.endswith(_OK) and _REFUSED not in behind:
            raise Defect("a client without a name is answered in AMQP")

    def planted(self) -> AbstractContextManager[object]:
        """A client may skip SASL."""
        return mock.patch.object(SaslServer, "requires_sasl", False)


TARGET = ServerWithCertificates
