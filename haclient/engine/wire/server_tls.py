"""TLS in memory, between a socket and its engine.

asyncio's TLS does not fit: its connection begins after the handshake, but a member counts unfinished
handshakes, and ends the oldest.  proton's TLS hides decrypted bytes from the engine (``frame_order``).

Sources: RFC 8446, sections 6.1 (close_notify) and 5.1 (records: the first one of a handshake begins with 22).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any

from haclient.engine.settings import Settings

_CHUNK = 256 * 1024
_HANDSHAKE = 22


class TlsSocket(asyncio.Transport):
    """A socket with encryption: ``write`` encrypts, and ``decrypt`` decrypts the peer's bytes.

    :param context: of this side, with its certificate.
    :param settings: say which side this is, and whether a client may do without TLS.
    """

    def __init__(self, socket: asyncio.Transport, context: ssl.SSLContext, settings: Settings) -> None:
        super().__init__()
        serves = settings.sasl_server is not None
        self._socket = socket
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=serves)
        self._secure = False
        self._optional = settings.tls_optional
        """Set until the first byte of the peer."""
        self._clear = False
        self._waiting = bytearray()
        """Bytes written before the end of the handshake: a header at most."""
        if not serves:
            self.decrypt(b"")

    def decrypt(self, data: bytes) -> bytes:
        """Return the decrypted bytes of the peer; answer its handshake.

        :raises ssl.SSLError: when the bytes are not TLS, or have a version or cipher that is not allowed; the
            peer gets an alert.
        """
        if self._optional and data:
            self._optional, self._clear = False, data[0] != _HANDSHAKE
        if self._clear:
            if self._waiting:
                self._socket.write(bytes(self._waiting))
                self._waiting.clear()
            return data
        self._incoming.write(data)
        plain = bytearray()
        try:
            if not self._secure:
                self._object.do_handshake()
                self._secure = True
                self.write(self._waiting)
                self._waiting.clear()
            while chunk := self._object.read(_CHUNK):
                plain += chunk
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass  # no more bytes for now, or ever: the end of the socket follows
        finally:
            self._flush()
        return bytes(plain)

    def write(self, data: Any) -> None:
        """Encrypt bytes, and send them."""
        if self._clear:
            self._socket.write(data)
        elif not self._secure:
            self._waiting += data
        elif data:
            self._object.write(data)
            self._flush()

    def close(self) -> None:
        """Send close_notify, and close the socket."""
        if self._secure and not self._socket.is_closing():
            with contextlib.suppress(ssl.SSLError):  # the peer's own close_notify is not waited for
                self._object.unwrap()
            self._flush()
        self._socket.close()

    def abort(self) -> None:
        """Close the socket now."""
        self._socket.abort()

    def is_closing(self) -> bool:
        """Return whether the socket accepts no more bytes."""
        return self._socket.is_closing()

    def get_write_buffer_size(self) -> int:
        """Return the number of encrypted bytes that the kernel has not taken."""
        return self._socket.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits of the socket below."""
        self._socket.set_write_buffer_limits(high=high, low=low)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the protocol of the socket below, which gets the peer's encrypted bytes."""
        self._socket.set_protocol(protocol)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return ``ssl_object`` as asyncio's TLS does, and other information from the socket below."""
        if name == "ssl_object" and not self._clear:
            return self._object
        return self._socket.get_extra_info(name, default)

    def _flush(self) -> None:
        if self._outgoing.pending and not self._socket.is_closing():
            self._socket.write(self._outgoing.read())
