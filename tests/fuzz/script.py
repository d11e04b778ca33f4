"""Scripts: inputs made of steps, so that a mutation of one frame leaves its neighbours whole.

A step is a byte for its kind, two bytes of length, and a body. Every sequence of bytes is a script: an
unknown kind is taken modulo their number, and a length is cut at the input's end. The frame's header is
written during the replay, so its size is always right. Wrong sizes come from ``RAW``.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple


class Kind(enum.IntEnum):
    """The kinds of steps."""

    FRAME = 0
    """An AMQP frame: a byte for the channel, then the body."""
    SASL = 1
    """The body of a SASL frame."""
    RAW = 2
    """Bytes sent unchanged."""
    TIME = 3
    """Hundredths of a second that pass: the number of bytes plus their sum."""
    CONGESTION = 4
    """The peer stops reading (an odd first byte), or resumes."""
    END = 5
    """The peer ends its side of the connection."""
    PROOF = 6
    """The SASL frame of a peer that knows the password, altered by the body (``scram``)."""


AT_ONCE = 0x80
"""A bit in the kind's byte: the next step's bytes arrive in the same loop iteration."""
_KINDS = len(Kind)
_HEAD = 3
_MOST_STEPS = 64
_MOST_BYTES = 0xFFFF
# Codes of described types that may replace each other: part 2, section 2.7 (performatives); part 3, sections
# 3.4 (states of a delivery) and 3.2 (sections of a message); part 5, section 5.3.3 (SASL).
_FAMILIES = (range(0x10, 0x19), range(0x23, 0x29), range(0x70, 0x79), range(0x40, 0x45))
_DESCRIPTOR = b"\x00\x53"


class Step(NamedTuple):
    """One step.

    :param at_once: see ``AT_ONCE``.
    """

    kind: Kind
    body: bytes = b""
    at_once: bool = False


def parse(data: bytes) -> Iterator[Step]:
    """Yield the steps of an input, at most 64."""
    position = 0
    for _ in range(_MOST_STEPS):
        if position >= len(data):
            return
        code = data[position]
        size = int.from_bytes(data[position + 1 : position + _HEAD])
        body = data[position + _HEAD : position + _HEAD + size]
        yield Step(Kind((code & ~AT_ONCE) % _KINDS), body, bool(code & AT_ONCE))
        position += _HEAD + size


def encode(steps: Iterable[Step]) -> bytes:
    """Encode steps as an input. A body that is too long is cut."""
    return b"".join(
        bytes([step.kind | AT_ONCE * step.at_once])
        + len(step.body[:_MOST_BYTES]).to_bytes(2)
        + step.body[:_MOST_BYTES]
        for step in steps
    )


def wire(step: Step) -> bytes:
    """Return the bytes of a step that has some.

    Source: AMQP 1.0 part 2, section 2.3.1 (frames); part 5, section 5.3.1 (SASL frames).
    """
    if step.kind is Kind.RAW:
        return step.body
    if step.kind is Kind.SASL:
        return (len(step.body) + 8).to_bytes(4) + b"\x02\x01\x00\x00" + step.body
    channel, body = step.body[:1] or b"\x00", step.body[1:]
    return (len(body) + 8).to_bytes(4) + b"\x02\x00\x00" + channel + body


def of_wire(data: bytes) -> Iterator[Step]:
    """Convert a peer's bytes to steps: protocol headers and frames."""
    position = 0
    while position < len(data):
        if data.startswith(b"AMQP", position):
            yield Step(Kind.RAW, data[position : position + 8])
            position += 8
            continue
        size = int.from_bytes(data[position : position + 4])
        frame = data[position : position + max(size, 8)]
        sasl, channel = frame[5] == 1, frame[7:8]
        yield Step(Kind.SASL, frame[8:]) if sasl else Step(Kind.FRAME, channel + frame[8:])
        position += len(frame)


def mutate(data: bytes, limit: int, seed: int, mutate_bytes: Callable[[bytes, int], bytes]) -> bytes:
    """Return another script: mutate one step's body, or drop, double or swap steps."""
    chance = random.Random(seed)
    steps = list(parse(data))
    if not steps or chance.random() < 0.1:
        return mutate_bytes(data, limit)
    at = chance.randrange(len(steps))
    step = steps[at]
    match chance.randrange(10):
        case 0:
            del steps[at]
        case 1:
            steps.insert(chance.randrange(len(steps) + 1), step)
        case 2:
            other = chance.randrange(len(steps))
            steps[at], steps[other] = steps[other], step
        case 3:
            steps[at] = step._replace(at_once=not step.at_once)
        case 4:
            made = Step(Kind(chance.choice((Kind.TIME, Kind.CONGESTION, Kind.END))), chance.randbytes(1))
            steps.insert(at, made)
        case 5 | 6 if _DESCRIPTOR in step.body:
            steps[at] = step._replace(body=_other_type(step.body, chance))
        case _:
            body = mutate_bytes(step.body, len(step.body) + 64)
            steps[at] = step._replace(body=body)
    return encode(steps)[:limit]


def _other_type(body: bytes, chance: random.Random) -> bytes:
    """Replace one described type by another of its family, such as one outcome by another."""
    at = chance.choice([index for index in range(len(body)) if body.startswith(_DESCRIPTOR, index)])
    at += len(_DESCRIPTOR)
    for family in _FAMILIES:
        if body[at : at + 1] and body[at] in family:
            return body[:at] + bytes([chance.choice(family)]) + body[at + 1 :]
    return body


def splice(one: bytes, other: bytes, limit: int, seed: int) -> bytes:
    """Join the beginning of one script and the end of another."""
    chance = random.Random(seed)
    first, second = list(parse(one)), list(parse(other))
    head = first[: chance.randrange(len(first) + 1)]
    return encode(head + second[chance.randrange(len(second) + 1) :])[:limit]
