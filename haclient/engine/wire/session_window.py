"""The window of a peer's session, from its Begin and Flows; proton does not report it.

Rules
-----
* Only the first session that the peer begins counts: a client's links are there.
* An incoming-window of 0 means that the peer accepts no transfers now, as RabbitMQ 4 in a memory or disk
  alarm.  Any other window means that it does, even while the window is used up.
* A peer's frame is untrusted: a frame that is not a Begin or Flow is ignored.

Source: AMQP 1.0 part 2, sections 2.5.6 (session flow control), 2.7.2 (begin) and 2.7.4 (flow).
"""

from __future__ import annotations

from collections.abc import Callable

from haclient.engine.amqp_values.walk import MalformedValue
from haclient.engine.wire import attach_frame
from haclient.engine.wire.begin_frame import BEGIN

FLOW = attach_frame.descriptors(0x13, b"amqp:flow:list")
# The index of the incoming-window in the fields of each.
_INCOMING_WINDOW = ((BEGIN, 2), (FLOW, 1))
# uint, in its three encodings (part 1, section 1.6.7).
_UINTS = b"\x43\x52\x70"


class SessionWindow:
    """The window of a client's peer.

    :ivar is_open: whether the peer accepts transfers.
    :ivar on_change: called with ``is_open`` at each change.
    """

    __slots__ = ("_channel", "is_open", "on_change")

    def __init__(self) -> None:
        self.is_open = True
        self.on_change: Callable[[bool], object] | None = None
        self._channel: int | None = None

    def read(self, frame: bytes) -> None:
        """Read a whole frame that may be a Begin or a Flow."""
        channel = int.from_bytes(frame[6:8])
        for descriptors, index in _INCOMING_WINDOW:
            if frame.startswith(descriptors, 4 * frame[4]):
                if self._channel is None and descriptors is BEGIN:
                    self._channel = channel
                window = _uint(frame, descriptors, index)
                if channel == self._channel and window is not None:
                    self._set(is_open=window > 0)

    def _set(self, *, is_open: bool) -> None:
        if is_open != self.is_open:
            self.is_open = is_open
            if self.on_change is not None:
                self.on_change(is_open)


def _uint(frame: bytes, descriptors: tuple[bytes, ...], index: int) -> int | None:
    """Return a field that is a number; ``None`` if it is absent or has another type."""
    try:
        field = (attach_frame.fields(frame, descriptors) or [])[index]
    except (MalformedValue, IndexError):
        return None
    return int.from_bytes(field[1:]) if field[0] in _UINTS else None
