"""A peer's bytes on their way to proton: decrypted, checked, and on a client kept until the peer's Open."""

from __future__ import annotations

import asyncio
import ssl

import proton

from haclient.engine.sasl.client import ClientSasl
from haclient.engine.sasl.frames import FRAMING_ERROR, SASL_HEADER
from haclient.engine.sasl.server import ServerSasl
from haclient.engine.sasl.server_mechanisms import Login
from haclient.engine.settings import Settings
from haclient.engine.wire import attach_frame
from haclient.engine.wire.attach_frame import AttachFrame
from haclient.engine.wire.frame_order import FrameOrder
from haclient.engine.wire.greeting import Greeting
from haclient.engine.wire.server_tls import TlsSocket
from haclient.engine.wire.session_limits import SessionLimits

# Used until a Begin can be read: the smallest handle-max of a tested broker (RabbitMQ 4.0.5).
_ASSUMED_HANDLE_MAX = 255


class IncomingBytes:
    """Reads the bytes of one peer before proton does."""

    __slots__ = (
        "_attaches",
        "_order",
        "client_sasl",
        "greeting",
        "limits",
        "sasl",
    )

    def __init__(self, settings: Settings) -> None:
        serves = settings.sasl_server is not None
        self.greeting = None if serves else Greeting()
        """Client: the bytes that the peer sent before its Open."""
        self.sasl = None if settings.sasl_server is None else ServerSasl(settings.sasl_server)
        """Server: the negotiation."""
        self.client_sasl = ClientSasl(settings) if settings.sasl and not serves else None
        """Client: the negotiation; ``None`` without SASL."""
        self.limits = SessionLimits()
        """Client: the peer's limits."""
        self._order = FrameOrder(limits=None if serves else self.limits)
        self._attaches: dict[tuple[bytes, bool], AttachFrame] | None = None  # in the last bytes, once read

    def begin(self, socket: asyncio.Transport) -> None:
        """Begin a client's SASL, if it has one."""
        if self.is_in_sasl:
            socket.write(SASL_HEADER)

    @property
    def negotiation(self) -> ServerSasl | ClientSasl | None:
        """Return the negotiation of this side; ``None`` without SASL."""
        return self.client_sasl or self.sasl

    @property
    def is_in_sasl(self) -> bool:
        """Client: return whether SASL has not ended; proton's bytes follow it."""
        return self.client_sasl is not None and not self.client_sasl.ended

    @property
    def mechanism(self) -> str | None:
        """Client: return the SASL mechanism that it has chosen; ``None`` before that, and without SASL."""
        return None if self.client_sasl is None else self.client_sasl.mechanism

    @property
    def peer_proved(self) -> bool:
        """Client: return whether the peer has proved its identity by SASL."""
        return self.client_sasl is not None and self.client_sasl.proved

    @property
    def login(self) -> Login | None:
        """Server: return how the peer has logged in; ``None`` before that, and without SASL."""
        return None if self.sasl is None else self.sasl.login

    def attach(self, name: bytes, *, from_receiver: bool) -> AttachFrame | None:
        """Return an Attach whose last byte has just arrived; ``None`` if it cannot be read.

        :param name: the link's name in proton: up to the first NUL.
        """
        if self._attaches is None:
            # All at once: a peer may open a thousand links with one write.
            self._attaches = attach_frame.by_link(self._order.attaches())
        return self._attaches.get((name, from_receiver))

    @property
    def handle_max(self) -> int:
        """Client: return the peer's handle-max, or the assumed value until it is known."""
        known = self.limits.handle_max
        return _ASSUMED_HANDLE_MAX if known is None else known

    def forget(self) -> None:
        """Drop the last bytes: proton has read them."""
        self._attaches = None
        self._order.forget()

    def read(self, socket: asyncio.Transport | None, data: bytes) -> tuple[bytes, proton.Condition | None]:
        """Return the bytes for proton, and the error in them, if any."""
        if isinstance(socket, TlsSocket):
            try:
                data = socket.decrypt(data)
            except ssl.SSLError as error:
                why = f"not TLS as this port has it: {error.reason or error}"
                return b"", proton.Condition(FRAMING_ERROR, why)
        if self.greeting is not None:
            self.greeting.add(data)
        self._attaches = None
        negotiation = self.negotiation
        if negotiation is not None and not negotiation.done:
            if socket is None:  # the connection has ended
                return b"", None
            data, refused = negotiation.read(socket, data)
            if refused is not None:
                return b"", refused
        wrong = self._order.add(data)
        if wrong:
            return b"", proton.Condition(FRAMING_ERROR, wrong)
        return data, None
