"""Behaviours of connections and sessions: handshakes, Opens, Begins, Closes, and silence."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from proton import symbol, ubyte, uint, ulong, ushort

from haclient.core.failures import ESTABLISHMENT_FAILED, REDIRECT
from haclient.engine.settings import PARK
from tests.broker_stub.raw_client import ATTACH, BEGIN, CLOSE, END, FLOW, OPEN, frame
from tests.hostile.broker.connection import (
    AMQP,
    HEADER,
    INIT,
    OUTCOME,
    TCP,
    Arrival,
    HostileConnection,
    error,
)

_CHALLENGE = 0x42
_IDLE, _MAX_FRAME, _CHANNEL_MAX, _OFFERED, _PROPERTIES = 4, 2, 3, 7, 9
_STEPS = {
    "TCP": TCP,
    "the SASL header": HEADER,
    "init": INIT,
    "the AMQP header": AMQP,
    "Open": OPEN,
    "Begin": BEGIN,
    "Attach": ATTACH,
    "Flow": FLOW,
}
_HUGE = 2**32 - 1
# Section 2.4.1: no peer may announce less.
_LEAST_FRAME = 512
_NASTY = "\x1b]0;owned\x07\x1b[31m\r\nERROR forged line\n\x00end"


def _nowhere(rng: random.Random) -> str:
    """Return a random loopback address without a listener."""
    return f"127.254.{rng.randint(1, 250)}.{rng.randint(1, 250)}"


def _silent_after(c: HostileConnection, rng: random.Random) -> str:
    """Stop answering after a step."""
    name = rng.choice(list(_STEPS))
    answered = rng.random() < 0.5

    def fall_silent(what: Arrival) -> None:
        if answered:
            c.answer(what)
        c.is_silent = True

    c.instead[_STEPS[name]] = fall_silent
    return f"{name}, {'answered' if answered else 'not answered'}"


def _deaf_after(c: HostileConnection, rng: random.Random) -> str:
    """Stop reading after a step."""
    name = rng.choice(list(_STEPS))
    c.then[_STEPS[name]].append(lambda _: c.transport.pause_reading())
    return name


def _dribbles(c: HostileConnection, rng: random.Random) -> str:
    """Send a few bytes at a time."""
    pause, size = rng.uniform(0.005, 0.1), rng.randint(1, 20)
    waiting = bytearray()
    direct = c.write

    def write(data: bytes, _frames: int = 1) -> None:
        waiting.extend(data)

    def send_some() -> None:
        if waiting:
            direct(bytes(waiting[:size]))
            del waiting[:size]

    c.write = write  # type: ignore[method-assign]
    c.then[TCP].append(lambda _: c.every(pause, send_some))
    return f"{size} bytes each {pause:.3f} s"


def _resets_after(c: HostileConnection, rng: random.Random) -> str:
    """Reset the connection after a step."""
    name = rng.choice(list(_STEPS))
    c.then[_STEPS[name]].append(lambda _: c.transport.abort())
    return name


def _offers_mechanisms(c: HostileConnection, rng: random.Random) -> str:
    """Offer very many mechanisms, or none that exists."""
    count = rng.choice((0, 1, 1000))
    c.mechanisms = tuple(f"X-{number}" for number in range(count)) + ("ANONYMOUS",) * (count > 1)
    return f"{len(c.mechanisms)} mechanisms"


def _sasl_outcomes(c: HostileConnection, rng: random.Random) -> str:
    """End SASL with any outcome, or continue with challenges."""
    code = rng.randint(0, 5)
    challenges = rng.choice((0, 0, 1, 1000))

    def answer(what: Arrival) -> None:
        for _ in range(challenges):
            c.send(_CHALLENGE, [rng.randbytes(rng.randint(0, 40))], kind=1)
        c.send(OUTCOME, [ubyte(code)], kind=1)

    c.instead[INIT] = answer
    return f"outcome {code} after {challenges} challenges"


def _idle_times(c: HostileConnection, rng: random.Random) -> str:
    """Request frames very often."""
    milliseconds = rng.choice((1, 1, 1, 1, 1, 2, 5, 20, 0, _HUGE))
    c.fields[OPEN] = {_IDLE: uint(milliseconds)}
    return f"{milliseconds} ms"


def _sizes(c: HostileConnection, rng: random.Random) -> str:
    """Announce the smallest and the largest sizes."""
    size = rng.choice((0, 1, _LEAST_FRAME, _LEAST_FRAME + 1, _HUGE))
    channels = rng.choice((0, 1, 65535))
    c.fields[OPEN] = {_MAX_FRAME: uint(size), _CHANNEL_MAX: ushort(channels)}
    window, handles = rng.choice((0, 1, 2**31, _HUGE)), rng.choice((0, 1, _HUGE))
    c.fields[BEGIN] = {2: uint(window), 3: uint(rng.choice((0, _HUGE))), 4: uint(handles)}
    return f"max-frame-size {size}, channel-max {channels}, incoming-window {window}, handle-max {handles}"


def _generations(c: HostileConnection, rng: random.Random) -> str:
    """Announce a generation that no member can have, and another cluster each time."""
    values: list[Any] = [ulong(2**63 - 1), ulong(2**64 - 1), ulong(2**23 + 1), -1, 0, "7", 1.5, None, [1]]
    generation = rng.choice(values)
    cluster = rng.choice((None, f"{rng.getrandbits(128):032x}", "x" * 10_000, _NASTY))
    properties = {symbol("haclient:generation"): generation, symbol("haclient:cluster"): cluster}
    c.fields[OPEN] = {_PROPERTIES: properties}
    return f"{generation!r}, cluster {str(cluster)[:20]!r}"


def _pushes_members(c: HostileConnection, rng: random.Random) -> str:
    """Announce very many other members, none of which exists."""
    count = rng.choice((1, 100, 400))
    members = [
        {symbol("network-host"): _nowhere(rng), symbol("port"): uint(rng.randint(0, 70000))}
        for _ in range(count)
    ]
    c.fields[OPEN] = {_PROPERTIES: {symbol("failover-server-list"): members}}
    return f"{count} members"


def _open_texts(c: HostileConnection, rng: random.Random) -> str:
    """Send names that are long, empty, or escape sequences for terminals."""
    name = rng.choice(("", _NASTY, "n" * 30_000))
    properties = {symbol(f"p{number}"): "v" * 100 for number in range(rng.choice((0, 400)))}
    properties |= {symbol("product"): _NASTY, symbol("version"): _NASTY}
    c.fields[OPEN] = {0: name, _PROPERTIES: properties}
    return f"container id {name[:10]!r}, {len(properties)} properties"


def _parks(c: HostileConnection, rng: random.Random) -> str:
    """Park every client, and answer its Begin late or never."""
    after = rng.choice((0.3, 2.0, 1e9))
    c.fields[OPEN] = {_OFFERED: symbol(PARK)}

    def begin(what: Arrival) -> None:
        c.after(after, lambda: c.answer(what))

    c.instead[BEGIN] = begin
    return "for ever" if after > 1e6 else f"for {after} s"


def _begins(c: HostileConnection, rng: random.Random) -> str:
    """Begin sessions endlessly, or leave the client's Begin unanswered."""
    if rng.random() < 0.3:
        c.instead[BEGIN] = lambda _: None
        return "never answered"
    count, ends = rng.choice((10, 255, 60_000)), rng.random() < 0.5

    def sessions() -> Iterator[tuple[bytes, int]]:
        for number in range(count):
            channel = 1 + number % 255 if count <= 255 else 1 + number
            begun = frame(BEGIN, [None, uint(0), uint(10), uint(10)], channel=channel)
            yield begun + frame(END, [], channel=channel) * ends, 1 + ends

    c.then[OPEN].append(lambda _: c.flood(sessions()))
    return f"{count} of its own{', each ended at once' if ends else ''}"


def _order(c: HostileConnection, rng: random.Random) -> str:
    """Answer in another order, twice, or with another answer."""
    which = rng.choice(
        ("Begin before Open", "two Opens", "two Begins", "Begin of another channel", "End first")
    )
    match which:
        case "Begin before Open":
            c.instead[AMQP] = lambda what: _begin_first(c, what)
        case "two Opens":
            c.then[AMQP].append(lambda _: c.send(OPEN, ["again"]))
        case "two Begins":
            c.then[BEGIN].append(c.answer)
        case "Begin of another channel":
            c.fields[BEGIN] = {0: ushort(rng.randint(1, 65535))}
        case _:
            c.instead[BEGIN] = lambda what: c.send(END, [], channel=what.channel)
    return which


def _begin_first(c: HostileConnection, what: Arrival) -> None:
    c.write(b"AMQP\x00\x01\x00\x00", 0)
    c.send(BEGIN, [ushort(0), uint(0), uint(100), uint(100)])
    c.send(OPEN, ["late"])


def _empty_frames(c: HostileConnection, rng: random.Random) -> str:
    """Send heartbeats by the thousand."""
    count = rng.choice((1000, 100_000, 1_000_000))
    empty = b"\x00\x00\x00\x08\x02\x00\x00\x00"
    c.then[OPEN].append(lambda _: c.flood((empty * 1000, 0) for _ in range(count // 1000)))
    return f"{count}"


def _ends_sessions(c: HostileConnection, rng: random.Random) -> str:
    """End the session at intervals."""
    seconds = rng.choice((0.0, 0.2, 1.0))
    fields = rng.choice(([], [error("amqp:internal-error", _NASTY)], [error("x:" + "y" * 1000)]))

    def end(what: Arrival) -> None:
        c.after(seconds, lambda: c.send(END, fields, channel=what.channel))

    c.then[BEGIN].append(end)
    return f"after {seconds} s"


def _redirection(c: HostileConnection, rng: random.Random) -> dict[Any, Any]:
    """Return a redirect's target: the next broker, the same broker, or an unused address."""
    peer = rng.choice(c.brokers.peers)
    host, port = peer.host, uint(peer.port)
    match rng.randrange(6):
        case 0:
            host = _nowhere(rng)
        case 1:
            host = rng.choice(("", "nowhere.invalid", "h" * 5000, "a b", _NASTY, "[::1", "1.2.3"))
        case 2:
            port = uint(rng.choice((0, 65536, _HUGE)))
    info: dict[Any, Any] = {symbol("network-host"): host, symbol("port"): port}
    if rng.random() < 0.2:
        info[symbol("scheme")] = rng.choice(("amqp", "amqps", "http", _NASTY))
    return info


def _redirects(c: HostileConnection, rng: random.Random) -> str:
    """Redirect endlessly: at the Open, at the Begin, or later."""
    info = _redirection(c, rng)
    condition = error(REDIRECT, "go there", info)
    match rng.randrange(3):
        case 0:
            c.fields[OPEN] = {_PROPERTIES: {symbol(ESTABLISHMENT_FAILED): True}}
            c.then[AMQP].append(lambda _: c.close(condition))
        case 1:
            c.instead[BEGIN] = lambda _: c.close(condition)
        case _:
            c.then[ATTACH].append(lambda _: c.close(condition))
    return f"to {str(info[symbol('network-host')])[:30]!r} {int(info[symbol('port')])}"


_CONDITIONS = (
    "amqp:connection:forced",
    "amqp:internal-error",
    "amqp:resource-limit-exceeded",
    "amqp:not-allowed",
    "amqp:not-found",
    "amqp:unauthorized-access",
    "amqp:invalid-field",
    "x:" + "y" * 2000,
)


def _closes(c: HostileConnection, rng: random.Random) -> str:
    """Close the connection at intervals: each second, or at once."""
    seconds = rng.choice((0.0, 0.05, 0.3, 1.0, 1.0))
    name = rng.choice(_CONDITIONS)
    values: list[Any] = [0, -1, 1, 10**15, 1e308, float("nan"), "soon", None, ulong(2**64 - 1), [1]]
    retry_after = rng.choice(values)
    info = rng.choice((None, {symbol("retry-after"): retry_after}, {symbol("invalid-field"): "container-id"}))
    description = rng.choice((None, "", _NASTY, "d" * 50_000))
    fields = rng.choice(([], [error(name, description, info)]))
    c.then[rng.choice((OPEN, BEGIN, BEGIN))].append(lambda _: c.after(seconds, lambda: c.close(*fields)))
    return f"after {seconds} s with {name[:30] if fields else 'no error'}, {info}"


def _says_more_after_close(c: HostileConnection, rng: random.Random) -> str:
    """Send more frames after a Close."""
    count = rng.choice((1, 1000))

    def close(what: Arrival) -> None:
        c.send(CLOSE, [])
        for _ in range(count):
            c.send(FLOW, [uint(0), uint(1), uint(0), uint(1)], channel=what.channel)

    c.then[ATTACH].append(close)
    return f"{count} Flows"


BEHAVIOURS: Mapping[str, Callable[[HostileConnection, random.Random], str]] = {
    "silent after a step": _silent_after,
    "reads nothing after a step": _deaf_after,
    "sends a few bytes at a time": _dribbles,
    "resets after a step": _resets_after,
    "offers odd mechanisms": _offers_mechanisms,
    "any outcome of SASL": _sasl_outcomes,
    "tiny idle time-outs": _idle_times,
    "smallest and largest sizes": _sizes,
    "impossible generations": _generations,
    "names members that do not exist": _pushes_members,
    "long and nasty names": _open_texts,
    "parks": _parks,
    "Begins without an end": _begins,
    "answers in the wrong order": _order,
    "empty frames by the thousand": _empty_frames,
    "ends sessions": _ends_sessions,
    "endless redirects": _redirects,
    "a Close each second": _closes,
    "goes on after its Close": _says_more_after_close,
}
