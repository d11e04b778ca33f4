"""The limits in a peer's Begins and Flows, which proton does not report.

Rules
-----
* The handle-max is the lowest one of all Begins: brokers use the same for each session.
* Only the first session's window counts: a client's links are there.  An incoming-window of 0 means that the
  peer accepts no transfers now, as RabbitMQ 4 in a memory or disk alarm.  Any other window means that it
  does, even while the window is used up.
* A peer's frame is untrusted: a frame or field that cannot be read is ignored.

Source: AMQP 1.0 part 1, section 1.6.7 (uint); part 2, sections 2.5.6 (session flow control), 2.7.2 (begin)
and 2.7.4 (flow).
"""

from __future__ import annotations

from collections.abc import Callable

from haclient.engine.amqp_values.walk import MalformedValue
from haclient.engine.wire import attach_frame

BEGIN = attach_frame.descriptors(0x11, b"amqp:begin:list")
FLOW = attach_frame.descriptors(0x13, b"amqp:flow:list")
# Indexes of fields.
_BEGIN_INCOMING_WINDOW, _HANDLE_MAX, _FLOW_INCOMING_WINDOW = 2, 4, 1
_NULL = b"\x40"
# uint, in its three encodings.
_UINTS = b"\x43\x52\x70"
ANY_HANDLE = 2**32 - 1
"""The default of a Begin's handle-max: the session may use every handle."""


class SessionLimits:
    """The limits of a client's peer.

    :ivar handle_max: the highest handle that a link may have; ``None`` before a Begin can be read.
    :ivar window_is_open: whether the peer accepts transfers.
    :ivar on_window_change: called with ``window_is_open`` at each change.
    """

    __slots__ = ("_channel", "handle_max", "on_window_change", "window_is_open")

    def __init__(self) -> None:
        self.handle_max: int | None = None
        self.window_is_open = True
        self.on_window_change: Callable[[bool], object] | None = None
        self._channel: int | None = None

    def read(self, frame: bytes) -> None:
        """Read a whole frame that may be a Begin or a Flow."""
        channel = int.from_bytes(frame[6:8])
        try:
            if (fields := attach_frame.fields(frame, BEGIN)) is not None:
                self._read_begin(fields, channel)
            elif channel == self._channel and (fields := attach_frame.fields(frame, FLOW)) is not None:
                self._set_window(_uint(fields, _FLOW_INCOMING_WINDOW))
        except MalformedValue:
            return

    def _read_begin(self, fields: list[bytes], channel: int) -> None:
        has_default = len(fields) <= _HANDLE_MAX or fields[_HANDLE_MAX] == _NULL
        found = ANY_HANDLE if has_default else _uint(fields, _HANDLE_MAX)
        if found is not None:
            self.handle_max = found if self.handle_max is None else min(self.handle_max, found)
        if self._channel is None:
            self._channel = channel
        if channel == self._channel:
            self._set_window(_uint(fields, _BEGIN_INCOMING_WINDOW))

    def _set_window(self, window: int | None) -> None:
        if window is not None and (window > 0) != self.window_is_open:
            self.window_is_open = window > 0
            if self.on_window_change is not None:
                self.on_window_change(self.window_is_open)


def _uint(fields: list[bytes], index: int) -> int | None:
    """Return a field that is a number; ``None`` if it is absent or has another type."""
    field = fields[index] if index < len(fields) else b""
    return int.from_bytes(field[1:]) if field and field[0] in _UINTS else None
