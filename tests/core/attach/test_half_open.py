"""A subscription whose former connection the broker has not missed yet, in virtual time.

Artemis refuses the second consumer of a queue that allows one (AMQ229200).  It counts the consumer of a
half-open connection until its connection TTL has passed: 60 s by default, checked every 2 s.
"""

from __future__ import annotations

import asyncio

import pytest
from proton import Condition

from haclient import State, aio
from haclient.errors import LinkClosed
from haclient.events import Disconnected
from haclient.testing.virtual_clock import VirtualTime
from tests.peers import primary, url
from tests.peers.watch import Watch

from .test_retries import attaches, follow

TTL = 61.9
"""Seconds after which a real Artemis freed the subscription (2.56.0)."""
SAID = (
    "AMQ119005: error creating consumer, "
    "AMQ229200: Maximum Consumer Limit Reached on Queue:(address=news,queue=orders-1.mine)"
)
# The first is in Artemis's source; its name has changed between releases.
CONDITIONS = ["amqp:internal-error", "amqp:resource-limit-exceeded", "amqp:illegal-state", "amqp:not-allowed"]


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_durable_subscription_is_attached_when_the_broker_takes_it(
    haclient_virtual_time: VirtualTime, name: str
) -> None:
    """One call to ``receive`` lasts the whole time."""
    haclient_virtual_time.settle = 0.02

    async def main() -> None:
        loop, watch = asyncio.get_running_loop(), Watch()
        async with primary() as peer, aio.connect(url(peer, client_id="orders-1")) as connection:
            follow(connection, watch)
            receiver = await connection.subscribe("news", name="mine", durable=True)
            beside = await connection.create_sender("other")
            peer.refuses["news"] = Condition(name, SAID)
            peer.drop()
            began = loop.time()
            receiving = asyncio.ensure_future(receiver.receive(timeout=100))
            await asyncio.sleep(TTL)
            assert not receiving.done()
            assert (await beside.send(b"meanwhile")).accepted
            peer.refuses.clear()
            peer.put("news", "one")
            delivery = await receiving
            assert delivery.message.body == "one"
            assert loop.time() - began < TTL + 10.5, "one longest delay later"
            assert len(attaches(peer, "news")) > 5
            assert len(watch.of(Disconnected)) == 1
            assert peer.subscriptions, "nobody unsubscribed"
            await delivery.accept()

    haclient_virtual_time.run(main())


def test_a_consumer_that_stays_is_the_answer_after_reattach_timeout(
    haclient_virtual_time: VirtualTime,
) -> None:
    """Another process has the subscription; the error quotes the broker."""
    haclient_virtual_time.settle = 0.02

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with primary() as peer, aio.connect(url(peer, client_id="orders-1")) as connection:
            receiver = await connection.subscribe("news", name="mine", durable=True)
            peer.refuses["news"] = Condition(CONDITIONS[0], SAID)
            peer.drop()
            began = loop.time()
            with pytest.raises(LinkClosed) as caught:
                await receiver.receive()
            assert 120 <= loop.time() - began < 122
            assert SAID in str(caught.value)
            assert connection.state is State.CONNECTED

    haclient_virtual_time.run(main())
