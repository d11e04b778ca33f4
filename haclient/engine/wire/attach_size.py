"""The size of a link's Attach, before it is sent.

proton sends even an Attach that exceeds the peer's frame size; the peer then ends the connection with all its
links.  So the Attach is first encoded on a connection that has no socket.

Source: AMQP 1.0 part 2, sections 2.3.1 (frame layout) and 2.8.15 (``frame-size-too-small``).
"""

from __future__ import annotations

import proton
from cproton_ffi import lib

FRAME_SIZE_TOO_SMALL = "amqp:frame-size-too-small"
_HEADER = 8  # the protocol header before the first frame
# An upper bound of an Attach without its strings and maps; encoding one costs as much as ten messages.
_FIXED_SIZE = 256
_SIDES = (lib.pn_link_source, lib.pn_link_target)
_MAPS = (
    lib.pn_terminus_properties,
    lib.pn_terminus_capabilities,
    lib.pn_terminus_outcomes,
    lib.pn_terminus_filter,
)


class AttachTooLarge(Exception):
    """The Attach exceeds the peer's frame size."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"its Attach takes a frame of {size} bytes, and the peer takes {limit} at most")


def check(endpoint: proton.Sender | proton.Receiver, transport: proton.Transport) -> None:
    """Check that an Attach fits.

    :raises AttachTooLarge: when it does not.
    """
    limit = transport.remote_max_frame_size
    if not limit or (not endpoint.properties and _at_most(endpoint) <= limit):
        return
    if (size := attach_size(endpoint)) > limit:
        raise AttachTooLarge(size, limit)


def attach_size(endpoint: proton.Sender | proton.Receiver) -> int:
    """Return the size of the frame; it is up to four bytes more on a connection with more than 255 links."""
    connection, transport = proton.Connection(), proton.Transport()
    transport.bind(connection)
    connection.open()
    session = connection.session()
    session.open()
    name = endpoint.name
    link = session.sender(name) if isinstance(endpoint, proton.Sender) else session.receiver(name)
    for side in _SIDES:
        lib.pn_terminus_copy(side(link._impl), side(endpoint._impl))
    link.snd_settle_mode, link.rcv_settle_mode = endpoint.snd_settle_mode, endpoint.rcv_settle_mode
    link.max_message_size = endpoint.max_message_size
    link.properties = endpoint.properties
    link.open()
    output = transport.peek(transport.pending()) or b""
    lib.pn_connection_release(connection._impl)
    return _last_frame(output)


def _at_most(endpoint: proton.Sender | proton.Receiver) -> int:
    """Return an upper bound of the frame's size; properties are excluded (encoded on opening)."""
    impl = endpoint._impl
    maps: int = sum(lib.pn_data_encoded_size(field(side(impl))) for side in _SIDES for field in _MAPS)
    strings = (endpoint.name, endpoint.source.address, endpoint.target.address)
    return _FIXED_SIZE + maps + sum(len(string.encode()) for string in strings if string)


def _last_frame(output: bytes) -> int:
    position, size = _HEADER, 0
    while position < len(output):
        size = int.from_bytes(output[position : position + 4], "big")
        position += size
    return size
