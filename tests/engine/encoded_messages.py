"""Encoded messages of every type and every encoding of AMQP, drawn at random.

Source: AMQP 1.0 part 1, section 1.6 (encodings); part 3, section 3.2 (message format).
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from hypothesis import strategies as st

Encoded = st.SearchStrategy[bytes]
_FIXED = {
    **dict.fromkeys((0x40, 0x41, 0x42, 0x43, 0x44, 0x45), 0),
    **dict.fromkeys((0x50, 0x51, 0x52, 0x53, 0x54, 0x55), 1),
    **dict.fromkeys((0x60, 0x61), 2),
    **dict.fromkeys((0x70, 0x71, 0x74), 4),
    **dict.fromkeys((0x80, 0x81, 0x83, 0x84), 8),
    **dict.fromkeys((0x94, 0x98), 16),
}
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40).map(str.encode)
_SYMBOLS = st.text(st.characters(codec="ascii"), max_size=40).map(str.encode)
_CONTENTS: dict[int, Encoded] = {
    **{code: st.binary(min_size=width, max_size=width) for code, width in _FIXED.items()},
    0x56: st.sampled_from([b"\0", b"\1"]),
    0x72: st.floats(width=32, allow_nan=False).map(lambda value: struct.pack(">f", value)),
    0x82: st.floats().map(lambda value: struct.pack(">d", value)),
    0x73: st.characters(exclude_categories=["Cs"]).map(lambda value: ord(value).to_bytes(4)),
}
_SIZED: dict[int, tuple[int, Encoded]] = {
    0xA0: (1, st.binary(max_size=255)),
    0xB0: (4, st.binary(max_size=300)),
    0xA1: (1, _TEXTS),
    0xB1: (4, _TEXTS),
    0xA3: (1, _SYMBOLS),
    0xB3: (4, _SYMBOLS),
}
for _code, (_width, _content) in _SIZED.items():
    _CONTENTS[_code] = _content.map(lambda content, width=_width: len(content).to_bytes(width) + content)
LEAVES: Encoded = st.sampled_from(sorted(_CONTENTS)).flatmap(
    lambda code: _CONTENTS[code].map(lambda content: bytes((code,)) + content)
)
DESCRIPTORS: Encoded = st.one_of(
    _SYMBOLS.map(lambda name: b"\xa3" + bytes((len(name),)) + name),
    st.integers(0x100, 2**64 - 1).map(lambda number: b"\x80" + number.to_bytes(8)),
)


def compound(short: int, long: int, items: list[bytes], *, wide: bool, head: bytes = b"") -> bytes:
    """Encode a list, a map or an array; sizes have four bytes if ``wide``, or if one byte is too small.

    :param head: bytes between the number of items and the first.
    """
    content = head + b"".join(items)
    if not wide and len(content) < 0xFF and len(items) <= 0xFF:
        return bytes((short, len(content) + 1, len(items))) + content
    return bytes((long,)) + (len(content) + 4).to_bytes(4) + len(items).to_bytes(4) + content


def list_of(items: list[bytes], *, wide: bool = True) -> bytes:
    """An encoded list."""
    return compound(0xC0, 0xD0, items, wide=wide)


def map_of(pairs: list[tuple[bytes, bytes]], *, wide: bool = True) -> bytes:
    """An encoded map."""
    return compound(0xC1, 0xD1, [each for pair in pairs for each in pair], wide=wide)


def section(code: int, value: bytes) -> bytes:
    """A section of a message."""
    return bytes((0, 0x53, code)) + value


_WIDE = st.booleans()


def _lists(inner: Encoded) -> Encoded:
    return st.builds(lambda items, wide: list_of(items, wide=wide), st.lists(inner, max_size=4), _WIDE)


def _maps(inner: Encoded, keys: Callable[[int], bytes] | None = None) -> Encoded:
    """Draw maps whose keys are different in Python, too."""
    kinds: list[Callable[[int], bytes]] = [
        lambda index: b"\xa1\x02k%d" % index,
        lambda index: b"\xa3\x02s%d" % index,
        lambda index: b"\x53" + bytes((index,)),
        lambda index: b"\x83" + (1000 + index).to_bytes(8),
    ]
    of_kind = st.just([keys]) if keys else st.lists(st.sampled_from(kinds), min_size=4, max_size=4)

    def make(kind: list[Callable[[int], bytes]], values: list[bytes], wide: bool) -> bytes:
        pairs = [(kind[index % len(kind)](index), value) for index, value in enumerate(values)]
        return map_of(pairs, wide=wide)

    return st.builds(make, of_kind, st.lists(inner, max_size=4), _WIDE)


_ARRAYS: Encoded = st.tuples(st.sampled_from(sorted(_CONTENTS)), st.none() | DESCRIPTORS, _WIDE).flatmap(
    lambda drawn: st.lists(_CONTENTS[drawn[0]], max_size=5).map(
        lambda items: compound(
            0xE0,
            0xF0,
            items,
            wide=drawn[2],
            head=(b"" if drawn[1] is None else b"\0" + drawn[1]) + bytes((drawn[0],)),
        )
    )
)
_UNDESCRIBED: Encoded = st.recursive(
    LEAVES | _ARRAYS, lambda inner: _lists(inner) | _maps(inner), max_leaves=12
)
# proton's decoder, the reference, does not end a value that is described twice.
VALUES: Encoded = _UNDESCRIBED | st.builds(lambda one, two: b"\0" + one + two, DESCRIPTORS, _UNDESCRIBED)


def _named(text: str) -> Callable[[int], bytes]:
    return lambda index: (b"\xa1" if text == "string" else b"\xa3") + b"\x02n%d" % index


_BODIES: Encoded = st.one_of(
    st.just(b""),
    VALUES.map(lambda value: section(0x77, value)),
    st.lists(st.binary(max_size=300), min_size=1, max_size=4).map(
        lambda parts: b"".join(section(0x75, b"\xb0" + len(each).to_bytes(4) + each) for each in parts)
    ),
    st.lists(_lists(VALUES), min_size=1, max_size=4).map(
        lambda parts: b"".join(section(0x76, each) for each in parts)
    ),
)
_STRINGS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20).map(
    lambda text: b"\xb1" + len(text.encode()).to_bytes(4) + text.encode()
)
_NULL = st.just(b"\x40")
_HEADERS = st.builds(
    lambda *fields: list_of(list(fields)),
    st.sampled_from([b"\x41", b"\x42", b"\x40"]),
    st.sampled_from([b"\x50\x07", b"\x40"]),
    st.sampled_from([b"\x70\0\0\1\0", b"\x40"]),
)
_PROPERTIES = st.builds(
    lambda *fields: list_of(list(fields)), _STRINGS | _NULL, _NULL, _STRINGS | _NULL, _STRINGS | _NULL
)


def _sometimes(code: int, value: Encoded) -> Encoded:
    return st.just(b"") | value.map(lambda encoded: section(code, encoded))


MESSAGES: Encoded = st.tuples(
    _sometimes(0x70, _HEADERS),
    _sometimes(0x71, _maps(VALUES, _named("symbol"))),
    _sometimes(0x72, _maps(VALUES, _named("symbol"))),
    _sometimes(0x73, _PROPERTIES),
    _sometimes(0x74, _maps(LEAVES, _named("string"))),
    _BODIES,
    _sometimes(0x78, _maps(VALUES, _named("symbol"))),
).map(b"".join)
"""Whole messages, some with several data or sequence sections."""
