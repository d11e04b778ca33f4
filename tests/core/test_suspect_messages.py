"""A message that ends every connection that it is sent over fails alone; the others are stored.

The peer acts as ActiveMQ Classic 5.17.6: it announces no limit, and closes with ``amqp:decode-error`` on
a larger message.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import proton
import pytest

from haclient import aio
from haclient.errors import DeliveryUnknown, HaclientError, MessageTooLarge, SendManyError, SendTimeout
from haclient.events import Disconnected
from haclient.testing.peers.listening import Peer, listening, url
from tests.broker_stub.raw_client import TRANSFER
from tests.hostile.broker.connection import Arrival, HostileConnection, error
from tests.hostile.broker.listening import HostileBrokers
from tests.peers.watch import Watch

LIMIT = 1000
LARGE = "x" * LIMIT
FAST = {"backoff_base": 0.001, "backoff_max": 0.01}


class Broker:
    """The facts shared by all its connections.

    :ivar stored: how often each body was accepted.
    :ivar condition: of the Close for a message that is too large; ``None`` to end the socket.
    :ivar closes: how many messages end their connections, whatever their size.
    :ivar once: bodies that end their connection once.
    :ivar answers: True to settle messages.
    :ivar credit: of a sender, by its name.
    """

    def __init__(self, condition: str | None = "amqp:decode-error") -> None:
        self.stored: Counter[str] = Counter()
        self.condition = condition
        self.closes = 0
        self.once: set[str] = set()
        self.answers: Callable[[str], bool] = lambda _: True
        self.credit: Callable[[str], int] = lambda _: 100

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Peer]:
        async with listening(lambda _: Picky(self)) as peer:
            yield peer


class Picky(HostileConnection):
    """One connection."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(HostileBrokers(0, ()), random.Random())
        self._broker = broker
        self._payload = bytearray()
        self.instead[TRANSFER] = self._check

    def grant(self, link: Any, credit: int) -> None:
        super().grant(link, min(credit, self._broker.credit(link.name)))

    def _check(self, what: Arrival) -> None:
        self._payload += what.payload
        if what.get(5):
            return
        broker, message = self._broker, proton.Message()
        message.decode(bytes(self._payload))
        self._payload.clear()
        body = str(message.body)
        if len(body) >= LIMIT or broker.closes > 0 or body in broker.once:
            if broker.closes > 0:
                broker.closes -= 1
            else:
                broker.once.discard(body)
            if broker.condition is None:
                self.transport.abort()
            else:
                self.close(error(broker.condition, "Could not process AMQP commands"))
        elif broker.answers(body):
            broker.stored[body] += 1
            self.answer(what)


async def _outcome(sending: Any) -> HaclientError | None:
    try:
        await sending
    except HaclientError as error:
        return error
    return None


@pytest.mark.parametrize(
    "condition",
    [
        "amqp:decode-error",
        "amqp:connection:framing-error",
        "amqp:link:message-size-exceeded",
        "amqp:frame-size-too-small",
    ],
)
async def test_it_fails_at_the_third_loss_with_the_reason(condition: str) -> None:
    broker, watch = Broker(condition), Watch()
    async with broker.listening() as peer, await aio.connect(url(peer, **FAST), on_event=watch) as connection:
        sender = await connection.create_sender("q")
        with pytest.raises(MessageTooLarge) as caught:
            await sender.send(LARGE, timeout=10)
        await sender.send("after", timeout=10)
        assert len(await watch.until(Disconnected)) == 3
    assert str(caught.value) == (
        f"the primary ended each connection with this message of {caught.value.size} bytes for 'q' "
        f"({condition}: Could not process AMQP commands): it is probably larger than the primary takes"
    )
    assert LIMIT < caught.value.size < LIMIT + 200
    assert (caught.value.limit, caught.value.delivered, caught.value.safe_to_retry) == (0, None, False)
    assert broker.stored == {"after": 1}


@pytest.mark.parametrize("_", range(5))
async def test_of_many_messages_of_several_senders_the_large_ones_fail_alone(_: int) -> None:
    broker, rng = Broker(), random.Random()
    async with broker.listening() as peer, await aio.connect(url(peer, **FAST)) as connection:
        senders = [await connection.create_sender(f"q{number}") for number in range(rng.randint(1, 4))]
        bodies = [f"{number} " + LARGE * (rng.random() < 0.02) for number in range(100)]
        bodies[rng.randrange(100)] = LARGE
        async with asyncio.timeout(20):
            futures = [await rng.choice(senders).submit(body) for body in bodies]
            errors = [await _outcome(future) for future in futures]
    failed = [body for body, each in zip(bodies, errors, strict=True) if each is not None]
    assert {type(each) for each in errors} == {type(None), MessageTooLarge}
    assert failed == [body for body in bodies if len(body) >= LIMIT]
    assert set(broker.stored) == set(bodies) - set(failed)


@pytest.mark.parametrize("condition", ["amqp:decode-error", "amqp:connection:forced", None])
@pytest.mark.parametrize("losses", [1, 2, 3, 4])
async def test_a_peer_that_ends_connections_whatever_it_is_sent_accuses_no_pipelined_message(
    condition: str | None, losses: int
) -> None:
    """All are sent again; after two losses one at a time, so that a third loss accuses one."""
    broker = Broker(condition)
    broker.closes = losses if condition != "amqp:decode-error" else min(losses, 2)
    async with broker.listening() as peer, await aio.connect(url(peer, **FAST)) as connection:
        sender = await connection.create_sender("q")
        await asyncio.wait_for(sender.send_many([str(number) for number in range(50)]), 10)
    assert set(broker.stored) == {str(number) for number in range(50)}


async def test_a_loss_of_another_kind_in_between_accuses_nobody() -> None:
    broker, watch = Broker(), Watch()
    async with broker.listening() as peer, await aio.connect(url(peer, **FAST), on_event=watch) as connection:
        sender = await connection.create_sender("q")
        sending = asyncio.ensure_future(_outcome(sender.send(LARGE, timeout=10)))
        for number in range(1, 9):
            await watch.until(Disconnected, count=number)
            broker.condition = ("amqp:decode-error", None)[number % 2]
        assert not sending.done()
        broker.condition = "amqp:decode-error"
        assert isinstance(await sending, MessageTooLarge)


async def test_beside_a_message_that_its_caller_gave_up_on_the_wire_none_is_blamed() -> None:
    """The only message in the ledger is not the only one on the wire."""
    broker, watch = Broker(), Watch()
    broker.closes, broker.once = 2, {"next"}
    broker.answers = lambda body: body != "given up"
    async with broker.listening() as peer, await aio.connect(url(peer, **FAST), on_event=watch) as connection:
        sender = await connection.create_sender("q")
        given_up = asyncio.ensure_future(_outcome(sender.send("given up", timeout=1)))
        following = asyncio.ensure_future(_outcome(sender.send("next", timeout=10)))
        assert isinstance(await given_up, SendTimeout)
        await watch.until(Disconnected, count=3)
        assert await following is None
    assert broker.stored == {"next": 1}


async def test_a_sender_without_credit_holds_up_no_other() -> None:
    broker = Broker()
    async with broker.listening() as peer, await aio.connect(url(peer, **FAST)) as connection:
        full = await connection.create_sender("full", name="full")
        other = await connection.create_sender("other")
        broker.answers = lambda body: body != "held"
        held = await full.submit("held")
        large = await other.submit(LARGE)
        broker.credit = lambda name: 0 if name == "full" else 100
        assert isinstance(await asyncio.wait_for(_outcome(large), 10), MessageTooLarge)
        await asyncio.wait_for(other.send_many(["a", "b", "c"]), 10)
        assert not held.done()
        held.cancel()
        await asyncio.wait_for(other.send_many(["d"] * 300), 10)


async def test_send_many_has_it_as_a_result_among_the_others() -> None:
    broker = Broker()
    bodies = [str(number) for number in range(30)]
    bodies[7], bodies[20] = LARGE + "1", LARGE + "2"
    async with broker.listening() as peer, await aio.connect(url(peer, **FAST)) as connection:
        sender = await connection.create_sender("q")
        with pytest.raises(SendManyError) as caught:
            await sender.send_many(bodies, timeout=10)
    failed = [index for index, each in enumerate(caught.value.results) if isinstance(each, MessageTooLarge)]
    assert failed == [7, 20]
    assert sum(isinstance(each, HaclientError) for each in caught.value.results) == 2


async def test_at_most_once_gives_it_up_at_the_first_loss() -> None:
    broker = Broker()
    async with (
        broker.listening() as peer,
        await aio.connect(url(peer, delivery="at-most-once", **FAST)) as connection,
    ):
        sender = await connection.create_sender("q")
        for _ in range(4):
            assert isinstance(await _outcome(sender.send(LARGE, timeout=10)), DeliveryUnknown)
        await asyncio.wait_for(sender.send_many(["a"] * 300), 10)
    assert broker.stored == {"a": 300}


async def test_senders_may_end_meanwhile() -> None:
    broker = Broker()
    async with broker.listening() as peer, await aio.connect(url(peer, **FAST)) as connection:
        sender, other = await connection.create_sender("q"), await connection.create_sender("r")
        broker.answers = lambda body: body != "held"
        large, held = await sender.submit(LARGE), await other.submit("held")
        await asyncio.sleep(0.05)
        await sender.close()
        held.cancel()
        assert await _outcome(large) is not None
        third = await connection.create_sender("s")
        await asyncio.wait_for(third.send_many(["a"] * 300), 10)
        await asyncio.wait_for(other.send_many(["b"] * 300), 10)
    assert broker.stored == {"a": 300, "b": 300}
