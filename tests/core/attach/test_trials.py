"""A link that the peer refuses by an End ends no other link; RabbitMQ 4.0.5 refuses so.

The peer behaves like RabbitMQ: an unknown address ends the session of the link, with all links in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
from proton import symbol

from haclient import Message, aio
from haclient.engine import extra_sessions
from haclient.errors import LinkRefused, LinkTimeout
from haclient.events import Disconnected, Event
from haclient.testing.peers.listening import listening, url
from tests.broker_stub.raw_client import ATTACH, BEGIN, DETACH, END, OPEN, TRANSFER
from tests.hostile.broker.connection import Arrival, error
from tests.hostile.broker.limited import Limited, Limits

FAST = {"backoff_base": 0.001, "backoff_max": 0.01}
_PROPERTIES = 9


@dataclass
class Rabbit(Limits):
    """The behaviour of a peer, and a record of its links and sessions.

    :ivar attached: how often each address was attached.
    :ivar detached: how many links were detached.
    :ivar stored: how many messages arrived.
    :ivar ends: the sessions that it ended; ``answered``: the channels whose End the client answered.
    :ivar begun: the channel of each session, in order.
    :ivar asked: is set at the first Attach.
    """

    handle_max: int | None = 255
    channel_max: int = 63
    product: str = "RabbitMQ"
    silent: bool = False
    attached: Counter[str] = field(default_factory=Counter)
    detached: int = 0
    stored: int = 0
    ends: int = 0
    answered: list[int] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)


class Refusing(Limited):
    """Knows every address except addresses that begin with ``no``."""

    def __init__(self, rabbit: Rabbit) -> None:
        super().__init__(rabbit)
        self._rabbit = rabbit
        self._ended: set[int] = set()
        self.fields[OPEN][_PROPERTIES] = {symbol("product"): rabbit.product, symbol("version"): "4.0.5"}
        self.instead[ATTACH] = self._attached_or_refused
        self.instead[DETACH] = self._detached
        self.instead[END] = self._end_answered
        self.instead[BEGIN] = self._begin_unless_resting
        self.then[TRANSFER].append(self._count_message)

    def _attached_or_refused(self, what: Arrival) -> None:
        terminus = what.get(5) if what.get(2) else what.get(6)
        address = str(terminus.value[0])
        self._rabbit.attached[address] += 1
        self._rabbit.asked.set()
        if self._rabbit.silent:
            return
        if not address.startswith("no"):
            self.answer(what)
            return
        self._rabbit.ends += 1
        self.links = {key: link for key, link in self.links.items() if key[0] != what.channel}
        self.limits.sessions[what.channel] = -1  # this Attach is counted afterwards
        self.send(END, [error("amqp:not-found", f"no queue '{address}' in vhost '/'")], channel=what.channel)
        self._ended.add(what.channel)

    def _end_answered(self, what: Arrival) -> None:
        if what.channel in self._ended:
            self._ended.discard(what.channel)  # the client's End is the answer
            self._rabbit.answered.append(what.channel)
        else:
            self.answer(what)

    def _begin_unless_resting(self, what: Arrival) -> None:
        """Drop a Begin on a channel whose former session has just ended, as RabbitMQ does for a moment."""
        if what.channel not in self._ended:
            self._rabbit.begun.append(what.channel)
            self.answer(what)

    def _detached(self, what: Arrival) -> None:
        self._rabbit.detached += 1
        if (what.channel, int(what.get(0))) in self.links:
            self.answer(what)

    def _count_message(self, _what: Arrival) -> None:
        self._rabbit.stored += 1


@contextlib.asynccontextmanager
async def connected(rabbit: Rabbit) -> AsyncIterator[tuple[aio.Connection, list[Event]]]:
    seen: list[Event] = []
    async with (
        listening(lambda _: Refusing(rabbit)) as peer,
        aio.connect(url(peer, **FAST), on_event=seen.append) as connection,
    ):
        yield connection, seen
    assert rabbit.violations == 0


def losses(seen: list[Event]) -> int:
    return sum(isinstance(event, Disconnected) for event in seen)


async def refused(connection: aio.Connection, number: int) -> LinkRefused:
    create = connection.create_receiver if number % 2 else connection.create_sender
    with pytest.raises(LinkRefused) as refusal:
        await create(f"no{number}")
    return refusal.value


async def test_ten_refusals_beside_a_pipelining_sender_cost_it_nothing() -> None:
    rabbit = Rabbit()
    async with connected(rabbit) as (connection, seen):
        sender = await connection.create_sender("q")

        async def send() -> None:
            await sender.send_many([Message(body=number) for number in range(1000)])

        sending = asyncio.ensure_future(send())
        for number in range(10):
            why = await refused(connection, number)
            assert f"no queue 'no{number}' in vhost '/'" in str(why)
            assert "declare the queue or exchange first" in str(why)
        await sending
    assert (losses(seen), rabbit.stored, rabbit.ends) == (0, 1000, 10)


async def test_refused_links_leave_no_session_behind() -> None:
    rabbit = Rabbit(channel_max=3)
    async with connected(rabbit) as (connection, seen):
        for number in range(12):
            await refused(connection, number)
        await asyncio.gather(*(refused(connection, 2 * number) for number in range(12)))
        assert losses(seen) == 0


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set how many seconds a channel rests after the peer's End."""
    return lambda seconds: monkeypatch.setattr(extra_sessions, "_CHANNEL_REUSE_DELAY", seconds)


async def test_a_channel_rests_after_the_peer_has_ended_its_session(rest: Callable[[float], None]) -> None:
    rabbit = Rabbit()
    rest(600.0)
    async with connected(rabbit) as (connection, seen):
        await refused(connection, 0)
        ended = rabbit.begun[-1]
        for number in range(3):
            await connection.create_sender(f"q{number}", timeout=10)
        assert ended not in rabbit.begun[rabbit.begun.index(ended) + 1 :]
        assert (rabbit.ends, rabbit.answered, losses(seen)) == (1, [], 0)


async def test_it_is_used_again_when_it_has_rested(rest: Callable[[float], None]) -> None:
    rabbit = Rabbit()
    rest(0.0)
    async with connected(rabbit) as (connection, seen):
        await refused(connection, 0)
        ended = rabbit.begun[-1]
        async with asyncio.timeout(10):
            while not rabbit.answered:  # noqa: ASYNC110 - a peer tells nobody
                await asyncio.sleep(0.001)
        await connection.create_sender("q", timeout=10)
        assert rabbit.begun[-2:] == [ended, ended]
        assert losses(seen) == 0


async def test_the_last_free_channel_does_not_rest(rest: Callable[[float], None]) -> None:
    rabbit = Rabbit(channel_max=1)
    rest(600.0)
    async with connected(rabbit) as (connection, seen):
        for _ in range(3):
            await asyncio.wait_for(refused(connection, 0), 10)
        await (await connection.create_sender("q", timeout=10)).send(b"x", timeout=10)
        assert (rabbit.ends, rabbit.stored, losses(seen)) == (3, 1, 0)


async def test_new_links_stay_alone_while_half_of_the_sessions_are_left_and_are_attached_once() -> None:
    rabbit = Rabbit(channel_max=7)
    async with connected(rabbit) as (connection, _):
        for number in range(4):
            await connection.create_receiver(f"q{number}")
        assert (rabbit.sessions, rabbit.detached) == ({1: 1, 2: 1, 3: 1, 4: 1}, 0)


@pytest.mark.slow
async def test_beyond_that_a_sender_is_tried_alone_and_uses_a_shared_session_then() -> None:
    rabbit = Rabbit(channel_max=7)
    async with connected(rabbit) as (connection, seen):
        senders = await asyncio.gather(*(connection.create_sender(f"q{number}") for number in range(40)))
        assert all(
            outcome.accepted for outcome in await asyncio.gather(*(each.send(b"x") for each in senders))
        )
        assert rabbit.detached == 36
        assert {channel: count for channel, count in rabbit.sessions.items() if count} == {
            0: 36,
            1: 1,
            2: 1,
            3: 1,
            4: 1,
        }
        await asyncio.gather(*(refused(connection, 2 * number) for number in range(20)))
        assert all(
            outcome.accepted for outcome in await asyncio.gather(*(each.send(b"x") for each in senders))
        )
    assert (losses(seen), rabbit.stored, rabbit.ends) == (0, 80, 20)


async def test_a_receiver_is_never_detached_to_be_attached_elsewhere() -> None:
    """RabbitMQ deletes an auto-delete queue when its last consumer goes."""
    rabbit = Rabbit(channel_max=7)
    async with connected(rabbit) as (connection, seen):
        for number in range(20):
            await connection.create_receiver(f"q{number}")
        assert rabbit.detached == 0
        assert set(rabbit.attached.values()) == {1}
        assert losses(seen) == 0


async def test_links_that_were_open_use_the_shared_session_after_a_loss() -> None:
    rabbit = Rabbit()
    async with connected(rabbit) as (connection, seen):
        receiver = await connection.create_receiver("q0", credit=1)
        senders = [await connection.create_sender(f"q{number}") for number in range(1, 10)]
        rabbit.connections[-1].transport.abort()
        assert all([(await each.send(b"x", timeout=10)).accepted for each in senders])
        await (await receiver.receive(timeout=10)).accept()
        assert rabbit.sessions == {0: 10}
        await refused(connection, 0)
        assert losses(seen) == 1


async def test_all_links_that_the_peer_allows_fit_in_spite_of_the_trials() -> None:
    rabbit = Rabbit(handle_max=3, channel_max=3)
    async with connected(rabbit) as (connection, seen):
        links = await asyncio.gather(
            *(connection.create_sender(f"q{number}") for number in range(17)), return_exceptions=True
        )
        assert sum(isinstance(each, aio.Sender) for each in links) == rabbit.most == 16
        good = [each for each in links if isinstance(each, aio.Sender)]
        assert all(outcome.accepted for outcome in await asyncio.gather(*(each.send(b"x") for each in good)))
        assert losses(seen) == 0


async def test_a_peer_with_one_session_gets_the_link_in_that() -> None:
    rabbit = Rabbit(channel_max=0)
    async with connected(rabbit) as (connection, seen):
        await (await connection.create_sender("q")).send(b"x")
        await refused(connection, 0)
        await (await connection.create_sender("q")).send(b"x")
        assert (rabbit.stored, losses(seen)) == (2, 1)


async def test_another_product_gets_its_links_in_one_session() -> None:
    rabbit = Rabbit(product="haclient-broker-stub")
    async with connected(rabbit) as (connection, _):
        for number in range(5):
            await connection.create_sender(f"q{number}")
        assert rabbit.sessions == {0: 5}


async def test_a_peer_that_never_answers_takes_the_time_of_the_call_and_no_session_for_good() -> None:
    rabbit = Rabbit(channel_max=1, silent=True)
    async with connected(rabbit) as (connection, seen):
        for _ in range(3):
            with pytest.raises(LinkTimeout):
                await connection.create_sender("q", timeout=0.05)
        creating = [asyncio.ensure_future(connection.create_sender("q")) for _ in range(5)]
        await asyncio.sleep(0.05)
        for each in creating:
            each.cancel()
        await asyncio.wait(creating)
        rabbit.silent = False
        await (await connection.create_sender("q", timeout=10)).send(b"x")
        assert (rabbit.stored, losses(seen)) == (1, 0)


async def test_messages_that_wait_for_a_sender_that_is_being_moved_arrive_once_and_in_order() -> None:
    rabbit = Rabbit(channel_max=1)
    async with connected(rabbit) as (connection, seen):
        await connection.create_receiver("first")
        sender = await connection.create_sender("q")
        outcomes = [await sender.submit(Message(body=number)) for number in range(random.randint(1, 50))]
        assert all(outcome.accepted for outcome in await asyncio.gather(*outcomes))
        assert (rabbit.stored, losses(seen)) == (len(outcomes), 0)


async def test_a_loss_while_links_are_tried_attaches_each_of_them_once_more() -> None:
    rabbit = Rabbit(channel_max=5, silent=True)
    async with connected(rabbit) as (connection, seen):
        creating = [asyncio.ensure_future(connection.create_sender(f"q{number}")) for number in range(20)]
        async with asyncio.timeout(10):
            await rabbit.asked.wait()
        rabbit.silent = False
        rabbit.connections[-1].transport.abort()
        senders = await asyncio.gather(*creating)
        assert all(
            outcome.accepted for outcome in await asyncio.gather(*(each.send(b"x") for each in senders))
        )
        assert (rabbit.stored, losses(seen)) == (20, 1)
