"""The acts of hostile clients. Each act opens its own connections, and drops them at its end.

An act may end with any connection error: the member is right to end it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proton import Data, Described, symbol, ubyte, uint, ulong, ushort

from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.settings import PARK
from tests.broker_stub import raw_client as raw
from tests.broker_stub.raw_client import RawClient, raw_client
from tests.fuzz import script
from tests.hostile import messages
from tests.peers.odd import VALUES

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus" / "server"
_SELECTOR = "apache.org:selector-filter:string"
_SELECTOR_CODE = 0x468C00000004
_SOURCE, _TARGET = 0x28, 0x29
_ACCEPTED, _REJECTED, _RELEASED, _MODIFIED, _RECEIVED = 0x24, 0x25, 0x26, 0x27, 0x23
_HUGE = uint(2**32 - 1)
_NAMES = (
    "",
    "a\x00b",
    "\x00nul",
    "\x1b[2J",
    "x" * 5000,
    "line\nERROR forged",
    "topics/#",
    "$management",
    "$",
)
# Seconds. A member waits 10 s for an Open by default.
_HELD = 0.5
_TAKEN = 2.0
_MOST_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class Ground:
    """The targets of acts.

    :param queues: queues whose messages do not matter.
    :param shared: a queue of honest clients; empty for none. Acts may send to it and browse it.
        Messages that they acquire return when the connection ends.
    """

    address: Endpoint
    queues: tuple[str, ...]
    shared: str = ""


async def _begun(client: RawClient, rng: random.Random, *parts: bytes) -> None:
    idle = rng.choice((None, None, None, 100, 1000, 0, 2**32 - 1))
    await client.open(raw.begin(), *parts, idle_ms=idle, container=rng.choice(("raw", "", "c" * 2000)))


async def _read_some(client: RawClient, seconds: float) -> None:
    """Read for this many seconds."""
    try:
        async with asyncio.timeout(seconds):
            while await client.reader.read(65536):
                pass
    except TimeoutError:
        return


async def nonsense(ground: Ground, rng: random.Random) -> None:
    """Send bytes that are not AMQP, or only begin like it."""
    reader, writer = await asyncio.open_connection(ground.address.host, ground.address.port)
    try:
        heads = (
            b"",
            b"AMQP\x00\x01\x00\x00",
            b"AMQP\x03\x01\x00\x00",
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01",
        )
        writer.write(rng.choice(heads) + rng.randbytes(rng.choice((1, 100, 100_000))))
        async with asyncio.timeout(_HELD):
            await reader.read(1000)
    finally:
        writer.transport.abort()


async def recorded(ground: Ground, rng: random.Random) -> None:
    """Send a mutated script of the fuzzer's corpus."""
    paths = sorted(CORPUS.iterdir())
    data = rng.choice(paths).read_bytes()
    for _ in range(rng.randint(0, 4)):
        data = script.mutate(data, 100_000, rng.getrandbits(32), lambda body, limit: _flip(rng, body)[:limit])
    reader, writer = await asyncio.open_connection(ground.address.host, ground.address.port)
    try:
        for step in script.parse(data):
            if step.kind in (script.Kind.FRAME, script.Kind.SASL, script.Kind.RAW):
                writer.write(script.wire(step))
            if not step.at_once:
                await asyncio.sleep(0.001)
        async with asyncio.timeout(_HELD):
            while await reader.read(65536):
                pass
    finally:
        writer.transport.abort()


def _flip(rng: random.Random, body: bytes) -> bytes:
    data = bytearray(body) or bytearray(1)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[at] = rng.choice((0, 1, 0x40, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 1:
                data[at:at] = rng.randbytes(rng.randint(1, 4))
            case 2 if len(data) > 1:
                del data[at]
            case _:
                data[at] ^= 1 << rng.randrange(8)
    return bytes(data)


async def send_messages(ground: Ground, rng: random.Random) -> None:
    """Send extreme and malformed messages, within the credit or beyond it."""
    queue = ground.shared if ground.shared and rng.random() < 0.5 else rng.choice(ground.queues)
    count, waits = rng.choice((1, 5, 20)), rng.random() < 0.8
    settled = rng.random() < 0.3
    async with raw_client(ground.address) as client:
        await _begun(client, rng, raw.attach_sender("s", 0, queue))
        if waits:
            await client.next(raw.FLOW, raw.DETACH, raw.CLOSE)
        for number in range(count):
            make = messages.malformed if rng.random() < 0.3 else messages.extreme
            for part in _parts(number, make(rng), settled=settled):
                await client.write(part)
        await _read_some(client, _HELD)


def _parts(number: int, payload: bytes, *, settled: bool) -> list[bytes]:
    """Split a message into frames of a size that a member accepts."""
    size = 60_000
    pieces = [payload[start : start + size] for start in range(0, len(payload), size)] or [b""]
    last = len(pieces) - 1
    return [
        raw.transfer(0, number, piece, more=index < last, settled=settled)
        for index, piece in enumerate(pieces)
    ]


async def far_too_many(ground: Ground, rng: random.Random) -> None:
    """Send thousands of messages without credit, or some with a long tag, the same id, or no id."""
    changes: Mapping[str, dict[int, Any]] = {
        "many": {},
        "tag": {2: b"t" * 40},
        "id": {1: uint(7)},
        "none": {1: None, 2: None},
        "format": {3: _HUGE},
    }
    changed = rng.choice(list(changes.values()))
    payload = raw.message(rng.choice((0, 10, 10_000)))
    async with raw_client(ground.address) as client:
        await _begun(client, rng, raw.attach_sender("s", 0, rng.choice(ground.queues)))
        for number in range(rng.choice((10, 1000))):
            fields: list[Any] = [uint(0), uint(number), number.to_bytes(4, "big"), uint(0), False, False]
            for index, value in changed.items():
                fields[index] = value
            await client.write(raw.frame(raw.TRANSFER, fields, payload))
        await _read_some(client, _HELD)


async def unfinished(ground: Ground, rng: random.Random) -> None:
    """Begin messages that never end, and abort some."""
    piece = bytes(rng.choice((0, 1000, 60_000)))
    async with raw_client(ground.address) as client:
        await _begun(client, rng, raw.attach_sender("s", 0, rng.choice(ground.queues)))
        for _ in range(rng.choice((10, 300))):
            await client.write(raw.transfer(0, 0, piece, more=True))
        if rng.random() < 0.5:
            aborted = [uint(0), uint(0), None, None, False, False, None, None, None, True]
            await client.write(raw.frame(raw.TRANSFER, aborted))
        await _read_some(client, _HELD)


def selector(rng: random.Random) -> str:
    """Return a selector that is expensive or invalid."""
    count = rng.choice((1, 50, 1500))
    return rng.choice(
        (
            f"s LIKE '{'_' * count}%{'_' * count}'",
            f"s LIKE '{'%a' * count}'",
            "(" * count + "a = 1" + ")" * count,
            " OR ".join(f"p{number} = {number}" for number in range(count)),
            f"p IN ({', '.join(repr(str(number)) for number in range(count))})",
            "NOT " * count + "TRUE",
            "-" * count + "1 = 1",
            "a BETWEEN 1 AND 9223372036854775808",
            "1e308 * 10 = a AND a = 0 / 0",
            "a = '\x00'",
            "amqp.subject LIKE '%' ESCAPE '%'",
            "x" * 20_000,
            "",
        )
    )


async def receive(ground: Ground, rng: random.Random) -> None:
    """Attach receivers with selectors and absurd credit, settle in any way, and disconnect."""
    shared = ground.shared and rng.random() < 0.3
    queue = ground.shared if shared else rng.choice(ground.queues)
    browses = rng.random() < 0.3
    chosen = Described(ulong(_SELECTOR_CODE), selector(rng)) if rng.random() < 0.6 else None
    filters = {symbol(_SELECTOR): chosen} if chosen is not None else None
    source = [queue, None, None, None, None, None, symbol("copy") if browses else None, filters]
    ends = [Described(ulong(_SOURCE), source), Described(ulong(_TARGET), [])]
    # Mode 2 settles nothing on sending: no message is removed from a shared queue.
    mode = rng.choice((0, 1, 2)) if not shared else 0
    attach = raw.frame(raw.ATTACH, ["r", uint(0), True, ubyte(mode), None, *ends])
    credit = rng.choice((0, 1, 10, 2**31, 2**32 - 1))
    async with raw_client(ground.address) as client:
        await _begun(client, rng, attach, raw.credit(0, credit, received=rng.choice((0, 0, 5, 2**32 - 1))))
        if not shared:
            for number in range(rng.choice((0, 20))):
                await client.write(_settle(rng, number))
        await _read_some(client, _HELD)


def _settle(rng: random.Random, number: int) -> bytes:
    state = rng.choice(
        (
            None,
            Described(ulong(_ACCEPTED), []),
            Described(ulong(_REJECTED), [Described(ulong(0x1D), [symbol("x:y"), "\x1b" * 1000])]),
            Described(ulong(_RELEASED), []),
            Described(ulong(_MODIFIED), [True, True, {symbol("x-opt-n"): "v" * 10_000}]),
            Described(ulong(_RECEIVED), [uint(0), ulong(2**64 - 1)]),
        )
    )
    last = rng.choice((number, number, number + 1000, 2**32 - 1))
    fields = [rng.random() < 0.8, uint(number), uint(last), rng.random() < 0.7, state]
    return raw.frame(raw.DISPOSITION, fields)


async def dispositions(ground: Ground, rng: random.Random) -> None:
    """Settle very many deliveries that never existed."""
    one = raw.frame(
        raw.DISPOSITION, [True, uint(2**30), uint(2**30 + 1), True, Described(ulong(_ACCEPTED), [])]
    )
    async with raw_client(ground.address) as client:
        await _begun(client, rng, raw.attach_receiver("r", 0, rng.choice(ground.queues)))
        await client.write(_settle(rng, 0))
        for _ in range(rng.choice((1, 50))):
            await client.write(one * 1000)
        await _read_some(client, _HELD)


async def flows(ground: Ground, rng: random.Random) -> None:
    """Send Flows that request an answer, drain, start counts anywhere, or belong to no link."""
    handle = rng.choice((None, uint(0), uint(77), _HUGE))
    counts = [uint(rng.choice((0, 2**31, 2**32 - 1))) for _ in range(3)]
    session = [uint(rng.choice((0, 5, 2**32 - 1))), uint(rng.choice((0, 2**31))), uint(0), _HUGE]
    one = raw.frame(raw.FLOW, [*session, handle, *counts, rng.random() < 0.5, rng.random() < 0.5])
    attach = rng.choice((raw.attach_receiver, raw.attach_sender))
    async with raw_client(ground.address) as client:
        await _begun(client, rng, attach("l", 0, rng.choice(ground.queues)))
        for _ in range(rng.choice((1, 20))):
            await client.write(one * rng.choice((1, 500)))
        await _read_some(client, _HELD)


async def many_connections(ground: Ground, rng: random.Random) -> None:
    """Open connections that send nothing, half of a header, or only an Open."""
    said = rng.choice(
        (b"", b"AMQP", b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00" + raw.frame(raw.OPEN, ["c"]))
    )
    writers = []
    try:
        for _ in range(rng.choice((5, 50, 150))):
            _reader, writer = await asyncio.open_connection(ground.address.host, ground.address.port)
            writers.append(writer)
            writer.write(said)
        await asyncio.sleep(_HELD)
    finally:
        for writer in writers:
            writer.transport.abort()


async def many_links(ground: Ground, rng: random.Random) -> None:
    """Open sessions and links up to every limit and beyond, with one name or distinct names."""
    sessions, links = rng.choice((1, 10, 300)), rng.choice((1, 100, 1000))
    same = rng.random() < 0.2
    async with raw_client(ground.address) as client:
        await client.open()
        for channel in range(sessions):
            await client.write(raw.begin(channel=channel))
        for number in range(links):
            name = "same" if same else f"l-{number}"
            attach = rng.choice((raw.attach_sender, raw.attach_receiver))
            await client.write(
                attach(name, number // sessions, rng.choice(ground.queues), channel=number % sessions)
            )
        await _read_some(client, _HELD)


async def repeats(ground: Ground, rng: random.Random) -> None:
    """Attach and detach, begin and end, repeatedly without reading."""
    once = raw.begin(channel=1) + raw.attach_receiver("r", 0, rng.choice(ground.queues), channel=1)
    once += raw.credit(0, 5, channel=1) * rng.randint(0, 1)
    once += raw.detach(0, channel=1, closed=rng.random() < 0.5) * rng.randint(0, 1) + raw.end(channel=1)
    async with raw_client(ground.address) as client:
        await client.open()
        client.reading(on=rng.random() < 0.5)
        for _ in range(rng.choice((10, 200))):
            await client.write(once)
        client.reading(on=True)
        await _read_some(client, _HELD)


async def odd_fields(ground: Ground, rng: random.Random) -> None:
    """Send fields of any type, long or unprintable names, and many termini."""
    ends = [Described(ulong(_SOURCE), [rng.choice(_NAMES)]), Described(ulong(_TARGET), [rng.choice(_NAMES)])]
    fields: list[Any] = [
        rng.choice(_NAMES),
        uint(0),
        rng.random() < 0.5,
        None,
        None,
        *ends,
        None,
        None,
        uint(0),
    ]
    value = VALUES[rng.choice([name for name in VALUES if "key" not in name])]
    for _ in range(rng.randint(0, 2)):
        fields[rng.randrange(len(fields))] = value
    opened: list[Any] = ["c", None, uint(rng.choice((0, 512, 2**32 - 1))), ushort(0xFFFF), None, None, None]
    opened += [None, rng.choice((None, symbol(PARK))), {symbol("p" * 100): "v" * 50_000}]
    async with raw_client(ground.address) as client:
        await client.write(raw.frame(raw.OPEN, opened), raw.begin(), raw.frame(raw.ATTACH, fields))
        await _read_some(client, _HELD)


async def remembered(ground: Ground, rng: random.Random) -> None:
    """Resume deliveries that never existed: an unsettled map with many tags."""
    received = Described(ulong(_RECEIVED), [uint(0), ulong(5)])
    tags = {number.to_bytes(4, "big"): received for number in range(rng.choice((1, 800)))}
    ends = [Described(ulong(_SOURCE), [ground.queues[0]]), Described(ulong(_TARGET), [ground.queues[0]])]
    fields = ["u", uint(0), rng.random() < 0.5, None, None, *ends, tags, rng.random() < 0.5, uint(0)]
    async with raw_client(ground.address) as client:
        await _begun(client, rng, raw.frame(raw.ATTACH, fields))
        await _read_some(client, _HELD)


async def deaf(ground: Ground, rng: random.Random) -> None:
    """Request everything, and read nothing."""
    async with raw_client(ground.address) as client:
        queue = rng.choice(ground.queues)
        await _begun(client, rng, raw.attach_sender("s", 0, queue), raw.attach_receiver("r", 1, queue))
        client.reading(on=False)
        await client.write(raw.credit(1, 2**31))
        for number in range(rng.choice((10, 100))):
            await client.write(raw.transfer(0, number, raw.message(10_000)))
        await asyncio.sleep(_HELD)


async def slow(ground: Ground, rng: random.Random) -> None:
    """Send one byte at a time."""
    data = raw.frame(raw.OPEN, ["slow"]) + raw.begin() + raw.attach_sender("s", 0, ground.queues[0])
    async with raw_client(ground.address) as client:
        for at in range(len(data)):
            await client.write(data[at : at + 1])
            await asyncio.sleep(rng.uniform(0, 0.02))


async def manages(ground: Ground, rng: random.Random) -> None:
    """Send requests to the management node, without any permission."""
    operations = ("CREATE", "DELETE", "READ", "promote", "demote", "set-primary", "\x00", "x" * 10_000)
    async with raw_client(ground.address) as client:
        await _begun(client, rng, raw.attach_sender("s", 0, "$management"))
        for number in range(5):
            data = Data()
            names = {"operation": rng.choice(operations), "type": "queue", "name": rng.choice(_NAMES)}
            data.put_object(Described(ulong(0x74), names))
            await client.write(raw.transfer(0, number, data.encode() + messages.extreme(rng)[-200:]))
        await _read_some(client, _HELD)


Act = Callable[[Ground, random.Random], Awaitable[None]]
ACTS: Mapping[str, Act] = {
    act.__name__: act
    for act in (
        nonsense, recorded, send_messages, far_too_many, unfinished, receive, dispositions, flows,
        many_connections, many_links, repeats, odd_fields, remembered, deaf, slow, manages,
    )
}  # fmt: skip


# Weights: messages and selectors reach most of the code.
_WEIGHTS = {send_messages.__name__: 4, receive.__name__: 3, recorded.__name__: 2}


def draw(names: Sequence[str], rng: random.Random) -> str:
    """Return a random act."""
    return rng.choices(names, [_WEIGHTS.get(name, 1) for name in names])[0]


async def perform(name: str, ground: Ground, rng: random.Random) -> str:
    """Perform one act, for some seconds at most; return its result."""
    return await bounded(ACTS[name](ground, rng))


async def bounded(act: Awaitable[None]) -> str:
    """Run an act for some seconds at most; return its result, which may be a connection error."""
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            await act
    except (OSError, EOFError, TimeoutError) as error:
        return type(error).__name__
    return "done"


async def take_everything(address: Endpoint, queues: Sequence[str]) -> None:
    """Empty queues with a receiver of settled messages."""
    async with raw_client(address) as client:
        await client.open(raw.begin())
        for handle, queue in enumerate(queues):
            ends = [Described(ulong(_SOURCE), [queue]), Described(ulong(_TARGET), [])]
            attach = raw.frame(raw.ATTACH, [queue, uint(handle), True, ubyte(1), None, *ends])
            await client.write(attach, raw.credit(handle, 2**31 - 1))
        await _read_some(client, _TAKEN)
