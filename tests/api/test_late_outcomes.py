"""An outcome that arrives together with a timeout is reported, and a lost race costs no additional time."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any

import pytest

import haclient
from haclient import Message, aio
from haclient.api import blocking_receiver
from haclient.api.send_futures import BlockingSendFuture
from haclient.core.sender import SenderCore
from haclient.errors import MessageNotAccepted, ReceiveTimeout
from haclient.outcome import ACCEPTED, RELEASED, Outcome
from haclient.testing.threads import in_thread
from tests.peers import primary, url


def settle(core: SenderCore, outcome: Outcome) -> None:
    """Settle the one message on the wire, as the engine does."""
    link = core._link
    assert link is not None
    _, token = link.unsettled.popitem()
    core.settled(link, token, outcome)


async def settle_beside_a_timeout(sender: aio.Sender, outcome: Outcome, *, turns: int) -> Outcome:
    """Settle a message of ``send(timeout=0)``, whose timeout fires one loop iteration after the message is
    sent.
    """
    sending = asyncio.ensure_future(sender.send(Message(body="late"), timeout=0))
    for _ in range(turns):
        await asyncio.sleep(0)
    settle(sender._core, outcome)
    return await sending


@pytest.mark.parametrize("turns", [1, 2], ids=["settled_first", "timed_out_first"])
async def test_an_acceptance_in_the_turn_of_the_timeout_is_reported(turns: int) -> None:
    async with primary(outcome=None) as peer, aio.connect(url(peer)) as connection:
        sender = await connection.create_sender("q")
        assert await settle_beside_a_timeout(sender, ACCEPTED, turns=turns) is ACCEPTED
        with pytest.raises(MessageNotAccepted):
            await settle_beside_a_timeout(sender, RELEASED, turns=turns)


def after_the_wait(monkeypatch: pytest.MonkeyPatch, step: Callable[[Any], object]) -> None:
    """Let the wait of a blocking ``send`` time out after this step."""
    real = BlockingSendFuture.result

    def result(future: Any, timeout: float | None = None) -> Any:
        if timeout is None:
            return real(future)
        step(future)
        raise TimeoutError

    monkeypatch.setattr(BlockingSendFuture, "result", result)


@pytest.mark.parametrize("outcome", [ACCEPTED, RELEASED], ids=lambda outcome: outcome.state.name.lower())
@pytest.mark.parametrize("when", ["before_it_looks", "while_it_withdraws"])
def test_a_blocking_send_reports_what_arrives_after_its_wait(
    monkeypatch: pytest.MonkeyPatch, when: str, outcome: Outcome
) -> None:
    with in_thread(primary(outcome=None)) as peer, haclient.connect(url(peer)) as connection:
        sender = connection.create_sender("q")

        def step(future: Any) -> None:
            sender._thread.post(settle, sender._core, outcome)
            if when == "before_it_looks":
                concurrent.futures.wait([future], 10)

        after_the_wait(monkeypatch, step)
        if outcome is ACCEPTED:
            assert sender.send(Message(body="late"), timeout=5) is ACCEPTED
        else:
            with pytest.raises(MessageNotAccepted):
                sender.send(Message(body="late"), timeout=5)


def test_a_blocking_receive_whose_messages_others_take_ends_at_its_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with in_thread(primary()) as peer, haclient.connect(url(peer)) as connection:
        receiver = connection.create_receiver("q")
        left: list[float | None] = []

        async def woken_in_vain(_core: object, _needed: int, seconds: float | None) -> bool:
            """A message arrived after 1.25 s, and another thread received it."""
            left.append(seconds)
            clock[0] += 1.25
            return len(left) < 10 and (seconds is None or seconds > 0)

        clock = [100.0]
        monkeypatch.setattr(blocking_receiver, "monotonic", lambda: clock[0])
        monkeypatch.setattr(blocking_receiver, "arrived", woken_in_vain)
        with pytest.raises(ReceiveTimeout, match=r"within 3 s"):
            receiver.receive(timeout=3)
        assert left == [3, 1.75, 0.5, -0.75]
        left.clear()
        with pytest.raises(ReceiveTimeout):
            receiver.receive(timeout=None)
        assert left == [None] * 10
