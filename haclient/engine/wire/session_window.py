"""Whether a peer's session takes transfers, as its Begin and its Flows say; proton does not report it.

Rules
-----
* The first session that the peer begins is the one: a client's links are there.
* An incoming-window of 0 says that the peer takes nothing now, as RabbitMQ 4 does in a memory or disk alarm.
  Any other window says that it takes transfers, even if all of it is used up for a moment.
* A peer's frame is untrusted: what is no Begin or Flow says nothing.

Source: AMQP 1.0 part 2, sections 2.5.6 (session flow control), 2.7.2 (begin) and 2.7.4 (flow).
"""

from __future__ import annotations

from collections.abc import Callable

from haclient.engine.amqp_values.walk import MalformedValue
from haclient.engine.wire import attach_frame
from haclient.engine.wire.begin_frame import BEGIN

FLOW = attach_frame.descriptors(0x13, b"amqp:flow:list")
# Where the incoming-window is in the list of each.
_INCOMING_WINDOW = ((BEGIN, 2), (FLOW, 1))
# uint, in its three encodings (part 1, section 1.6.7).
_UINTS = b"\x43\x52\x70"


class SessionWindow:
    """The window of a client's peer.

    :ivar is_open: whether the peer takes transfers.
    :ivar on_change: called at each change, with that.
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
    """A field that is a number; ``None`` where it is absent or something else."""
    try:
        field = (attach_frame.fields(frame, descriptors) or [])[index]
    except (MalformedValue, IndexError):
        return None
    return int.from_bytes(field[1:]) if field[0] in _UINTS else None
