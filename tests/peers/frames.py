"""Takes protocol headers and frames from what a socket has received so far.

Source: AMQP 1.0 part 2, sections 2.2 (version negotiation) and 2.3.1 (frame layout).
"""

from __future__ import annotations

from collections.abc import Iterator

HEADER_SIZE = 8
"""Bytes of a protocol header, and of the header of a frame."""
_PROTOCOL = b"AMQP"


def is_protocol_header(data: bytes) -> bool:
    """Return whether this is a protocol header and no frame."""
    return data.startswith(_PROTOCOL)


def whole_frames(received: bytearray) -> Iterator[bytes]:
    """Remove each whole protocol header or frame from the beginning of what was received."""
    while len(received) >= HEADER_SIZE:
        size = HEADER_SIZE if is_protocol_header(received) else int.from_bytes(received[:4], "big")
        if len(received) < size:
            return
        frame = bytes(received[:size])
        del received[:size]
        yield frame
