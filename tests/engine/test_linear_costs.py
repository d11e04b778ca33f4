"""The cost of a chunk grows with its frames, and not with their square, whatever frames a peer repeats."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import hypothesis
from hypothesis import example, given
from hypothesis import strategies as st
from proton import uint

from haclient.engine.protocol import Engine
from haclient.engine.settings import Settings
from haclient.testing.peers.listening import settings
from tests.broker_stub.raw_client import (
    DISPOSITION,
    FLOW,
    OPEN,
    WINDOW,
    attach_receiver,
    attach_sender,
    begin,
    credit,
    detach,
    end,
    frame,
    message,
    transfer,
)
from tests.counted_calls import counted_calls
from tests.engine.pair import Owner
from tests.engine.test_hostile_peers import AMQP_HEADER, Wire

_FEW, _FACTOR = 50, 4
# Handle 0 sends to the engine, handle 1 receives from it.
_OPENED = frame(OPEN, ["peer"]) + begin() + attach_sender("s", 0, "q") + attach_receiver("r", 1, "q")
# Each makes the frames of one repetition from its number, which is never 0.
_FRAMES: dict[str, Callable[[int], bytes]] = {
    "begin": lambda number: begin(channel=number),
    "begin and end": lambda number: begin(channel=number) + end(channel=number),
    "begin again": lambda _: begin(channel=9_999) + end(channel=9_999),
    "attach of a sender": lambda number: attach_sender(f"s-{number}", 1 + number, "q"),
    "attach of a receiver": lambda number: attach_receiver(f"r-{number}", 2_000 + number, "q"),
    "attach and detach": lambda number: attach_sender(f"d-{number}", 9_999, "q") + detach(9_999),
    "empty": lambda _: b"\0\0\0\x08\x02\0\0\0",
    "credit": lambda number: credit(1, number),
    "flow of the session": lambda _: frame(FLOW, [uint(0), WINDOW, uint(0), WINDOW]),
    "transfer": lambda number: transfer(0, number, message(3)),
    "settled transfer": lambda number: transfer(0, number, message(3), settled=True),
    "disposition": lambda number: frame(DISPOSITION, [True, uint(number), uint(number + 5), True]),
}


async def _calls(frames: list[Callable[[int], bytes]], count: int, *, server: bool) -> int:
    """Return the calls for one chunk with so many repetitions."""
    owner = Owner(server=True, grants=10_000)  # answers Open and Begin, on both sides
    of_a_client = Settings(container_id="here", sasl=False)
    engine = Engine(owner, settings() if server else of_a_client, asyncio.get_running_loop())
    engine.connection_made(Wire())
    engine.data_received(AMQP_HEADER + _OPENED)
    await asyncio.sleep(0)
    chunk = b"".join(make(number) for number in range(1, count + 1) for make in frames)
    with counted_calls() as calls:
        engine.data_received(chunk)
        await asyncio.sleep(0)
    engine.abort()
    return calls.number


@hypothesis.settings(max_examples=20)  # a tenth of a second each
@given(kinds=st.lists(st.sampled_from(sorted(_FRAMES)), min_size=1, max_size=3), server=st.booleans())
@example(kinds=["begin"], server=False)
@example(kinds=["attach of a sender"], server=True)
def test_the_cost_of_a_chunk_is_linear(kinds: list[str], *, server: bool) -> None:
    frames = [_FRAMES[kind] for kind in kinds]
    few = asyncio.run(_calls(frames, _FEW, server=server))
    many = asyncio.run(_calls(frames, _FEW * _FACTOR, server=server))
    assert many < 1.5 * _FACTOR * few
