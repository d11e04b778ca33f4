"""Behaviours of links: Attaches, Flows, Dispositions and Detaches."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from proton import Described, symbol, uint, ulong

from tests.broker_stub.raw_client import ATTACH, DETACH, DISPOSITION, FLOW, TRANSFER, frame
from tests.hostile.broker.connection import Arrival, HostileConnection, error

_HUGE = 2**32 - 1
_SOURCE, _TARGET = 0x28, 0x29
_RECEIVED, _ACCEPTED, _REJECTED, _RELEASED, _MODIFIED, _DECLARED = 0x23, 0x24, 0x25, 0x26, 0x27, 0x33
_MANY = 1_000_000
_IN_A_PART = 1000


def _attach_answers(c: HostileConnection, rng: random.Random) -> str:
    """Answer an Attach with another name, another handle, twice, late, or not at all."""
    which = rng.choice(("another name", "another handle", "twice", "the same role", "never", "huge handle"))
    match which:
        case "another name":
            c.fields[ATTACH] = {0: "not what you asked for"}
        case "another handle":
            c.fields[ATTACH] = {1: uint(rng.randint(1, 255))}
        case "huge handle":
            c.fields[ATTACH] = {1: uint(_HUGE)}
        case "twice":
            c.then[ATTACH].append(c.answer)
        case "the same role":
            c.instead[ATTACH] = lambda what: c.send(
                ATTACH, [*what.fields[:3], *[None] * 6, uint(0)], channel=what.channel
            )
        case _:
            c.instead[ATTACH] = lambda _: None
    return which


def _refuses(c: HostileConnection, rng: random.Random) -> str:
    """Refuse links: without the Detach that must follow, or with any error."""
    detaches = rng.random() < 0.7
    conditions = ("amqp:not-found", "amqp:link:redirect", "amqp:resource-limit-exceeded", "x:" + "y" * 500)
    name, text = rng.choice(conditions), rng.choice((None, "\x1b[2J\n", "d" * 20_000))
    info = rng.choice((None, {symbol("network-host"): "\x00", symbol("address"): "\x1b" * 100}))

    def refuse(what: Arrival) -> None:
        fields = [
            what.get(0),
            uint(what.get(1)),
            not what.get(2),
            None,
            None,
            None,
            None,
            None,
            None,
            uint(0),
        ]
        c.send(ATTACH, fields, channel=what.channel)
        if detaches:
            c.send(DETACH, [uint(what.get(1)), True, error(name, text, info)], channel=what.channel)

    c.instead[ATTACH] = refuse
    return f"with {name[:30]}" if detaches else "without a Detach"


def _attach_sizes(c: HostileConnection, rng: random.Random) -> str:
    """Announce the smallest message size, the largest counts, and unknown unsettled deliveries."""
    size = rng.choice((1, 10, 2**64 - 1))
    count = rng.choice((0, _HUGE))
    tags = rng.choice((0, 1, 1000))
    c.fields[ATTACH] = {9: uint(count), 10: ulong(size)}
    if tags:
        accepted = Described(ulong(_ACCEPTED), [])
        c.fields[ATTACH][7] = {number.to_bytes(4, "big"): accepted for number in range(tags)}
    return f"max-message-size {size}, initial-delivery-count {count}, {tags} unsettled"


def _attaches(c: HostileConnection, rng: random.Random) -> str:
    """Attach links that the client did not request."""
    count, sends = rng.choice((1, 100, 10_000)), rng.random() < 0.5
    nodes = [Described(ulong(_SOURCE), ["a"]), Described(ulong(_TARGET), ["b"])]

    def links(what: Arrival) -> Iterator[tuple[bytes, int]]:
        for number in range(count):
            fields = [
                f"mine-{number}",
                uint(1000 + number),
                not sends,
                None,
                None,
                *nodes,
                None,
                None,
                uint(0),
            ]
            yield frame(ATTACH, fields, channel=what.channel), 1

    c.then[ATTACH].append(lambda what: c.flood(links(what)))
    return f"{count} {'senders' if sends else 'receivers'}"


def _credits(c: HostileConnection, rng: random.Random) -> str:
    """Grant no credit, very much, or less than before; drain senders; start counts anywhere."""
    credit, count = rng.choice((0, 1, _HUGE, _HUGE)), rng.choice((0, 5, 2**31, _HUGE))
    drain, echo = rng.random() < 0.3, rng.random() < 0.3
    window, expected = rng.choice((0, 1, _HUGE)), rng.choice((0, 1000, _HUGE))
    c.fields[FLOW] = {
        0: uint(expected),
        1: uint(window),
        5: uint(count),
        6: uint(credit),
        7: uint(rng.choice((0, _HUGE))),
        8: drain,
        9: echo,
    }
    return f"credit {credit}, delivery-count {count}, window {window}, expects {expected}, drain {drain}"


def _flows(c: HostileConnection, rng: random.Random) -> str:
    """Request Flows continuously."""
    count, seconds = rng.choice((1, 10, 100)), rng.choice((0.001, 0.05))
    handle = rng.choice((None, 0, 200))

    def ask(what: Arrival) -> Callable[[], None]:
        fields: list[Any] = [uint(0), uint(1000), uint(0), uint(1000), handle, uint(0), uint(1), uint(0)]
        fields[4] = None if handle is None else uint(handle)
        data = frame(FLOW, [*fields, False, True], channel=what.channel)
        return lambda: c.write(data * count, count)

    c.then[ATTACH].append(lambda what: c.every(seconds, ask(what)))
    return f"{count} each {seconds} s, handle {handle}"


def _states(rng: random.Random) -> Any:
    big = "e" * rng.choice((1, 20_000))
    return rng.choice(
        (
            None,
            Described(ulong(_RECEIVED), [uint(0), ulong(2**64 - 1)]),
            Described(ulong(_ACCEPTED), []),
            Described(ulong(_REJECTED), [error("x:" + big[:100], big + "\x1b[2J")]),
            Described(ulong(_RELEASED), []),
            Described(ulong(_MODIFIED), [True, True, {symbol("x-opt-n"): big}]),
            Described(ulong(_DECLARED), [b"txn"]),
            Described(ulong(0x99), []),
        )
    )


def _dispositions(c: HostileConnection, rng: random.Random) -> str:
    """Settle a million deliveries that were never sent, one at a time or all at once."""
    is_receiver, state = rng.random() < 0.7, _states(rng)
    first = rng.choice((0, 1, 2**31, _HUGE))
    if rng.random() < 0.4:
        last = rng.choice((first, _HUGE, 2**31 - 1, 0))
        fields = [is_receiver, uint(first), uint(last), True, state]
        c.then[ATTACH].append(lambda what: c.send(DISPOSITION, fields, channel=what.channel))
        return f"{first} to {last}"
    count = rng.choice((1000, 100_000, _MANY))
    c.then[ATTACH].append(lambda what: c.flood(_singles(what.channel, is_receiver, first, count)))
    return f"{count} from {first} on"


def _singles(channel: int, is_receiver: bool, first: int, count: int) -> Iterator[tuple[bytes, int]]:
    mark = 0x7BCDEF12
    made = frame(
        DISPOSITION,
        [is_receiver, uint(mark), uint(mark), True, Described(ulong(_ACCEPTED), [])],
        channel=channel,
    )
    wanted = mark.to_bytes(4)
    for start in range(first, first + count, _IN_A_PART):
        part = [made.replace(wanted, (n % 2**32).to_bytes(4)) for n in range(start, start + _IN_A_PART)]
        yield b"".join(part), 0  # proton drops them: they count by their bytes


def _outcomes(c: HostileConnection, rng: random.Random) -> str:
    """Settle the client's deliveries with any state, twice, unsettled, or not at all."""
    state, settled, times = _states(rng), rng.random() < 0.7, rng.choice((0, 1, 1, 2))

    def settle(what: Arrival) -> None:
        if what.get(1) is None:
            return
        for _ in range(times):
            fields = [True, uint(what.get(1)), None, settled, state]
            c.send(DISPOSITION, fields, channel=what.channel)

    c.instead[TRANSFER] = settle
    return f"{times} times with {state.descriptor if state else None}, settled {settled}"


def _detaches(c: HostileConnection, rng: random.Random) -> str:
    """Detach each link at intervals."""
    seconds = rng.choice((0.0, 0.1, 1.0))
    closed = rng.random() < 0.6
    fields = rng.choice(([], [error("amqp:link:detach-forced", "\n")], [error("amqp:link:stolen")]))

    def detach(what: Arrival) -> None:
        def act() -> None:
            if (what.channel, what.get(1)) in c.links:
                c.send(DETACH, [uint(what.get(1)), closed, *fields], channel=what.channel)
                c.links.pop((what.channel, what.get(1)))

        c.after(seconds, act)

    c.then[ATTACH].append(detach)
    return f"after {seconds} s, closed {closed}"


def _detach_answers(c: HostileConnection, rng: random.Random) -> str:
    """Leave a Detach unanswered, or answer a different one."""
    which = rng.choice(("never", "of another handle", "twice"))
    match which:
        case "never":
            c.instead[DETACH] = lambda _: None
        case "of another handle":
            c.fields[DETACH] = {0: uint(rng.randint(1, 255))}
        case _:
            c.then[DETACH].append(c.answer)
    return which


BEHAVIOURS: Mapping[str, Callable[[HostileConnection, random.Random], str]] = {
    "answers Attaches with something else": _attach_answers,
    "refuses links": _refuses,
    "smallest messages and largest counts": _attach_sizes,
    "attaches links of its own": _attaches,
    "absurd counters in Flows": _credits,
    "Flows all the time": _flows,
    "a million Dispositions": _dispositions,
    "any outcome, or none": _outcomes,
    "detaches": _detaches,
    "answers Detaches with something else": _detach_answers,
}
