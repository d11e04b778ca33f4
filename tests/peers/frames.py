"""Splits the received bytes of a socket into protocol headers and frames.

Source: AMQP 1.0 part 2, sections 2.2 (version negotiation) and 2.3.1 (frame layout).
"""

from __future__ import annotations

from collections.abc import Iterator

HEADER_SIZE = 8
"""The size in bytes of a protocol header, and of a frame's header."""
_PROTOCOL = b"AMQP"


def is_protocol_header(data: bytes) -> bool:
    """Return whether this is a protocol header and no frame."""
    return data.startswith(_PROTOCOL)


def whole_frames(received: bytearray) -> Iterator[bytes]:
    """Remove each whole protocol header or frame from the start of ``received``, and yield it."""
    while len(received) >= HEADER_SIZE:
        size = HEADER_SIZE if is_protocol_header(received) else int.from_bytes(received[:4], "big")
        if len(received) < size:
            return
        frame = bytes(received[:size])
        del received[:size]
        yield frame
