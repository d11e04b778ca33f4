"""Identifies a peer that does not speak AMQP 1.0 by its first bytes.

Rules
-----
* At most ``MOST_BYTES`` are kept, and none after the peer's Open.
* The client sends only headers before the first bytes arrive.  So these cannot echo a credential, and an
  error text may quote them.

Sources: AMQP 1.0 part 2, section 2.2, and part 5, sections 5.2 and 5.3 (headers); AMQP
0-9-1, section 4.2.2, and 0-10, section 4.3 (a server answers a header that it does not know with its own);
RFC 8446, section 5.1 (TLS records).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

# More than an error quotes, and than any of the protocols needs.
MOST_BYTES = 64
_MOST_QUOTED = 40
_HEADER = 8
_SASL_HEADER = b"AMQP\x03\x01\x00\x00"
_TLS_CONTENT = range(0x14, 0x18)
_TLS_MAJOR = 3
_OLD_RABBITMQ = "RabbitMQ before 4.0: rabbitmq-plugins enable rabbitmq_amqp1_0"
# The first bytes of protocols whose servers send first, or answer an AMQP header.
_GREETINGS = (
    (b"SSH-", "SSH"),
    (b"220 ", "SMTP or FTP"),
    (b"220-", "SMTP or FTP"),
    (b"+OK", "POP3"),
    (b"* OK", "IMAP"),
    (b"INFO {", "NATS"),
    (b"ERROR\n", "STOMP"),
    (b"-ERR ", "the protocol of Redis"),
    (b"-NOAUTH ", "the protocol of Redis"),
    (b"-DENIED ", "the protocol of Redis"),
)


@dataclass(frozen=True, slots=True)
class ForeignProtocol:
    """The protocol that a peer speaks instead of AMQP 1.0 after SASL.

    :param code: the name of the help entry.
    :param text: one clause that names the protocol and the remedy.
    """

    code: str
    text: str


class Greeting:
    """The first bytes of a peer."""

    __slots__ = ("data", "on_bytes")

    def __init__(self) -> None:
        self.data = b""
        self.on_bytes: Callable[[], None] = lambda: None
        """Called when the peer sent bytes."""

    def add(self, data: bytes) -> None:
        """Keep bytes that the peer sent, up to ``MOST_BYTES``."""
        self.on_bytes()
        missing = MOST_BYTES - len(self.data)
        if missing > 0:
            self.data += data[:missing]

    @property
    def foreign(self) -> ForeignProtocol | None:
        """Return the peer's protocol if it is foreign; ``None`` while the bytes may begin a SASL header."""
        data = self.data
        if _SASL_HEADER.startswith(data[:_HEADER]):
            return None
        if data.startswith(b"AMQP"):
            return _other_amqp(data[4:_HEADER])
        if data[0] in _TLS_CONTENT and data[1:2] == bytes((_TLS_MAJOR,)):
            return ForeignProtocol("tls-port", "this port speaks TLS: write amqps:// instead of amqp://")
        quoted = _quoted(data)
        if data.startswith(b"HTTP/") or _is_http2(data):
            return ForeignProtocol("http-port", f"this port speaks HTTP, not AMQP: it answered {quoted}")
        name = next((name for start, name in _GREETINGS if data.startswith(start)), _binary(data))
        if name is not None:
            return ForeignProtocol("not-amqp", f"this port speaks {name}, not AMQP: it answered {quoted}")
        return ForeignProtocol("not-amqp", f"this port does not speak AMQP 1.0: it answered {quoted}")


def _other_amqp(version: bytes) -> ForeignProtocol:
    match tuple(version):
        case (0, 1, 0, 0):
            text = "this port speaks AMQP 1.0 without SASL, with which this client always begins"
            return ForeignProtocol("no-sasl", text)
        case (2, 1, 0, 0):
            text = "this port wants TLS first: write amqps://, with the port that the broker has for it"
            return ForeignProtocol("tls-port", text)
        case (1, 1, 0, 10):
            text = "this port speaks AMQP 0-10, not AMQP 1.0 (qpidd: load its module amqp.so)"
            return ForeignProtocol("amqp-0-10", text)
        case (0, 0, 9, 1):
            return ForeignProtocol(
                "amqp-0-9-1", f"this port speaks AMQP 0-9-1, not AMQP 1.0 ({_OLD_RABBITMQ})"
            )
        case _:
            shown = ".".join(map(str, version))
            return ForeignProtocol("not-amqp", f"this port speaks another version of AMQP: {shown}")


def _is_http2(data: bytes) -> bool:
    """Return whether the bytes begin with a SETTINGS frame of stream 0 (RFC 9113, sections 3.4 and 4.1)."""
    return len(data) > _HEADER and data[0] == 0 and data[3] == 4 and not any(data[5:9])  # noqa: PLR2004


def _binary(data: bytes) -> str | None:
    if b"ActiveMQ" in data[:16]:
        return "OpenWire (ActiveMQ: amqp has a port of its own, 5672)"
    # Protocol::HandshakeV10 of MySQL and MariaDB: a length of three bytes, number 0, version 10.
    return "the protocol of MySQL" if data[3:5] == b"\x00\x0a" else None


def _quoted(data: bytes) -> str:
    line = re.split(rb"[\r\n]", data[: _MOST_QUOTED + 1], maxsplit=1)[0] or data
    return ascii(line[:_MOST_QUOTED].decode("latin-1"))
