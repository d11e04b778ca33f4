r"""Fields of an Attach that proton does not hand on: the unsettled map, and texts with a NUL.

Rules
-----
* A peer's frame is untrusted: whatever is not an Attach in its usual encoding has no map.
* proton keeps the link's name and the addresses in C, which ends a text at a NUL: ``a\0b`` would be another
  node or link.  Capabilities, filters and properties arrive whole.
* Of a map only what an outcome can be about counts: a tag of at most 32 bytes, and a delivery state that is
  absent or known by the code of its descriptor.  The rest of it is skipped.
* A map is as large as a frame at most, and is decoded only when somebody asks for it.

Sources: AMQP 1.0 part 1, section 1.6 (encodings); part 2, sections 2.3.1 (frames), 2.6.13 (resuming
deliveries), 2.7.3 (attach) and 2.8.7 (delivery-tag); part 3, section 3.4 (delivery state).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

ATTACH = b"\x00\x53\x12"
"""How an Attach begins: its descriptor in the usual encoding."""
_HEADER = 8
_NAME, _ROLE, _SOURCE, _UNSETTLED, _INCOMPLETE = 0, 2, 5, 7, 8
_NULL, _TRUE, _LIST0, _LIST8, _LIST32, _MAP8, _MAP32 = 0x40, 0x41, 0x45, 0xC0, 0xD0, 0xC1, 0xD1
_DESCRIBED, _SMALL_ULONG, _ULONG = 0x00, 0x53, 0x80
_STRING8, _STRING32, _BINARY8, _BINARY32 = 0xA1, 0xB1, 0xA0, 0xB0
_MAPS = (bytes((_MAP8,)), bytes((_MAP32,)))
_MAX_TAG = 32
# A descriptor that is itself described is legal; deeper is an attack on the stack.
_MOST_NESTED = 4
# The bytes of a value behind its constructor, by the upper half of that (part 1, figure 1.2).
_FIXED = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_NARROW, _WIDE = (0xA, 0xC, 0xE), (0xB, 0xD, 0xF)
MALFORMED = (ValueError, IndexError)
"""What reading bytes raises that are no frame in its usual encoding."""


class AttachFrame(NamedTuple):
    """What is read of an Attach.

    :param unsettled: its unsettled map, encoded; empty for none.
    :param has_nul: whether there is a NUL in its name or an address.
    """

    name: bytes
    from_receiver: bool
    unsettled: bytes
    has_nul: bool = False

    def is_of(self, name: bytes, *, from_receiver: bool) -> bool:
        """Whether it is of the link that has this name in proton, which ends it at a NUL."""
        return (self.name.partition(b"\0")[0], self.from_receiver) == (name, from_receiver)


def read(frame: bytes) -> AttachFrame | None:
    """Read a whole frame; ``None`` if it is no Attach."""
    try:
        found = fields(frame, ATTACH)
        if found is None:
            return None
        at, end = found[_NAME]
        name = _variable(frame[at:end], _STRING8, _STRING32)
        at, end = found[_ROLE]
        from_receiver = frame[at:end] in (b"\x41", b"\x56\x01")
        if name is None:
            return None
        at, end = found[_UNSETTLED] if len(found) > _UNSETTLED else (0, 0)
        unsettled = frame[at:end]
        texts = (name, *(_address(frame[at:end]) for at, end in found[_SOURCE:_UNSETTLED]))
        return AttachFrame(
            name,
            from_receiver,
            unsettled if unsettled[:1] in _MAPS else b"",
            any(b"\0" in each for each in texts),
        )
    except MALFORMED:
        return None


def find(data: bytes, position: int = 0, start: bytes = ATTACH) -> Iterator[tuple[int, int]]:
    """Where the whole frames are, in bytes of frames, that begin so: that look like an Attach."""
    end = len(data)
    while position + _HEADER <= end:
        size = int.from_bytes(data[position : position + 4])
        if size < _HEADER or position + size > end:
            return
        body = position + 4 * data[position + 4]
        if data.startswith(start, body, position + size):
            yield position, position + size
        position += size


def may_be(start: bytes, descriptors: Iterable[bytes]) -> bool:
    """Return whether an unfinished frame that begins so may be one of these performatives."""
    body = 4 * start[4] if len(start) > 4 else _HEADER  # noqa: PLR2004
    return any(each.startswith(start[body : body + len(each)]) for each in descriptors)


def add_unsettled(
    output: bytes, name: bytes, unsettled: Mapping[bytes, int], limit: int
) -> tuple[bytes, int]:
    """Put an unsettled map into the last Attach of a link, among frames that are to be sent.

    :param name: that of the link.
    :param unsettled: the states by tag, which are not empty; those that do not fit are left out, the last
        ones first, and the map is marked as incomplete then.
    :param limit: the bytes of a frame that the peer takes.
    :returns: the frames, and how many of the states are in the map.
    """
    found = [span for span in find(output) if _is_of(output[slice(*span)], name)]
    if not found:
        return output, 0
    start, end = found[-1]
    frame, count = _with_unsettled(output[start:end], unsettled, limit)
    return output[:start] + frame + output[end:], count


def fields(frame: bytes, descriptor: bytes) -> list[tuple[int, int]] | None:
    """Where the fields of a performative are; ``None`` if the frame has another one.

    :raises MALFORMED: when it cannot be read.
    """
    body = 4 * frame[4]
    if len(frame) < _HEADER or not frame.startswith(descriptor, body):
        return None
    at = body + len(descriptor)
    return [] if frame[at] == _LIST0 else _items(frame, at, _LIST8, _LIST32)


def states(unsettled: bytes) -> dict[bytes, int | None]:
    """Decode an unsettled map: the code of each state's descriptor by tag, ``None`` for no state."""
    found: dict[bytes, int | None] = {}
    try:
        for (key, key_end), (value, value_end) in _pairs(unsettled):
            tag = _variable(unsettled[key:key_end], _BINARY8, _BINARY32)
            if tag is None or len(tag) > _MAX_TAG:
                continue
            if unsettled[value] == _NULL:
                found[tag] = None
            elif (code := _code(unsettled[value:value_end])) is not None:
                found[tag] = code
    except MALFORMED:
        return {}
    return found


def encode(unsettled: Iterable[tuple[bytes, int]]) -> bytes:
    """An unsettled map of states without fields."""
    items = [
        bytes((_BINARY8, len(tag))) + tag + bytes((0, _SMALL_ULONG, code, _LIST0)) for tag, code in unsettled
    ]
    body = b"".join(items)
    return bytes((_MAP32,)) + (len(body) + 4).to_bytes(4) + (2 * len(items)).to_bytes(4) + body


# -- inside -----------------------------------------------------------------------------------------


def _items(data: bytes, at: int, narrow: int, wide: int) -> list[tuple[int, int]]:
    """Where the values in a list or a map are."""
    if data[at] == narrow:
        end, count, position = at + 2 + data[at + 1], data[at + 2], at + 3
    elif data[at] == wide:
        end = at + 5 + int.from_bytes(data[at + 1 : at + 5])
        count, position = int.from_bytes(data[at + 5 : at + 9]), at + 9
    else:
        raise ValueError("another type")
    if end > len(data) or count > end - at:
        raise ValueError("a count that its bytes do not hold")
    found = []
    for _ in range(count):
        after = _end(data, position)
        found.append((position, after))
        position = after
    return found


def _pairs(encoded: bytes) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    items = _items(encoded, 0, _MAP8, _MAP32) if encoded else []
    return zip(items[0::2], items[1::2], strict=True)


def _end(data: bytes, at: int, nested: int = 0) -> int:
    """Where the value ends that begins here.

    :raises ValueError: when it does not end in these bytes; ``IndexError`` likewise.
    """
    constructor = data[at]
    if constructor == _DESCRIBED:
        if nested > _MOST_NESTED:
            raise ValueError("too deep")
        return _end(data, _end(data, at + 1, nested + 1), nested + 1)
    kind = constructor >> 4
    if kind in _FIXED:
        end = at + 1 + _FIXED[kind]
    elif kind in _NARROW:
        end = at + 2 + data[at + 1]
    elif kind in _WIDE:
        end = at + 5 + int.from_bytes(data[at + 1 : at + 5])
    else:
        raise ValueError("no AMQP type")
    if end > len(data):
        raise ValueError("a value that does not end")
    return end


def _variable(value: bytes, narrow: int, wide: int) -> bytes | None:
    """The content of a string or a binary; ``None`` for another type."""
    if value[0] == narrow:
        return bytes(value[2:])
    return bytes(value[5:]) if value[0] == wide else None


def _address(terminus: bytes) -> bytes:
    """The address of a source or a target; empty for none."""
    if terminus[0] != _DESCRIBED:
        return b""
    at = _end(terminus, 1)
    if terminus[at] == _LIST0:
        return b""
    items = _items(terminus, at, _LIST8, _LIST32)
    found = _variable(terminus[slice(*items[0])], _STRING8, _STRING32) if items else None
    return found or b""


def _code(value: bytes) -> int | None:
    """The code of a described value; ``None`` for another value."""
    if value[0] != _DESCRIBED:
        return None
    if value[1] == _SMALL_ULONG:
        return value[2]
    return int.from_bytes(value[2:10]) if value[1] == _ULONG else None


def _is_of(frame: bytes, name: bytes) -> bool:
    found = read(frame)
    return found is not None and found.name == name


def _with_unsettled(frame: bytes, unsettled: Mapping[bytes, int], limit: int) -> tuple[bytes, int]:
    found = fields(frame, ATTACH)
    assert found is not None, "it was read before"
    values = [frame[at:end] for at, end in found]
    values += [bytes((_NULL,))] * (_INCOMPLETE + 1 - len(values))
    before, after = b"".join(values[:_UNSETTLED]), b"".join(values[_INCOMPLETE + 1 :])
    start = frame[: 4 * frame[4]] + ATTACH
    # The constructor, size and count of the list, and those of the map; the flag.
    left = limit - len(start) - 9 - len(before) - 9 - 1 - len(after)
    entries: list[tuple[bytes, int]] = []
    for tag, code in unsettled.items():
        left -= len(tag) + 6
        if left < 0:
            break
        entries.append((tag, code))
    complete = len(entries) == len(unsettled)
    flag = bytes((_NULL if complete else _TRUE,))
    body = before + (encode(entries) if entries else bytes((_NULL,))) + flag + after
    listed = bytes((_LIST32,)) + (len(body) + 4).to_bytes(4) + len(values).to_bytes(4) + body
    patched = start + listed
    if len(patched) > limit:
        return frame, 0
    return len(patched).to_bytes(4) + patched[4:], len(entries)
