"""Messages as bytes: legal ones that no application would make, and unreadable ones.

They are encoded here, since proton's encoder would refuse some of them and be slow for others.

Source: AMQP 1.0 part 1, section 1.6 (encodings); part 3, section 3.2 (sections of a message).
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

from haclient.engine.codec import DUPLICATE_ID_PROPERTY

_HEADER, _ANNOTATIONS, _PROPERTIES, _APPLICATION, _DATA, _SEQUENCE, _VALUE, _FOOTER = (
    0x70, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78,
)  # fmt: skip
_NULL = b"\x40"
_TEXTS = ("", "a", "a\x00b", "\x1b[2J\x1b]0;owned\x07", "line\r\nERROR forged", "é" * 100, "x" * 5000)
_MOST_NODES = 70_000
"""More than the 65,534 nodes of proton's decoder."""
_DEEP = 2000
_MOST_PIECE = 200_000


def _compound(code: int, items: Sequence[bytes]) -> bytes:
    body = b"".join(items)
    return bytes([code]) + struct.pack(">II", len(body) + 4, len(items)) + body


def _list(*items: bytes) -> bytes:
    return _compound(0xD0, items)


def _map(*items: bytes) -> bytes:
    return _compound(0xD1, items)


def _string(text: str) -> bytes:
    data = text.encode()
    return b"\xb1" + struct.pack(">I", len(data)) + data


def _symbol(text: str) -> bytes:
    return b"\xb3" + struct.pack(">I", len(text)) + text.encode("ascii")


def _binary(data: bytes) -> bytes:
    return b"\xb0" + struct.pack(">I", len(data)) + data


def _ulong(value: int) -> bytes:
    return b"\x80" + struct.pack(">Q", value)


def _uint(value: int) -> bytes:
    return b"\x70" + struct.pack(">I", value)


def _timestamp(value: int) -> bytes:
    return b"\x83" + struct.pack(">q", value)


def _section(code: int, value: bytes) -> bytes:
    return b"\x00\x53" + bytes([code]) + value


def _nested(depth: int, inner: bytes) -> bytes:
    """Nest lists, from the inside because of the sizes."""
    value = inner
    for _ in range(depth):
        value = b"\xd0" + struct.pack(">II", len(value) + 4, 1) + value
    return value


def _scalar(rng: random.Random) -> bytes:
    makers: Sequence[Callable[[], bytes]] = (
        lambda: _NULL,
        lambda: _string(rng.choice(_TEXTS)),
        lambda: _symbol(rng.choice(("", "a", "x" * 300))),
        lambda: _binary(rng.randbytes(rng.choice((0, 1, 300)))),
        lambda: _ulong(rng.choice((0, 2**63, 2**64 - 1))),
        lambda: b"\x81" + rng.randbytes(8),
        lambda: b"\x82" + rng.choice((b"\x7f\xf0" + bytes(6), b"\x7f\xf8" + bytes(6), rng.randbytes(8))),
        lambda: b"\x72" + rng.randbytes(4),
        lambda: _timestamp(rng.choice((-(2**63), -1, 0, 2**63 - 1))),
        lambda: b"\x98" + rng.randbytes(16),
        lambda: b"\x73" + rng.choice((b"\x00\x00\x00\x61", b"\x00\x01\xf6\x00", b"\x00\x00\x00\x00")),
        lambda: b"\x94" + rng.randbytes(16),
    )
    return rng.choice(makers)()


def _value(rng: random.Random) -> bytes:
    match rng.randrange(7):
        case 0:
            return _nested(rng.choice((1, 50, _DEEP)), _scalar(rng))
        case 1:
            return _list(*[b"\x45"] * rng.choice((0, 10, _MOST_NODES)))
        case 2:
            size = rng.choice((1, 1000, _MOST_NODES // 2))
            return _map(*(part for n in range(size) for part in (_uint(n), b"\x41")))
        case 3:
            count = rng.choice((0, 1, _MOST_NODES))
            return b"\xf0" + struct.pack(">II", 5 + count, count) + b"\x50" + bytes(count)
        case 4:
            return b"\x00" + _symbol("d") + _scalar(rng)
        case 5:
            return _binary(bytes(rng.choice((0, _MOST_PIECE))))
    return _scalar(rng)


def _header(rng: random.Random) -> bytes:
    ttl = rng.choice((_NULL, _uint(0), _uint(1), _uint(2**32 - 1)))
    priority = b"\x50" + bytes([rng.choice((0, 4, 255))])
    durable = rng.choice((b"\x41", b"\x42"))
    return _list(durable, priority, ttl, rng.choice((b"\x41", b"\x42")), _uint(rng.choice((0, 2**32 - 1))))


def _annotations(rng: random.Random) -> bytes:
    names = ("x-opt-delivery-time", "x-opt-delivery-delay", "x-opt-group", "x-opt-n", "x" * 200)
    keys = rng.sample(names, rng.randint(0, 3))
    # Numbers delay the delivery; other types are refused.
    makers = {key: _number if key.startswith("x-opt-delivery") else _scalar for key in keys}
    return _map(*(part for key in keys for part in (_symbol(key), makers[key](rng))))


def _number(rng: random.Random) -> bytes:
    if rng.random() < 0.2:
        return _scalar(rng)
    value = rng.choice((0, 1, 1000, 2**31, 2**63 - 1, 2**63, 2**64 - 1))
    return rng.choice((_ulong(value), _timestamp(min(value, 2**63 - 1)), _uint(min(value, 2**32 - 1))))


def _properties(rng: random.Random) -> bytes:
    times = (_NULL, _timestamp(0), _timestamp(-(2**63)), _timestamp(2**63 - 1))
    texts = [_string(rng.choice(_TEXTS)) for _ in range(4)]
    identity = rng.choice(
        (_NULL, _ulong(2**64 - 1), _binary(bytes(5000)), _string("same"), b"\x98" + bytes(16))
    )
    sequence = rng.choice((_NULL, _uint(2**32 - 1)))
    # A member refuses a user id other than the sender's.
    user = _binary(rng.randbytes(4)) if rng.random() < 0.05 else _NULL
    return _list(
        identity, user, texts[0], texts[1], _NULL, identity,
        _symbol("t" * rng.choice((1, 5000))), _symbol(""), rng.choice(times), rng.choice(times), texts[2],
        sequence, texts[3],
    )  # fmt: skip


def _application(rng: random.Random) -> bytes:
    parts: list[bytes] = []
    if rng.random() < 0.3:
        parts += [_string(DUPLICATE_ID_PROPERTY), rng.choice((_string("the same"), _scalar(rng)))]
    for number in range(rng.choice((0, 3, 3, 2000))):
        parts += [_string(f"{rng.choice(_TEXTS[:5])}{number}"), _scalar(rng)]
    if rng.random() < 0.2:
        parts += [_string("deep"), _nested(rng.choice((10, 1000, _DEEP)), _NULL)]
    return _map(*parts)


def _body(rng: random.Random) -> bytes:
    match rng.randrange(4):
        case 0:
            return b"".join(
                _section(_DATA, _binary(bytes(rng.choice((0, 10))))) for _ in range(rng.choice((1, 3, 2000)))
            )
        case 1:
            return b"".join(_section(_SEQUENCE, _list(_scalar(rng))) for _ in range(rng.choice((1, 3, 2000))))
        case 2:
            return b""
    return _section(_VALUE, _value(rng))


def extreme(rng: random.Random) -> bytes:
    """Return a legal message."""
    made = b""
    for code, make in (
        (_HEADER, _header),
        (_ANNOTATIONS, _annotations),
        (_PROPERTIES, _properties),
        (_APPLICATION, _application),
    ):
        if rng.random() < 0.6:
            made += _section(code, make(rng))
    made += _body(rng)
    if rng.random() < 0.1:
        made += _section(_FOOTER, _annotations(rng))
    return made


def malformed(rng: random.Random) -> bytes:
    """Return bytes that begin like a message."""
    data = bytearray(extreme(rng))
    match rng.randrange(5):
        case 0:
            return bytes(data[: rng.randrange(len(data) + 1)])
        case 1:
            return rng.randbytes(rng.randrange(200))
        case 2:
            return b"\x00\x53" + bytes([rng.randrange(256)]) + bytes(data)
        case 3:
            return _section(_VALUE, b"\xd0\xff\xff\xff\xff\xff\xff\xff\xff")
    for _ in range(rng.randint(1, 10)):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)
