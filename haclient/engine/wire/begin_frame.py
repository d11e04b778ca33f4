"""Reads the handle-max of a Begin, which proton does not expose.

A peer's frame is untrusted: a frame that is not a Begin, or has no readable handle-max, yields ``None``.

Source: AMQP 1.0 part 2, section 2.7.2 (begin); part 1, section 1.6.5 (uint).
"""

from __future__ import annotations

from collections.abc import Iterable

from haclient.engine.amqp_values.walk import MalformedValue
from haclient.engine.wire import attach_frame

BEGIN = attach_frame.descriptors(0x11, b"amqp:begin:list")
_HANDLE_MAX = 4
_NULL, _UINT0, _SMALL_UINT, _UINT = 0x40, 0x43, 0x52, 0x70
ANY = 2**32 - 1
"""The default: the session may use every handle."""
ASSUMED = 255
"""Used until a Begin can be read: the smallest handle-max of a tested broker (RabbitMQ 4.0.5)."""


def handle_max(frame: bytes) -> int | None:
    """Return the handle-max of a whole frame; ``None`` if it is not a Begin, or cannot be read."""
    try:
        fields = attach_frame.fields(frame, BEGIN)
        if fields is None:
            return None
        if len(fields) <= _HANDLE_MAX:
            return ANY
        return _uint(fields[_HANDLE_MAX])
    except MalformedValue:
        return None


def lowest(frames: Iterable[bytes], known: int | None) -> int | None:
    """Return the lowest of ``known`` and the handle-max of these frames."""
    found = [number for frame in frames if (number := handle_max(frame)) is not None]
    return min([*found, known] if known is not None else found, default=None)


def _uint(value: bytes) -> int | None:
    kind = value[0]
    if kind in (_SMALL_UINT, _UINT):
        return int.from_bytes(value[1:])
    return {_NULL: ANY, _UINT0: 0}.get(kind)
