"""The server side of one connection, which a behaviour may change at any point.

Without a behaviour it serves correctly: every client is anonymous, each address is a queue with some
messages, and each message is accepted. A behaviour replaces the answer to a performative (``instead``),
adds something after it (``then``), changes sent fields (``fields``), or acts by itself (``every``,
``flood``).

Source: AMQP 1.0 part 2, sections 2.3.1 (frames) and 2.7 (performatives); part 5, section 5.3.3 (SASL).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proton import UNDESCRIBED, Array, Data, Described, symbol, ubyte, uint, ulong, ushort

from tests.broker_stub.raw_client import (
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    OPEN,
    TRANSFER,
    WINDOW,
    frame,
)
from tests.peers.frames import HEADER_SIZE, is_protocol_header, whole_frames

if TYPE_CHECKING:
    from tests.hostile.broker.listening import HostileBrokers

MECHANISMS, INIT, RESPONSE, OUTCOME = 0x40, 0x41, 0x43, 0x44
SASL_HEADER, AMQP_HEADER = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
TCP, HEADER, AMQP = -1, -2, -3
"""Events other than performatives: the TCP connection, the SASL header, the AMQP header."""
ACCEPTED = Described(ulong(0x24), [])
_SOURCE, _TARGET, _ERROR = 0x28, 0x29, 0x1D
# After the frame's header, the byte for a described type, and the byte for a small ulong.
_DESCRIPTOR_AT = HEADER_SIZE + 2
_BODY = b"\x00\x53\x77\xa1\x05hello"
# Bytes waiting for the client at which a flood pauses until the client reads.
_MOST_UNSENT = 256 * 1024
_DEPTH = 20
"""Messages of each link's queue. They must run out, as a client is measured while it waits."""

Answer = Callable[["Arrival"], None]


def error(name: str, description: Any = None, info: Any = None) -> Described:
    """Return an error as in Close, End and Detach (section 2.8.14)."""
    return Described(ulong(_ERROR), [symbol(name), description, info])


@dataclass(frozen=True, slots=True)
class Arrival:
    """A performative of the client, or another event."""

    code: int
    channel: int = 0
    fields: Sequence[Any] = ()
    payload: bytes = b""

    def get(self, index: int) -> Any:
        """Return a field; ``None`` if the list is shorter."""
        return self.fields[index] if index < len(self.fields) else None


@dataclass(slots=True, eq=False)
class ServedLink:
    """A link that the client attached.

    :ivar sends: whether this side sends on it.
    :ivar credit: the client's unused credit; ``count``: deliveries so far.
    """

    name: str
    channel: int
    handle: int
    sends: bool
    credit: int = 0
    count: int = 0


@dataclass(slots=True)
class Sent:
    """The amount of data sent to the clients.

    :ivar frames: the frames that a client processes; all others count by their bytes.
    """

    frames: int = 0
    size: int = 0


class HostileConnection(asyncio.Protocol):
    """One connection.

    :param brokers: the broker that accepted it, and the others.
    :param rng: the source of its behaviours' numbers.
    :ivar instead: replaces the answer to a performative or another event.
    :ivar then: runs after that answer.
    :ivar fields: changed field values, by performative's code and field index.
    :ivar is_silent: whether sending has stopped.
    :ivar messages: the payload of the next message.
    """

    def __init__(self, brokers: HostileBrokers, rng: random.Random) -> None:
        self.brokers = brokers
        self.rng = rng
        self.instead: dict[int, Answer] = {}
        self.then: dict[int, list[Answer]] = defaultdict(list)
        self.fields: dict[int, dict[int, Any]] = {}
        self.mechanisms: tuple[str, ...] = ("ANONYMOUS",)
        self.is_silent = False
        self.links: dict[tuple[int, int], ServedLink] = {}
        self.channels: set[int] = set()
        self.messages: Callable[[], bytes] = lambda: _BODY
        self.transport: Any = None
        # Each session counts its own deliveries.
        self._next_ids: dict[int, int] = defaultdict(int)
        self._input = bytearray()
        self._tasks: set[asyncio.Task[None]] = set()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._answers: dict[int, Answer] = {
            HEADER: self._offer_sasl,
            INIT: lambda _: self.send(OUTCOME, [ubyte(0)], kind=1),
            AMQP: self._open,
            BEGIN: self._begin,
            ATTACH: self._attach,
            FLOW: self._flow,
            TRANSFER: self._transfer,
            DETACH: self._detach,
            END: self._end,
            CLOSE: self._close,
        }

    # -- asyncio ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.set_write_buffer_limits(high=_MOST_UNSENT)
        self._arrived(Arrival(TCP))

    def data_received(self, data: bytes) -> None:
        self._input += data
        for frame_or_header in whole_frames(self._input):
            if is_protocol_header(frame_or_header):
                self._arrived(Arrival(HEADER if frame_or_header == SASL_HEADER else AMQP))
            elif len(frame_or_header) > HEADER_SIZE and self._matters(frame_or_header[_DESCRIPTOR_AT]):
                self._arrived(_decode(frame_or_header))

    def _matters(self, code: int) -> bool:
        """Return whether a performative gets an answer: Dispositions arrive by the thousand."""
        return code in self._answers or code in self.instead or code in self.then

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_silent = True
        self._may_write.set()
        for task in self._tasks:
            task.cancel()

    def _arrived(self, what: Arrival) -> None:
        if self.is_silent:
            return
        answer = self.instead.get(what.code) or self._answers.get(what.code)
        if answer is not None:
            answer(what)
        for each in self.then[what.code]:
            each(what)

    # -- for behaviours -----------------------------------------------------------------------

    def answer(self, what: Arrival) -> None:
        """Answer correctly."""
        if (answer := self._answers.get(what.code)) is not None:
            answer(what)

    def send(
        self, code: int, values: Sequence[Any], payload: bytes = b"", *, channel: int = 0, kind: int = 0
    ) -> None:
        """Send a performative, with the behaviour's changes to its fields."""
        changes = self.fields.get(code, {})
        every = [*values, *[None] * (max(changes, default=-1) + 1 - len(values))]
        for index, value in changes.items():
            every[index] = value
        self.write(frame(code, every, payload, channel=channel, kind=kind))

    def write(self, data: bytes, frames: int = 1) -> None:
        """Send bytes that are this many frames."""
        if not self.is_silent and not self.transport.is_closing():
            self.brokers.sent.frames += frames
            self.brokers.sent.size += len(data)
            self.transport.write(data)

    def flood(self, parts: Iterable[tuple[bytes, int]]) -> None:
        """Send these parts as fast as the client reads. Each part is bytes and their number of frames."""

        async def run() -> None:
            for data, frames in parts:
                await self._may_write.wait()
                if self.is_silent:
                    return
                self.write(data, frames)
                await asyncio.sleep(0)

        self._run(run())

    def every(self, seconds: float, act: Callable[[], object]) -> None:
        """Call ``act`` at intervals, from now on."""

        async def run() -> None:
            while not self.is_silent:
                act()
                await asyncio.sleep(seconds)

        self._run(run())

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        """Call ``act`` once, if the connection still exists."""

        async def run() -> None:
            await asyncio.sleep(seconds)
            if not self.is_silent:
                act()

        self._run(run())

    def close(self, *fields: Any) -> None:
        """Send Close with this error, and stop sending."""
        self.send(CLOSE, fields)
        self.is_silent = True

    def message(self, link: ServedLink, payload: bytes, *, settled: bool = False, more: bool = False) -> None:
        """Send a message, or its beginning."""
        number = self._next_ids[link.channel]
        self._next_ids[link.channel] = (number + 1) % 2**32
        tag = number.to_bytes(4, "big")
        fields = [uint(link.handle), uint(number), tag, uint(0), settled, more]
        self.send(TRANSFER, fields, payload, channel=link.channel)
        link.count += 1

    def link(self, *, sends: bool) -> ServedLink | None:
        """Return a random link of this kind."""
        found = [link for link in self.links.values() if link.sends is sends]
        return self.rng.choice(found) if found else None

    def _run(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- correct answers ---------------------------------------------------------------------------

    def _offer_sasl(self, _what: Arrival) -> None:
        self.write(SASL_HEADER, 0)
        offered = Array(UNDESCRIBED, Data.SYMBOL, *map(symbol, self.mechanisms))
        self.send(MECHANISMS, [offered], kind=1)

    def _open(self, _what: Arrival) -> None:
        self.write(AMQP_HEADER, 0)
        self.send(OPEN, ["hostile", None, uint(65536), ushort(255)])

    def _begin(self, what: Arrival) -> None:
        self.channels.add(what.channel)
        self.send(BEGIN, [ushort(what.channel), uint(0), WINDOW, WINDOW, uint(255)], channel=what.channel)

    def _attach(self, what: Arrival) -> None:
        name, handle, role = str(what.get(0)), int(what.get(1)), bool(what.get(2))
        link = ServedLink(name, what.channel, handle, sends=role)
        self.links[what.channel, handle] = link
        nodes = [_address(what.get(5)), _address(what.get(6))]
        source, target = Described(ulong(_SOURCE), [nodes[0]]), Described(ulong(_TARGET), [nodes[1]])
        first = uint(0) if link.sends else None
        fields = [name, uint(handle), not role, None, None, source, target, None, None, first]
        self.send(ATTACH, fields, channel=what.channel)
        if not link.sends:
            self.grant(link, 100)

    def grant(self, link: ServedLink, credit: int) -> None:
        """Grant the client this credit."""
        fields = [*self._session_flow(link.channel), uint(link.handle), uint(link.count), uint(credit)]
        self.send(FLOW, fields, channel=link.channel)

    def _session_flow(self, channel: int) -> list[Any]:
        return [uint(0), WINDOW, uint(self._next_ids[channel]), WINDOW]

    def _flow(self, what: Arrival) -> None:
        handle = what.get(4)
        link = None if handle is None else self.links.get((what.channel, int(handle)))
        if link is None or not link.sends:
            return
        link.credit = (int(what.get(5) or 0) + int(what.get(6) or 0) - link.count) % 2**32
        for _ in range(min(link.credit, _DEPTH - link.count)):
            self.message(link, self.messages())
        if what.get(8) and link.count >= _DEPTH:  # a drain: all credit is used up
            link.count = (int(what.get(5) or 0) + int(what.get(6) or 0)) % 2**32
            fields = [*self._session_flow(link.channel), uint(link.handle), uint(link.count)]
            self.send(FLOW, [*fields, uint(0), uint(0), True], channel=link.channel)

    def _transfer(self, what: Arrival) -> None:
        link = self.links.get((what.channel, int(what.get(0))))
        if link is None or what.get(5):
            return
        link.count += 1
        if what.get(1) is not None and not what.get(4):
            number = uint(what.get(1))
            self.send(DISPOSITION, [True, number, number, True, ACCEPTED], channel=what.channel)
        if link.count % 50 == 0:
            self.grant(link, 100)

    def _detach(self, what: Arrival) -> None:
        self.links.pop((what.channel, int(what.get(0))), None)
        self.send(DETACH, [uint(what.get(0)), True], channel=what.channel)

    def _end(self, what: Arrival) -> None:
        self.channels.discard(what.channel)
        self._next_ids.pop(what.channel, None)
        self.links = {key: link for key, link in self.links.items() if key[0] != what.channel}
        self.send(END, [], channel=what.channel)

    def _close(self, _what: Arrival) -> None:
        self.close()
        self.transport.close()


def _address(terminus: Any) -> Any:
    """Return the address of a source or a target; a generated one for a dynamic node."""
    fields = terminus.value if isinstance(terminus, Described) else []
    is_dynamic = len(fields) > 4 and fields[4]
    return "temporary" if is_dynamic else next(iter(fields), None)


def _decode(data: bytes) -> Arrival:
    found = Data()
    size = found.decode(data[HEADER_SIZE:])
    found.rewind()
    found.next()
    with contextlib.suppress(ValueError):  # a client's text may imitate an error of ours
        performative = found.get_object()
        code, channel = int(performative.descriptor), int.from_bytes(data[6:8], "big")
        return Arrival(code, channel, performative.value, data[HEADER_SIZE + size :])
    return Arrival(0)
