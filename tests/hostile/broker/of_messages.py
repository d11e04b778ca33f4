"""Behaviours of messages that the broker sends: too many, too long, or unreadable."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from proton import uint

from tests.broker_stub.raw_client import ATTACH, FLOW, TRANSFER, frame, message
from tests.hostile import messages
from tests.hostile.broker.connection import Arrival, HostileConnection, ServedLink

# The client accepts messages of 256 MiB, so an endless message is legal until then. A machine that runs other
# tests as well has no room for that.
_LONGEST = 24 * 1024 * 1024
_MOST_BYTES = 192 * 1024 * 1024
_PART = 32 * 1024


def _overruns(c: HostileConnection, rng: random.Random) -> str:
    """Send more messages than the credit allows."""
    size = rng.choice((10, 1000, 50_000))
    count = min(rng.choice((1, 100, 6000, 20_000)), _MOST_BYTES // size)
    payload, settled = message(size), rng.random() < 0.3

    def overrun(what: Arrival) -> None:
        link = _receiver(c, what)
        if link is not None and link.count == 0:
            c.flood(_messages(c, link, payload, count, settled=settled))

    c.instead[FLOW] = overrun
    return f"{count} of {size} bytes{', settled' if settled else ''}"


def _messages(
    c: HostileConnection, link: ServedLink, payload: bytes, count: int, *, settled: bool
) -> Iterator[tuple[bytes, int]]:
    for _ in range(count):
        c.message(link, payload, settled=settled)
        yield b"", 0


def _receiver(c: HostileConnection, what: Arrival) -> ServedLink | None:
    handle = what.get(4)
    link = None if handle is None else c.links.get((what.channel, int(handle)))
    return link if link is not None and link.sends else None


def _endless(c: HostileConnection, rng: random.Random) -> str:
    """Begin a message that never ends, or that is aborted."""
    part, total = rng.choice((0, 100, _PART)), rng.choice((1000, _LONGEST))
    aborted = rng.random() < 0.4
    count = min(max(1, total // max(part, 1)), 50_000)

    def parts(link: ServedLink) -> Iterator[tuple[bytes, int]]:
        c.message(link, bytes(part), more=True)
        fields: list[Any] = [uint(link.handle), None, None, None, None, True]
        data = frame(TRANSFER, fields, bytes(part), channel=link.channel)
        for _ in range(count):
            yield data, 1
        if aborted:
            fields = [uint(link.handle), None, None, None, None, False, None, None, None, True]
            yield frame(TRANSFER, fields, channel=link.channel), 1

    def begin(what: Arrival) -> None:
        link = _receiver(c, what)
        if link is not None and link.count == 0:
            c.flood(parts(link))

    c.instead[FLOW] = begin
    return f"{count} parts of {part} bytes{', aborted' if aborted else ''}"


def _extreme(c: HostileConnection, rng: random.Random) -> str:
    """Send legal messages that no application would make, or messages that cannot be decoded."""
    malformed = rng.random() < 0.3

    def make() -> bytes:
        return messages.malformed(rng) if malformed else messages.extreme(rng)

    c.messages = make
    return "malformed" if malformed else "legal"


def _odd_transfers(c: HostileConnection, rng: random.Random) -> str:
    """Use the id of another delivery, a long tag, no tag, or the handle of a sender."""
    which = rng.choice(("the same id", "a long tag", "no tag", "no id", "a handle that is not attached"))
    changes: Mapping[str, dict[int, Any]] = {
        "the same id": {1: uint(0)},
        "a long tag": {2: b"t" * 33},
        "no tag": {2: None},
        "no id": {1: None},
        "a handle that is not attached": {0: uint(99)},
    }
    c.fields[TRANSFER] = changes[which]
    return which


def _unasked(c: HostileConnection, rng: random.Random) -> str:
    """Send messages to a sender of the client."""
    count = rng.choice((1, 1000))

    def act(what: Arrival) -> None:
        link = c.links.get((what.channel, int(what.get(1))))
        if link is not None and not link.sends:
            c.flood(_messages(c, link, message(100), count, settled=False))

    c.then[ATTACH].append(act)
    return f"{count}"


def _never_drains(c: HostileConnection, rng: random.Random) -> str:
    """Send no message, and answer no drain."""
    c.instead[FLOW] = lambda _: None
    return "no message"


BEHAVIOURS: Mapping[str, Callable[[HostileConnection, random.Random], str]] = {
    "more than its credit": _overruns,
    "a message without an end": _endless,
    "extreme messages": _extreme,
    "odd Transfers": _odd_transfers,
    "messages for senders": _unasked,
    "never drains": _never_drains,
}
