"""The server's side of TLS, in memory, between a socket and its engine.

Not asyncio's TLS, whose connection begins when the handshake is done: a member counts those that are not,
and ends the oldest.  Not proton's, which shows the engine nothing of what it has decrypted (``frame_order``).

Sources: RFC 8446, sections 6.1 (close_notify) and 5.1 (records).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any

_CHUNK = 256 * 1024


class TlsSocket(asyncio.Transport):
    """A socket whose bytes are encrypted: what is written to it, and by ``decrypt`` what arrives.

    :param context: of the server, with its certificate.
    """

    def __init__(self, socket: asyncio.Transport, context: ssl.SSLContext) -> None:
        super().__init__()
        self._socket = socket
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._secure = False
        self._waiting = bytearray()
        """What was written before the end of the handshake: a header at most."""

    def decrypt(self, data: bytes) -> bytes:
        """What the peer's bytes say; its handshake is answered.

        :raises ssl.SSLError: when they are no TLS, or of no version or cipher that is allowed; the peer
            gets an alert.
        """
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
            pass  # there is no more for now, or ever: the end of the socket follows
        finally:
            self._flush()
        return bytes(plain)

    def write(self, data: Any) -> None:
        """Encrypt bytes, and send them."""
        if not self._secure:
            self._waiting += data
        elif data:
            self._object.write(data)
            self._flush()

    def close(self) -> None:
        """Say that no more follows, and close the socket."""
        if self._secure and not self._socket.is_closing():
            with contextlib.suppress(ssl.SSLError):  # the peer's own close_notify is not waited for
                self._object.unwrap()
            self._flush()
        self._socket.close()

    def abort(self) -> None:
        """Close the socket now."""
        self._socket.abort()

    def is_closing(self) -> bool:
        """Whether it takes no more bytes."""
        return self._socket.is_closing()

    def get_write_buffer_size(self) -> int:
        """Encrypted bytes that the kernel has not taken."""
        return self._socket.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Of the socket below."""
        self._socket.set_write_buffer_limits(high=high, low=low)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Of the socket below: it gets the peer's bytes as they are."""
        self._socket.set_protocol(protocol)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As asyncio's TLS, ``ssl_object`` is that of this connection."""
        return self._object if name == "ssl_object" else self._socket.get_extra_info(name, default)

    def _flush(self) -> None:
        if self._outgoing.pending and not self._socket.is_closing():
            self._socket.write(self._outgoing.read())
