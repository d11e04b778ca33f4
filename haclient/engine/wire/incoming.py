"""A peer's bytes on their way to proton: decrypted, checked, and on a client kept until the peer's Open."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

import proton

from haclient.engine.settings import Settings
from haclient.engine.wire import attach_frame, begin_frame
from haclient.engine.wire.attach_frame import AttachFrame
from haclient.engine.wire.frame_order import FrameOrder
from haclient.engine.wire.greeting import Greeting
from haclient.engine.wire.server_proof import ServerProof
from haclient.engine.wire.server_sasl import Login, ServerSasl
from haclient.engine.wire.server_tls import TlsSocket
from haclient.engine.wire.session_window import SessionWindow

_FRAMING_ERROR = "amqp:connection:framing-error"


class IncomingBytes:
    """Reads the bytes of one peer before proton does."""

    __slots__ = (
        "_attaches",
        "_order",
        "_proof",
        "announced_handle_max",
        "greeting",
        "peer_proved",
        "sasl",
        "window",
    )

    def __init__(self, settings: Settings, transport: proton.Transport) -> None:
        serves = settings.sasl_server is not None
        self.greeting = None if serves else Greeting()
        """Client: the bytes that the peer sent before its Open."""
        self.peer_proved = False
        """Client: whether the peer has proved by SCRAM that it knows the password."""
        self.sasl = ServerSasl.of(settings)
        """Server: the negotiation, if the engine does it instead of proton."""
        self.announced_handle_max = begin_frame.ANY if serves else None
        """Client: the lowest handle-max of the peer's Begins; ``None`` before one can be read."""
        self.window = SessionWindow()
        """Client: whether the peer accepts transfers; always open if proton's own TLS hides the frames."""
        order = FrameOrder(server=serves, window=None if serves else self.window)
        self._order = None if settings.tls_domain is not None else order
        self._attaches: dict[tuple[bytes, bool], AttachFrame] | None = None  # in the last bytes, once read
        self._proof = ServerProof(transport) if ServerProof.is_needed(settings) else None

    @property
    def login(self) -> Login | None:
        """Return how the peer has authenticated, if the engine answers SASL (server side)."""
        return None if self.sasl is None else self.sasl.login

    def attach(self, name: bytes, *, from_receiver: bool) -> AttachFrame | None:
        """Return an Attach whose last byte has just arrived; ``None`` if it cannot be read.

        :param name: the link's name in proton: up to the first NUL.
        """
        if self._attaches is None:
            # All at once: a peer may open a thousand links with one write.
            self._attaches = {} if self._order is None else attach_frame.by_link(self._order.attaches())
        return self._attaches.get((name, from_receiver))

    @property
    def handle_max(self) -> int:
        """Client: return ``announced_handle_max``, or the assumed value until it is known."""
        known = self.announced_handle_max
        return begin_frame.ASSUMED if known is None else known

    def read_begins(self) -> None:
        """Read the Begins in the last bytes; ``read`` does so by itself for the first one."""
        if self._order is not None:
            self.announced_handle_max = begin_frame.lowest(self._order.begins(), self.announced_handle_max)

    def forget(self) -> None:
        """Drop the last bytes: proton has read them."""
        self._attaches = None
        if self._order is not None:
            self._order.forget()

    def read(
        self, socket: asyncio.Transport | None, data: bytes, push: Callable[[bytes], None]
    ) -> tuple[bytes, proton.Condition | None]:
        """Return the bytes for proton, and the error in them, if any.

        :param push: gives proton bytes that must reach it first.
        """
        if isinstance(socket, TlsSocket):
            try:
                data = socket.decrypt(data)
            except ssl.SSLError as error:
                why = f"not TLS as this port has it: {error.reason or error}"
                return b"", proton.Condition(_FRAMING_ERROR, why)
        if self.greeting is not None:
            self.greeting.add(data)
        self._attaches = None
        wrong = "" if self._order is None else self._order.add(data)
        if wrong:
            return b"", proton.Condition(_FRAMING_ERROR, wrong)
        if self.announced_handle_max is None:
            self.read_begins()
        if self.sasl is not None and not self.sasl.done:
            # Never to proton, which would answer SASL by itself; without a socket the connection has ended.
            return (b"", None) if socket is None else self.sasl.read(socket, data)
        return (data, None) if self._proof is None else self._read_sasl(self._proof, data, push)

    def _read_sasl(
        self, proof: ServerProof, data: bytes, push: Callable[[bytes], None]
    ) -> tuple[bytes, proton.Condition | None]:
        read = proof.read(data, push)
        if proof.done:
            self.peer_proved, self._proof = proof.proved, None
        return read
