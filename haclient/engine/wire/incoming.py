"""A peer's bytes on their way to proton: decrypted, checked, and on a client remembered until its Open."""

from __future__ import annotations

import asyncio
import ssl

from haclient.engine.settings import Settings
from haclient.engine.wire.frame_order import FrameOrder
from haclient.engine.wire.greeting import Greeting
from haclient.engine.wire.server_tls import TlsSocket


class IncomingBytes:
    """What is read of the bytes of one peer."""

    __slots__ = ("_order", "greeting")

    def __init__(self, settings: Settings) -> None:
        serves = settings.sasl_server is not None
        self.greeting = None if serves else Greeting()
        """Client: what the peer has sent, until its Open."""
        self._order = None if settings.tls_domain is not None else FrameOrder(server=serves)

    def read(self, socket: asyncio.Transport | None, data: bytes) -> tuple[bytes, str]:
        """The bytes for proton, and what is wrong with them: empty for nothing."""
        if isinstance(socket, TlsSocket):
            try:
                data = socket.decrypt(data)
            except ssl.SSLError as error:
                return b"", f"not TLS as this port has it: {error.reason or error}"
        if self.greeting is not None:
            self.greeting.add(data)
        return data, "" if self._order is None else self._order.add(data)
