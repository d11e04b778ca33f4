"""Step over a peer's AMQP frames before proton reads them.

This finds the Attaches, which have fields that proton does not expose.  ``SessionLimits`` reads Begins and
Flows at once.  Beyond that, bytes are copied only if a frame arrives in pieces.  A SASL frame ends the
connection: ``sasl`` has read all that may come.

Sources: AMQP 1.0 part 2, sections 2.2 and 2.3 (headers, frames).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from haclient.engine.sasl.frames import AMQP_HEADER
from haclient.engine.wire import attach_frame, session_limits
from haclient.engine.wire.session_limits import SessionLimits

_HEADER = 8
# The highest code of the performatives that are read; the codes of transfers and dispositions are higher.
_FLOW, _CODE_AT = 0x13, 10
# Bytes of a descriptor at most: 0x00, the constructor of a ulong, and eight bytes.
_DESCRIPTOR = 10
_SASL_TYPE = 1
_SIZE_TYPE_AND_CODE = struct.Struct(">IxB4xB")
# Larger than any Attach whose map is read.
_MAX_ATTACH = 1024 * 1024
_READ = attach_frame.ATTACH + session_limits.BEGIN + session_limits.FLOW


class FrameOrder:
    """Checks the frames of one peer.

    :param limits: reads the peer's Begins and Flows.
    """

    __slots__ = (
        "_check",
        "_chunk",
        "_finished",
        "_first",
        "_held",
        "_limits",
        "_skip",
        "_unfinished",
    )

    def __init__(self, limits: SessionLimits | None = None) -> None:
        self._limits = limits
        self._skip = 0
        self._held = b""
        self._check = self._check_header
        self._chunk, self._first = b"", 0
        # An Attach, Begin or Flow that arrived in pieces: one completed by this chunk, one still incomplete.
        self._finished = b""
        self._unfinished = bytearray()

    def attaches(self) -> Iterator[bytes]:
        """Yield the Attach frames that the last ``add`` completed, each with its frame header.

        None are left after ``forget``.  A frame of more than 1 MiB is left out if it arrived in pieces.
        """
        for data, first in ((self._finished, 0), (self._chunk, self._first)):
            for start, end in attach_frame.find(data, first, attach_frame.ATTACH):
                yield data[start:end]

    def forget(self) -> None:
        """Drop the bytes of complete frames."""
        self._chunk = self._finished = b""

    def add(self, data: bytes) -> str:
        """Check bytes from the peer; return the error, or an empty string."""
        if self._held:
            data, self._held = self._held + data, b""
        elif self._skip > len(data):
            self._skip -= len(data)
            if self._unfinished:
                self._unfinished += data
            return ""
        position, end = self._end_unfinished(data), len(data)
        while position < end:
            if self._check == self._check_amqp:
                position, start = self._pass(data, position)
                if position > end:
                    self._begin_unfinished(data, start)
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

    def _end_unfinished(self, data: bytes) -> int:
        """Complete the unfinished frame with the first bytes of a chunk; return where it ends."""
        position, self._skip = self._skip, 0
        if self._unfinished:
            frame = bytes(self._unfinished + data[:position])
            # The first piece may have been too short to recognize the performative.
            is_whole = attach_frame.may_be(frame[: _HEADER + _DESCRIPTOR], _READ)
            self._finished = frame if is_whole else b""
            self._unfinished.clear()
            if is_whole and self._limits is not None:
                self._limits.read(frame)
        self._chunk, self._first = data, position
        return position

    def _pass(self, data: bytes, position: int) -> tuple[int, int]:
        """Step over complete frames (see ``_pass_frames``), and read the limits in Begins and Flows."""
        found: list[int] = []
        passed = _pass_frames(data, position, len(data) - _CODE_AT - 1, found)
        if (limits := self._limits) is not None:
            for start in found:
                end = start + int.from_bytes(data[start : start + 4])
                if end <= len(data):
                    limits.read(data[start:end])
        return passed

    def _begin_unfinished(self, data: bytes, start: int) -> None:
        """Keep the start of a frame that may be an Attach, Begin or Flow, unless it is too large."""
        size, beginning = int.from_bytes(data[start : start + 4]), data[start : start + _DESCRIPTOR + _HEADER]
        if size <= _MAX_ATTACH and attach_frame.may_be(beginning, _READ):
            self._unfinished += data[start:]

    def _check_header(self, data: bytes, position: int) -> int | str:
        """Read a protocol header; proton refuses an unknown one."""
        header = data[position : position + _HEADER]
        if len(header) < _HEADER and AMQP_HEADER.startswith(header):
            return 0
        self._first = position + _HEADER
        self._check = self._check_amqp if header == AMQP_HEADER else _anything
        return _HEADER

    @staticmethod
    def _check_amqp(data: bytes, position: int) -> int | str:
        header = data[position : position + _HEADER]
        if len(header) < _HEADER:
            return 0
        if header[5] == _SASL_TYPE:
            return "a SASL frame within AMQP"
        size = max(int.from_bytes(header[:4]), _HEADER)
        return size if len(data) - position > min(size - 1, _CODE_AT) else 0  # 0: wait for its code


def _pass_frames(data: bytes, position: int, last: int, found: list[int]) -> tuple[int, int]:
    """Step over complete AMQP frames; every message passes through this loop.

    :param last: last position at which a frame's size, type and code can be read.
    :param found: receives the starts of frames that may be a Begin, an Attach or a Flow.
    :returns: where stepping ended, and the start of the last frame stepped over.  The first is beyond the
        data if that frame is incomplete.
    """
    unpack = _SIZE_TYPE_AND_CODE.unpack_from
    start = position
    while position <= last:
        size, kind, code = unpack(data, position)
        if kind or size < _HEADER:
            break
        if code <= _FLOW and size > _HEADER:  # an empty frame has no code: this byte is the next frame's
            found.append(position)
        start = position
        position += size
    return position, start


def _anything(data: bytes, position: int) -> int:
    """Pass on the bytes of an unknown protocol, which proton refuses."""
    return len(data) - position
