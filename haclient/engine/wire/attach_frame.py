r"""Read and write fields of an Attach that proton does not expose: the unsettled map, and texts with a NUL.

Rules
-----
* A peer's frame is untrusted.  If it cannot be read, it counts as no Attach, or as one without a map.
* A descriptor has several encodings, and all are accepted; proton accepts two.
* proton keeps the link's name and the addresses as C strings, which end at a NUL: ``a\0b`` would be another
  node or link.  Capabilities, filters and properties are not cut.
* An entry of a map counts only if an outcome can refer to it: a tag of at most 32 bytes, and no delivery
  state or one with a numeric descriptor.  Other entries are skipped.
* A map is at most as large as a frame, and is decoded on demand.

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
    """Return the start of a described value for each encoding of its descriptor, the usual one first."""
    size = len(name)
    symbols = bytes((0, walk.SYMBOL8, size)), bytes((0, walk.SYMBOL32)) + size.to_bytes(4)
    numbers = bytes((0, walk.SMALL_ULONG, code)), bytes((0, walk.ULONG)) + code.to_bytes(8)
    return (*numbers, *(symbol + name for symbol in symbols))


ATTACH = descriptors(0x12, b"amqp:attach:list")


class AttachFrame(NamedTuple):
    """The fields of an Attach that the engine reads itself.

    :param from_receiver: whether the sender of the frame is the receiver of the link.
    :param unsettled: the unsettled map, encoded; empty if there is none.
    :param has_nul: whether the name or an address has a NUL.
    """

    name: bytes
    from_receiver: bool
    unsettled: bytes
    has_nul: bool = False

    @property
    def link(self) -> tuple[bytes, bool]:
        """Return the link's name in proton, which cuts names at a NUL, and ``from_receiver``."""
        return self.name.partition(b"\0")[0], self.from_receiver


def read(frame: bytes) -> AttachFrame | None:
    """Read a complete frame; return ``None`` if it is no Attach."""
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


def by_link(frames: Iterable[bytes]) -> dict[tuple[bytes, bool], AttachFrame]:
    """Read Attaches, and return the last one of each link; see ``AttachFrame.link``.

    Sessions may have links of one name, and the frames are not told apart by session.  So a NUL in any of
    them counts for all: none can hide behind a later one.
    """
    found: dict[tuple[bytes, bool], AttachFrame] = {}
    for each in filter(None, map(read, frames)):
        hidden = each.link in found and found[each.link].has_nul
        found[each.link] = each._replace(has_nul=each.has_nul or hidden)
    return found


def find(data: bytes, position: int = 0, start: tuple[bytes, ...] = ATTACH) -> Iterator[tuple[int, int]]:
    """Find the complete frames with one of these descriptors; yield start and end of each.

    Each frame begins where the one before it ends.  The search stops at a frame that is incomplete or has an
    invalid size.

    :param position: where the first frame begins.
    :param start: the encoded descriptors, from ``descriptors``.
    """
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
    """Return whether an unfinished frame may be one of these performatives; true if too short to tell.

    :param start: the first bytes of the frame, with its header.
    """
    body = 4 * start[4] if len(start) > 4 else _HEADER  # noqa: PLR2004
    return any(each.startswith(start[body : body + len(each)]) for each in descriptors)


def add_unsettled(
    output: bytes, name: bytes, unsettled: Mapping[bytes, int], limit: int
) -> tuple[bytes, int]:
    """Put an unsettled map into the last Attach of a link among the frames to be sent.

    If some states do not fit, the last ones are left out, and the map is marked as incomplete.
    The frames stay as they are if none is an Attach of the link, or if even an empty map does not fit.

    :param output: the frames, encoded.
    :param name: the link's name, not cut at a NUL.
    :param unsettled: the descriptor codes of the states by delivery tag; not empty.
    :param limit: the peer's maximum frame size in bytes.
    :returns: the frames, and the number of states in the map.
    """
    found = [span for span in find(output) if _is_of(output[slice(*span)], name)]
    if not found:
        return output, 0
    start, end = found[-1]
    frame, count = _with_unsettled(output[start:end], unsettled, limit)
    return output[:start] + frame + output[end:], count


def fields(frame: bytes, descriptors: tuple[bytes, ...]) -> list[bytes] | None:
    """Return the encoded fields of a performative; ``None`` if the frame has another one.

    :param descriptors: the encoded descriptors of the performative, from the function ``descriptors``.
    :raises MalformedValue: if the frame cannot be read.
    """
    body = 4 * frame[4] if len(frame) >= _HEADER else 0
    found = next((each for each in descriptors if frame.startswith(each, body)), None)
    return None if found is None else walk.items(frame, body + len(found))


def states(unsettled: bytes) -> dict[bytes, int | None]:
    """Decode an unsettled map: descriptor code of each state by tag, ``None`` without a state.

    If the map cannot be read, the result is empty.
    """
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
    """Encode an unsettled map of states without fields."""
    items = list[bytes]()
    for tag, code in unsettled:
        items += binary(tag), bytes((walk.DESCRIBED, walk.SMALL_ULONG, code, walk.LIST0))
    return walk.compound(walk.MAP32, items)


# -- inside -----------------------------------------------------------------------------------------


def _address(terminus: bytes) -> bytes:
    """Return the address of a source or a target; empty if there is none."""
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
    # Nine bytes of constructor, size and count for the list, nine for the map, one for the flag.
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
