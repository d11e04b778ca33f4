r"""Fields of an Attach that proton does not hand on: the unsettled map, and texts with a NUL.

Rules
-----
* A peer's frame is untrusted: whatever cannot be read is no Attach, or has no map.
* A descriptor has several encodings, all of which count: proton takes two of them.
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

from haclient.engine.amqp_values import walk
from haclient.engine.amqp_values.encode import binary
from haclient.engine.amqp_values.walk import MalformedValue

_HEADER = 8
_NAME, _ROLE, _SOURCE, _UNSETTLED, _INCOMPLETE = 0, 2, 5, 7, 8
_MAX_TAG = 32
_MAPS = (walk.MAP8, walk.MAP32)
_NULL, _TRUE = bytes((walk.NULL,)), bytes((walk.TRUE,))


def descriptors(code: int, name: bytes) -> tuple[bytes, ...]:
    """How a described value begins: with its descriptor in each encoding, the usual one first."""
    size = len(name)
    symbols = bytes((0, walk.SYMBOL8, size)), bytes((0, walk.SYMBOL32)) + size.to_bytes(4)
    numbers = bytes((0, walk.SMALL_ULONG, code)), bytes((0, walk.ULONG)) + code.to_bytes(8)
    return (*numbers, *(symbol + name for symbol in symbols))


ATTACH = descriptors(0x12, b"amqp:attach:list")


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
        name = walk.content(found[_NAME], walk.STRING8) if found else None
        if found is None or name is None:
            return None
        texts = (name, *map(_address, found[_SOURCE:_UNSETTLED]))
        return AttachFrame(
            name,
            found[_ROLE] in (b"\x41", b"\x56\x01"),
            next((each for each in found[_UNSETTLED:_INCOMPLETE] if each[0] in _MAPS), b""),
            any(b"\0" in each for each in texts),
        )
    except (MalformedValue, IndexError):
        return None


def find(data: bytes, position: int = 0, start: tuple[bytes, ...] = ATTACH) -> Iterator[tuple[int, int]]:
    """Where the whole frames are, in bytes of frames, that have one of these descriptors."""
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


def fields(frame: bytes, descriptors: tuple[bytes, ...]) -> list[bytes] | None:
    """The encoded fields of a performative; ``None`` if the frame has another one.

    :raises MalformedValue: when it cannot be read.
    """
    body = 4 * frame[4] if len(frame) >= _HEADER else 0
    found = next((each for each in descriptors if frame.startswith(each, body)), None)
    return None if found is None else walk.items(frame, body + len(found))


def states(unsettled: bytes) -> dict[bytes, int | None]:
    """Decode an unsettled map: the code of each state's descriptor by tag, ``None`` for no state."""
    found: dict[bytes, int | None] = {}
    try:
        for key, value in walk.pairs(unsettled) if unsettled else ():
            tag = walk.content(key, walk.BINARY8)
            if tag is None or len(tag) > _MAX_TAG:
                continue
            if value[0] == walk.NULL:
                found[tag] = None
            elif value[0] == walk.DESCRIBED and (code := walk.described(value)[0]) >= 0:
                found[tag] = code
    except MalformedValue:
        return {}
    return found


def encode(unsettled: Iterable[tuple[bytes, int]]) -> bytes:
    """An unsettled map of states without fields."""
    items = list[bytes]()
    for tag, code in unsettled:
        items += binary(tag), bytes((walk.DESCRIBED, walk.SMALL_ULONG, code, walk.LIST0))
    return walk.compound(walk.MAP32, items)


# -- inside -----------------------------------------------------------------------------------------


def _address(terminus: bytes) -> bytes:
    """The address of a source or a target; empty for none."""
    if terminus[0] != walk.DESCRIBED:
        return b""
    found = walk.items(terminus, walk.described(terminus)[1])
    return (found and walk.content(found[0], walk.STRING8)) or b""


def _is_of(frame: bytes, name: bytes) -> bool:
    found = read(frame)
    return found is not None and found.name == name


def _with_unsettled(frame: bytes, unsettled: Mapping[bytes, int], limit: int) -> tuple[bytes, int]:
    values = fields(frame, ATTACH)
    assert values is not None, "it was read before"
    values += [_NULL] * (_INCOMPLETE + 1 - len(values))
    start = frame[: 4 * frame[4]] + ATTACH[0]
    # The constructor, size and count of the list, and those of the map; the flag.
    left = limit - len(start) - 9 - 9 - 1 - sum(map(len, values[:_UNSETTLED] + values[_INCOMPLETE + 1 :]))
    entries: list[tuple[bytes, int]] = []
    for tag, code in unsettled.items():
        left -= len(tag) + 6
        if left < 0:
            break
        entries.append((tag, code))
    complete = len(entries) == len(unsettled)
    values[_UNSETTLED : _INCOMPLETE + 1] = encode(entries) if entries else _NULL, _NULL if complete else _TRUE
    patched = start + walk.compound(walk.LIST32, values)
    if len(patched) > limit:
        return frame, 0
    return len(patched).to_bytes(4) + patched[4:], len(entries)
