"""The SASL frames of both sides.

Rule: a frame is at most ``_MOST_BYTES`` long.  A client's frame has at most three fields, of these types
alone: null, symbol, binary, string.  So no field is nested.  A server's frame has a list of mechanisms, a
message, or a code and a message.

Sources: AMQP 1.0 part 1, section 1.6 (encodings); part 2, section 2.3.1 (frames); part 5, section 5.3.3.
"""

from __future__ import annotations

import re

from haclient.engine.amqp_values import walk
from haclient.engine.amqp_values.encode import binary

SASL_HEADER, AMQP_HEADER = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
FRAMING_ERROR, UNAUTHORIZED = "amqp:connection:framing-error", "amqp:unauthorized-access"
MECHANISMS, INIT, CHALLENGE, RESPONSE, OUTCOME = range(0x40, 0x45)
_HEADER = 8
# Enough for a token or a certificate; RFC 7628 has none longer than some kilobytes.
_MOST_BYTES = 65536
_SASL_TYPE = 1
_FIELD_TYPES = (walk.SYMBOL8, walk.BINARY8, walk.STRING8)
_LISTS = (b"\x45", b"\xc0", b"\xd0")
_ARRAY8, _UBYTE = 0xE0, 0x50
_NAME = re.compile(r"[A-Z0-9_-]{1,20}")
_MOST_NARROW = 255
_MOST_FIELDS = 3


class NotSaslError(ValueError):
    """The peer's bytes are not SASL."""


class Incoming:
    """A peer's bytes: the header of SASL, its frames, and after the outcome the header of AMQP.

    :ivar held: the bytes that are not taken yet.
    """

    __slots__ = ("_begun", "held")

    def __init__(self) -> None:
        self.held = b""
        self._begun = False

    def begins(self) -> bool:
        """Return whether the header of SASL has arrived.

        :raises NotSaslError: if another one has.
        """
        header = self.held[:_HEADER]
        if not self._begun and not SASL_HEADER.startswith(header):
            raise NotSaslError("the peer does not begin with SASL")
        if not self._begun and len(header) == _HEADER:
            self._begun, self.held = True, self.held[_HEADER:]
        return self._begun

    def next_frame(self) -> bytes:
        """Take the body of the next frame; empty if it has not arrived.

        :raises NotSaslError: if there is something else.
        """
        if not self.begins():
            return b""
        if self.held.startswith(b"AMQP"):
            raise NotSaslError("AMQP before the outcome of SASL")
        if len(self.held) < _HEADER:
            return b""
        size, offset = int.from_bytes(self.held[:4]), 4 * self.held[4]
        if self.held[5] != _SASL_TYPE or not _HEADER <= offset < size <= _MOST_BYTES:
            raise NotSaslError("not a SASL frame")
        if len(self.held) < size:
            return b""
        frame, self.held = self.held[offset:size], self.held[size:]
        return frame

    def has_ended(self) -> bool:
        """Return whether the header of AMQP follows.  proton would quote other bytes, as a password.

        :raises NotSaslError: if other bytes follow.
        """
        header = self.held[:_HEADER]
        if not AMQP_HEADER.startswith(header):
            raise NotSaslError("no AMQP header after the outcome of SASL")
        return len(header) == _HEADER

    def take(self) -> bytes:
        """Take all bytes that are left."""
        rest, self.held = self.held, b""
        return rest


# -- written by a client, read by a server --------------------------------------------------------


def read(body: bytes) -> tuple[int, list[bytes | None]]:
    """Return the code and the fields of a client's frame.

    :param body: the frame after its header.
    :raises ValueError: if it is not a SASL frame.
    """
    code, start = walk.described(body)
    if code < 0:
        raise ValueError("its type is not known")
    if body[start : start + 1] not in _LISTS:
        raise ValueError("it has no list of fields")
    _, count, _ = walk.first_item(body, start)
    if count > _MOST_FIELDS:
        raise ValueError(f"it has {count} fields")
    return code, [_field(each) for each in walk.items(body, start)]


def _field(value: bytes) -> bytes | None:
    if value[0] == walk.NULL:
        return None
    for kind in _FIELD_TYPES:
        if (found := walk.content(value, kind)) is not None:
            return found
    raise ValueError(f"it has a field of type {value[0]:#x}")


# -- written by a server --------------------------------------------------------------------------


def mechanisms(names: tuple[str, ...]) -> bytes:
    """Return the frame that offers mechanisms."""
    symbols = b"".join(bytes((len(name),)) + name.encode() for name in names)
    return _frame(MECHANISMS, _sized(_ARRAY8, len(names), bytes((walk.SYMBOL8,)) + symbols))


def challenge(message: bytes) -> bytes:
    """Return the frame of a message that the client must answer."""
    return _frame(CHALLENGE, binary(message))


def outcome(code: int) -> bytes:
    """Return the frame that ends SASL."""
    return _frame(OUTCOME, bytes((_UBYTE, code)))


# -- written by a client --------------------------------------------------------------------------


def init(mechanism: str, message: bytes | None, hostname: str | None) -> bytes:
    """Return the frame that chooses a mechanism, with its first message, if it has one."""
    null = bytes((walk.NULL,))
    host = null if hostname is None else _text(walk.STRING8, hostname.encode())
    first = null if message is None else binary(message)
    return _frame(INIT, _text(walk.SYMBOL8, mechanism.encode()), first, host)


def response(message: bytes) -> bytes:
    """Return the frame that answers a challenge."""
    return _frame(RESPONSE, binary(message))


def _text(narrow: int, content: bytes) -> bytes:
    if len(content) <= _MOST_NARROW:
        return bytes((narrow, len(content))) + content
    return bytes((narrow + walk.WIDE,)) + len(content).to_bytes(4) + content


# -- written by a server, read by a client --------------------------------------------------------


def read_of_server(body: bytes) -> tuple[int, list[bytes]]:
    """Return the code and the encoded fields of a server's frame.

    :param body: the frame after its header.
    :raises ValueError: if it has no performative.
    """
    code, start = walk.described(body)
    return code, walk.items(body, start)


def names(field: bytes) -> tuple[str, ...]:
    """Return the mechanisms in a field: a symbol, or an array of symbols.  What is no name is left out.

    :raises ValueError: if it is neither, or shorter than it says.
    """
    found = (each.decode("latin-1") for each in _symbols(field))
    return tuple(name for name in found if _NAME.fullmatch(name))


def _symbols(field: bytes) -> list[bytes]:
    if field[0] == walk.NULL:
        return []
    if (sole := walk.content(field, walk.SYMBOL8)) is not None:
        return [sole]
    if field[0] not in (_ARRAY8, _ARRAY8 + walk.WIDE):
        raise walk.MalformedValue("the mechanisms are not symbols")
    width = walk.SIZE_WIDTHS[field[0] >> 4]
    start = 1 + 2 * width
    count, constructor = int.from_bytes(field[1 + width : start]), field[start : start + 1]
    size_width = {b"\xa3": 1, b"\xb3": 4}.get(constructor)
    if size_width is None:
        raise walk.MalformedValue("the mechanisms are not symbols")
    position, found = start + 1, []
    for _ in range(count):
        begin = position + size_width
        position = begin + int.from_bytes(field[position:begin])
        if position > len(field):
            raise walk.MalformedValue("an array is shorter than it says")
        found.append(field[begin:position])
    return found


def message(field: bytes) -> bytes:
    """Return the content of a binary field; empty if it is null.

    :raises ValueError: if it is neither.
    """
    if field[0] == walk.NULL:
        return b""
    if (found := walk.content(field, walk.BINARY8)) is None:
        raise walk.MalformedValue("a message of SASL is not binary")
    return found


def outcome_code(field: bytes) -> int:
    """Return the code of an outcome.

    :raises ValueError: if it is not of the type of a code.
    """
    if len(field) != 2 or field[0] != _UBYTE:  # noqa: PLR2004 - constructor and code
        raise walk.MalformedValue("an outcome has no code")
    return field[1]


def _frame(code: int, *fields: bytes) -> bytes:
    """Return a frame in the shortest encodings, as proton writes it."""
    listed = _sized(walk.LIST8, len(fields), b"".join(fields))
    body = bytes((walk.DESCRIBED, walk.SMALL_ULONG, code)) + listed
    return (_HEADER + len(body)).to_bytes(4) + b"\x02\x01\x00\x00" + body


def _sized(narrow: int, count: int, content: bytes) -> bytes:
    """Encode a list or an array; its size includes the count."""
    size = len(content) + 1
    if size <= _MOST_NARROW:
        return bytes((narrow, size, count)) + content
    return bytes((narrow + walk.WIDE,)) + (len(content) + 4).to_bytes(4) + count.to_bytes(4) + content
