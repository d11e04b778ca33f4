"""The calls and faults of a run, decoded from bytes."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

BYTES_PER_STEP = 4
# The range of a call's timeout in seconds, drawn on a logarithmic scale; without a byte, no timeout.
_LEAST, _MOST = 1e-5, 0.05


class Kind(enum.Enum):
    """The kind of a call."""

    SEND = "send with a timeout"
    SEND_AGAIN = "send with a timeout, and again with its duplicate id"
    SEND_CANCELLED = "send, cancelled"
    SEND_PATIENTLY = "send"
    FUTURE = "submit"
    FUTURE_CANCELLED = "submit, cancelled"
    RECEIVE = "receive with a timeout"
    RECEIVE_CANCELLED = "receive, cancelled"
    FLUSH = "flush with a timeout"
    LINK = "create_sender, cancelled"
    EVENTS = "events"


class Fault(enum.Enum):
    """A fault of the route."""

    NONE = "none"
    CUT = "cut"
    CUT_AFTER = "cut after some bytes"
    DOWN = "refused for a while"
    HOLD = "paused for a while"
    SLOW = "slow"
    FAST = "fast again"


# How often each is drawn, of 256.
_KINDS = {
    Kind.SEND: 70, Kind.SEND_AGAIN: 14, Kind.SEND_CANCELLED: 38, Kind.SEND_PATIENTLY: 30,
    Kind.FUTURE: 24, Kind.FUTURE_CANCELLED: 26, Kind.RECEIVE: 24, Kind.RECEIVE_CANCELLED: 12,
    Kind.FLUSH: 10, Kind.LINK: 4, Kind.EVENTS: 4,
}  # fmt: skip
_FAULTS = {
    Fault.NONE: 228, Fault.CUT: 5, Fault.CUT_AFTER: 5, Fault.DOWN: 3, Fault.HOLD: 5,
    Fault.SLOW: 4, Fault.FAST: 6,
}  # fmt: skip
_KIND_OF = tuple(kind for kind, count in _KINDS.items() for _ in range(count))
_FAULT_OF = tuple(fault for fault, count in _FAULTS.items() for _ in range(count))
assert len(_KIND_OF) == len(_FAULT_OF) == 256


@dataclass(frozen=True, slots=True)
class Step:
    """One fault and one call.

    :param seconds: timeout of the call.
    :param amount: strength of the fault, or of the pause after the call; 0 to 1.
    """

    kind: Kind
    seconds: float
    fault: Fault
    amount: float


def steps(data: bytes) -> Iterator[Step]:
    """Decode steps from bytes."""
    for kind, seconds, fault, amount in zip(*[iter(data)] * BYTES_PER_STEP, strict=True):
        time = _LEAST * (_MOST / _LEAST) ** (seconds / 255) if seconds else 0.0
        yield Step(_KIND_OF[kind], time, _FAULT_OF[fault], amount / 255)
