"""The order of a peer's frames, which is checked before proton sees them.

proton hands every SASL frame to Cyrus SASL, whenever it arrives, also within AMQP.  At a response before the
client has chosen a mechanism Cyrus follows a pointer that is not set, and the process is gone; each
further choice of one costs memory that is not given back.  So a peer whose frames come in another order than
the standard's ends its connection here.

Not for TLS of proton's own, inside which nothing can be read: such a listener asks for client certificates.

Sources: AMQP 1.0 part 2, sections 2.2 and 2.3 (headers, frames); part 5, section 5.3.2 (SASL negotiation).
"""

from __future__ import annotations

import struct

_HEADER = 8
_SASL, _AMQP = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
# A constructor, that of a small or a large ulong, and its value.
_DESCRIPTOR = 10
_SMALL_ULONG, _ULONG = 0x53, 0x80
_MECHANISMS, _INIT, _CHALLENGE, _RESPONSE, _OUTCOME = range(0x40, 0x45)
_SASL_TYPE = 1
_SIZE_AND_TYPE = struct.Struct(">IxB")
# A token or a certificate; RFC 7628 has none longer than some kilobytes.
_MAX_SASL_FRAME = 65536


class FrameOrder:
    """Checks the bytes of one peer.

    :param server: whether the peer is a client.
    """

    __slots__ = ("_allowed", "_check", "_held", "_later", "_skip")

    def __init__(self, *, server: bool) -> None:
        # What must come first, and what may come after it.
        self._allowed: tuple[int, ...] = (_INIT,) if server else (_MECHANISMS,)
        self._later: tuple[int, ...] = (_RESPONSE,) if server else (_CHALLENGE, _OUTCOME)
        self._skip = 0
        self._held = b""
        self._check = self._check_header

    def add(self, data: bytes) -> str:
        """The peer sent bytes; what is wrong with them, empty for nothing."""
        if self._held:
            data, self._held = self._held + data, b""
        elif self._skip >= len(data):
            self._skip -= len(data)
            return ""
        position, end = self._skip, len(data)
        self._skip = 0
        while position < end:
            if self._check == self._check_amqp:
                position = _pass_frames(data, position, end - _HEADER)
                if position >= end:
                    break
            step = self._check(data, position)
            if isinstance(step, str):
                return step
            if not step:
                self._held = data[position:]
                return ""
            position += step
        self._skip = position - end
        return ""

    def _check_header(self, data: bytes, position: int) -> int | str:
        """The header of a protocol; one that proton does not know is its to refuse."""
        header = data[position : position + _HEADER]
        if len(header) < _HEADER and (_SASL.startswith(header) or _AMQP.startswith(header)):
            return 0
        self._check = {_SASL: self._check_sasl, _AMQP: self._check_amqp}.get(header, _anything)
        return _HEADER

    def _check_sasl(self, data: bytes, position: int) -> int | str:
        header = data[position : position + _HEADER]
        if header.startswith(b"AMQP"):
            return self._check_header(data, position)
        if len(header) < _HEADER:
            return 0
        size, offset = int.from_bytes(header[:4]), 4 * header[4]
        if header[5] != _SASL_TYPE or not _HEADER <= offset < size <= _MAX_SASL_FRAME:
            return "not a SASL frame"
        descriptor = data[position + offset : position + min(size, offset + _DESCRIPTOR)]
        if len(descriptor) < min(size - offset, _DESCRIPTOR):
            return 0
        if _code(descriptor) not in self._allowed:
            return "a SASL frame out of order"
        self._allowed = self._later
        return size

    @staticmethod
    def _check_amqp(data: bytes, position: int) -> int | str:
        header = data[position : position + _HEADER]
        if len(header) < _HEADER:
            return 0
        if header[5] == _SASL_TYPE:
            return "a SASL frame within AMQP"
        return max(int.from_bytes(header[:4]), _HEADER)


def _pass_frames(data: bytes, position: int, last: int) -> int:
    """Where the first frame starts that is incomplete, or not of AMQP: every message goes through this."""
    unpack = _SIZE_AND_TYPE.unpack_from
    while position <= last:
        size, kind = unpack(data, position)
        if kind or size < _HEADER:
            break
        position += size
    return position


def _anything(data: bytes, position: int) -> int:
    """Bytes of no protocol that proton speaks: it refuses them."""
    return len(data) - position


def _code(descriptor: bytes) -> int:
    """The code of a performative, -1 for none."""
    if descriptor[:1] == b"\x00":
        if descriptor[1:2] == bytes((_SMALL_ULONG,)):
            return int.from_bytes(descriptor[2:3])
        if descriptor[1:2] == bytes((_ULONG,)):
            return int.from_bytes(descriptor[2:_DESCRIPTOR])
    return -1
