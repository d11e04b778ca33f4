"""Messages through a real socket, mostly with proton's own client."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import proton
import pytest
from proton import Message
from proton.reactor import Copy
from proton.utils import BlockingConnection, BlockingReceiver, SendException

from broker_stub.amqp.message_format import InvalidFieldError, inspect_new
from broker_stub.queueing.duplicate_detection import DuplicateWindow
from broker_stub.queueing.exchanges import ExchangeType
from broker_stub.queueing.queue_limits import QueueLimits
from broker_stub.store import StoreFailedError
from haclient.outcome import ACCEPTED, RELEASED, Outcome, OutcomeState
from tests.broker_stub.clients import Client, LinkRefusedError, blocking, queue_status, running, until

FAILED = Outcome(OutcomeState.MODIFIED, delivery_failed=True)
NOT_HERE = Outcome(OutcomeState.MODIFIED, undeliverable_here=True)
REJECTED = Outcome(OutcomeState.REJECTED, condition="app:bad", description="bad")


def taken(receiver: BlockingReceiver, count: int) -> list[Any]:
    """Receive and accept ``count`` messages; return their bodies."""
    bodies = []
    for _ in range(count):
        bodies.append(receiver.receive(timeout=5).body)
        receiver.accept()
    return bodies


async def test_messages_are_received_in_order_and_are_gone_when_accepted() -> None:
    def use(connection: BlockingConnection) -> list[Any]:
        sender = connection.create_sender("orders")
        for number in range(5):
            sender.send(Message(body=number))
        return taken(connection.create_receiver("orders", credit=10), 5)

    async with running() as broker:
        assert await blocking(broker, use) == [0, 1, 2, 3, 4]
        assert queue_status(broker)[0]["depth"] == 0


@pytest.mark.parametrize(
    ("outcome", "count", "depth"),
    [(RELEASED, 0, 1), (FAILED, 1, 1), (REJECTED, None, 0)],
    ids=["released", "modified", "rejected"],
)
async def test_each_outcome_does_what_it_says(outcome: Outcome, count: int | None, depth: int) -> None:
    async with running() as broker:
        client = await Client().connect(broker.address)
        await client.send(await client.attach("sender", "s", "q"), Message(body="x"))
        receiver = await client.attach("receiver", "r", "q")
        receiver.grant(1)
        await client.receive(outcome)
        if count is not None:
            receiver.grant(1)
            assert (await client.receive(None)).delivery_count == count
        await client.close()
        assert queue_status(broker)[0]["depth"] == depth


async def test_a_message_undeliverable_here_goes_to_another_consumer() -> None:
    async with running() as broker:
        client = await Client().connect(broker.address)
        await client.send(await client.attach("sender", "s", "q"), Message(body="x"))
        (await client.attach("receiver", "one", "q")).grant(5)
        await client.receive(NOT_HERE)
        other = await Client().connect(broker.address)
        (await other.attach("receiver", "two", "q")).grant(5)
        assert (await other.receive()).body == "x"
        assert client.received.empty()
        await asyncio.gather(client.close(), other.close())


async def test_what_a_dead_consumer_held_comes_again_with_its_count_up_and_in_its_place() -> None:
    async with running() as broker:
        client = await Client().connect(broker.address)
        sender = await client.attach("sender", "s", "q")
        await client.send(sender, *(Message(body=number) for number in range(4)))
        doomed = await Client().connect(broker.address)
        (await doomed.attach("receiver", "r", "q")).grant(2)
        await doomed.receive(None)
        await doomed.receive(None)
        doomed.engine.abort()
        (await client.attach("receiver", "r", "q")).grant(10)
        got = [await client.receive() for _ in range(4)]
        assert sorted((message.body, message.delivery_count) for message in got) == [
            (0, 1),
            (1, 1),
            (2, 0),
            (3, 0),
        ]
        await client.close()


@pytest.mark.parametrize(
    ("condition", "count"), [(None, 0), (proton.Condition("amqp:resource-limit-exceeded"), 1)]
)
async def test_a_client_that_closes_because_of_an_error_may_have_used_its_messages(
    condition: proton.Condition | None, count: int
) -> None:
    """The network may have delayed its heartbeats until the member gave it up."""
    async with running() as broker:
        client = await Client().connect(broker.address)
        await client.send(await client.attach("sender", "s", "q"), Message(body="x"))
        doomed = await Client().connect(broker.address)
        (await doomed.attach("receiver", "r", "q")).grant(1)
        await doomed.receive(None)
        doomed.engine.close(condition)
        (await client.attach("receiver", "r", "q")).grant(1)
        assert (await client.receive()).delivery_count == count
        await client.close()


async def test_a_closed_link_gives_its_messages_back_uncounted() -> None:
    async with running() as broker:
        client = await Client().connect(broker.address)
        await client.send(await client.attach("sender", "s", "q"), Message(body="x"))
        receiver = await client.attach("receiver", "r", "q")
        receiver.grant(1)
        await client.receive(None)
        receiver.close()
        assert (await client.links.get())[0] == "closed"
        (await client.attach("receiver", "r", "q")).grant(1)
        assert (await client.receive()).delivery_count == 0
        await client.close()


async def test_an_ended_session_gives_its_messages_back() -> None:
    async with running() as broker:
        client = await Client().connect(broker.address)
        await client.send(await client.attach("sender", "s", "q"), Message(body="x"))
        doomed = await Client().connect(broker.address)
        (await doomed.attach("receiver", "r", "q")).grant(1)
        await doomed.receive(None)
        doomed.session.close()
        doomed.engine.wake()
        (await client.attach("receiver", "r", "q")).grant(1)
        assert (await client.receive()).body == "x"
        await client.close()
        await doomed.end()


async def test_consumers_share_a_queue() -> None:
    async with running() as broker:
        client = await Client().connect(broker.address)
        sender = await client.attach("sender", "s", "q")
        one, two = [await client.attach("receiver", name, "q") for name in ("one", "two")]
        for receiver in (one, two):
            receiver.grant(2)
        await client.send(sender, *(Message(body=number) for number in range(5)))
        got = [await client.received.get() for _ in range(4)]
        assert sorted(message.body for _, _, message in got) == [0, 1, 2, 3]
        assert [link for link, _, _ in got].count(one) == 2
        await client.close()


async def test_a_browser_only_looks() -> None:
    def use(connection: BlockingConnection) -> list[Any]:
        sender = connection.create_sender("q")
        for number in range(4):
            sender.send(Message(body=number))
        return taken(connection.create_receiver("q", credit=10, options=Copy()), 4)

    async with running() as broker:
        assert await blocking(broker, use) == [0, 1, 2, 3]
        assert queue_status(broker)[0]["depth"] == 4


async def test_drain_gives_back_the_credit_that_cannot_be_used() -> None:
    async with running() as broker:
        client = await Client().connect(broker.address)
        await client.send(await client.attach("sender", "s", "q"), Message(body="x"))
        receiver = await client.attach("receiver", "r", "q")
        receiver.endpoint.drain(10)
        client.engine.wake()
        assert (await client.receive()).body == "x"
        await until(lambda: receiver.credit == 0)
        await client.close()


async def test_an_expired_message_is_not_delivered_and_ttl_counts_down() -> None:
    async with running() as broker:
        client = await Client().connect(broker.address)
        sender = await client.attach("sender", "s", "q")
        past = Message(body="past", expiry_time=time.time() - 5)
        await client.send(sender, Message(body="short", ttl=0.001), past, Message(body="long", ttl=60.0))
        await until(lambda: queue_status(broker)[0]["depth"] == 1)
        (await client.attach("receiver", "r", "q")).grant(3)
        message = await client.receive()
        assert message.body == "long"
        assert 50 < message.ttl < 60
        assert queue_status(broker)[0]["expired"] == 2
        await client.close()


async def test_a_second_copy_is_accepted_and_dropped() -> None:
    async with running() as broker:
        client = await Client().connect(broker.address)
        sender = await client.attach("sender", "s", "q")
        copies = [Message(body="x", properties={"_AMQ_DUPL_ID": name}) for name in ("a", "b", "a")]
        outcomes = await client.send(sender, *copies)
        assert [outcome.accepted for outcome in outcomes] == [True] * 3
        assert queue_status(broker)[0]["depth"] == 2
        await client.close()


async def test_at_most_once_in_both_directions() -> None:
    async with running() as broker:
        client = await Client().connect(broker.address)
        await client.send(await client.attach("sender", "s", "q"), Message(body="x"), settled=True)
        receiver = client.engine.receiver(client.session, "r", client)
        receiver.endpoint.source.address = "q"
        receiver.endpoint.snd_settle_mode = proton.Link.SND_SETTLED
        client.engine.attach(receiver)
        (await client.answered(receiver)).grant(1)
        async with asyncio.timeout(5):
            _, delivery, message = await client.received.get()
        assert (delivery, message.body) == (None, "x")
        assert queue_status(broker)[0]["depth"] == 0
        await client.close()


async def test_request_and_response_over_a_dynamic_address() -> None:
    async with running() as broker:
        service, client = await Client().connect(broker.address), await Client().connect(broker.address)
        (await service.attach("receiver", "requests", "service")).grant(1)
        replies = await client.attach("receiver", "replies", dynamic=True)
        replies.grant(1)
        reply_to = replies.endpoint.remote_source.address
        requests = await client.attach("sender", "requests", "service")
        await client.send(requests, Message(body=20, reply_to=reply_to, correlation_id="1"))
        request = await service.receive()
        anywhere = await service.attach("sender", "anywhere")
        answer = Message(
            address=request.reply_to, body=request.body + 1, correlation_id=request.correlation_id
        )
        assert [outcome.accepted for outcome in await service.send(anywhere, answer)] == [True]
        assert (await client.receive()).body == 21
        with pytest.raises(LinkRefusedError, match="belongs to another connection"):
            await service.attach("receiver", "thief", reply_to)
        await client.close()
        with pytest.raises(LinkRefusedError, match="amqp:not-found"):
            await service.attach("sender", "late", reply_to)
        [outcome] = await service.send(anywhere, answer)
        assert (outcome.state, outcome.condition) == (OutcomeState.REJECTED, "amqp:not-found")
        await service.close()


async def test_a_full_queue_gives_its_senders_no_more_credit_until_it_is_read() -> None:
    async with running(limits=QueueLimits(messages=100, low_watermark=0.5)) as broker:
        client = await Client().connect(broker.address)
        sender = await client.attach("sender", "s", "q")
        message = Message(body="x")
        await client.send(sender, *[message] * 1000)
        assert sender.credit == 0
        receiver = await client.attach("receiver", "r", "q")
        receiver.grant(960)
        for _ in range(960):
            await client.receive()
        await client.send(sender, message)
        await client.close()
        assert queue_status(broker)[0]["depth"] == 41


async def test_a_large_message_goes_through_whole() -> None:
    body = bytes(itertools.islice(itertools.cycle(range(256)), 3_000_000))
    async with running() as broker:
        client = await Client().connect(broker.address)
        await client.send(await client.attach("sender", "s", "q"), Message(body=body))
        (await client.attach("receiver", "r", "q")).grant(1)
        assert (await client.receive()).body == body
        await client.close()


async def test_a_client_that_does_not_read_holds_up_only_itself() -> None:
    async with running() as broker:
        client = await Client().connect(broker.address)
        sender = await client.attach("sender", "s", "q")
        await client.send(sender, *[Message(body=b"x" * 100_000) for _ in range(200)])
        slow = await Client().connect(broker.address)
        receiver = await slow.attach("receiver", "r", "q")
        slow.engine._socket.pause_reading()
        receiver.grant(1000)
        await until(lambda: queue_status(broker)[0]["acquired"] > 0)
        await client.send(await client.attach("sender", "other", "other"), Message(body="y"))
        (await client.attach("receiver", "other", "other")).grant(1)
        assert (await client.receive()).body == "y"
        assert queue_status(broker)[0]["acquired"] < 200
        slow.engine._socket.resume_reading()
        for _ in range(200):
            await slow.receive()
        await asyncio.gather(client.close(), slow.close())


async def test_bytes_that_are_no_message_are_rejected_and_the_link_goes_on() -> None:
    async with running() as broker:
        client = await Client().connect(broker.address)
        sender = await client.attach("sender", "s", "q")
        while not sender.credit:
            await client.credit.wait()
        sender.send(b"not a message", None)
        outcome = await client.outcomes.get()
        assert (outcome.state, outcome.condition) == (OutcomeState.REJECTED, "amqp:decode-error")
        [outcome] = await client.send(sender, Message(body="x"))
        assert outcome.accepted
        await client.close()


async def test_a_message_that_raises_is_rejected_with_the_reason_and_the_link_goes_on() -> None:
    async with running() as broker:
        client = await Client().connect(broker.address)
        sender = await client.attach("sender", "s", "q")
        message = Message(body="m", properties={"_AMQ_DUPL_ID": "an id"})
        with mock.patch.object(DuplicateWindow, "remember", side_effect=OverflowError("too large")):
            [outcome] = await client.send(sender, message)
        assert outcome is not None
        assert (outcome.state, outcome.condition) == (OutcomeState.REJECTED, "amqp:internal-error")
        assert outcome.description == "OverflowError: too large"
        assert await client.send(sender, message) == [ACCEPTED]
        assert broker.addresses.queue("q").depth == 1
        await client.close()


async def test_a_store_that_has_failed_leaves_messages_to_the_next_primary() -> None:
    """A rejected message would not be sent again."""
    async with running() as broker:
        client = await Client().connect(broker.address)
        sender = await client.attach("sender", "s", "q")
        with mock.patch.object(DuplicateWindow, "remember", side_effect=StoreFailedError("disk")):
            sender.send(bytes(Message(body="m", properties={"_AMQ_DUPL_ID": "an id"}).encode()), None)
            await client.end()
        assert client.outcomes.empty()
        assert broker.addresses.queue("q").depth == 0


@pytest.mark.parametrize(
    ("address", "condition"),
    [("", "amqp:invalid-field"), ("x" * 2000, "amqp:invalid-field"), ("$unknown", "amqp:not-found")],
    ids=["empty", "too long", "reserved"],
)
async def test_an_impossible_address_is_refused_with_the_reason(address: str, condition: str) -> None:
    async with running() as broker:
        client = await Client().connect(broker.address)
        with pytest.raises(LinkRefusedError) as refused:
            await client.attach("receiver", "r", address)
        assert refused.value.condition == condition
        await client.attach("receiver", "r", "possible")
        await client.close()


async def test_without_auto_create_an_unknown_address_is_not_found() -> None:
    async with running(auto_create=False) as broker:
        client = await Client().connect(broker.address)
        with pytest.raises(LinkRefusedError, match="amqp:not-found"):
            await client.attach("sender", "s", "q")
        await client.close()


async def test_a_link_name_can_be_used_again_after_its_link_is_closed() -> None:
    async with running() as broker:
        client = await Client().connect(broker.address)
        for number in range(3):
            sender = await client.attach("sender", "same", "q")
            await client.send(sender, Message(body=number))
            sender.close()
            assert (await client.links.get())[0] == "closed"
        await client.close()
        assert queue_status(broker)[0]["depth"] == 3


async def test_a_rejected_send_raises_in_protons_client() -> None:
    def use(connection: BlockingConnection) -> None:
        connection.create_sender(None).send(Message(body="x", address="$nowhere"))

    async with running() as broker:
        with pytest.raises(SendException):
            await blocking(broker, use)


@pytest.mark.parametrize("address", ["orders", "news/key", None])
@pytest.mark.parametrize(
    "identifier",
    [lambda size: "x" * size, bytes, lambda size: proton.symbol("x" * size)],
    ids=["string", "binary", "symbol"],
)
async def test_a_duplicate_detection_id_has_at_most_256_bytes(
    address: str | None, identifier: Callable[[int], Any]
) -> None:
    """A larger one is refused before any of the message is kept; the link goes on."""
    async with running() as broker:
        orders = broker.addresses.queue("orders")
        broker.addresses.bind(broker.addresses.declare_exchange("news", ExchangeType.FANOUT), orders, "")
        client = await Client().connect(broker.address)
        link = await client.attach("sender", "s", address)
        depths = []
        for size in (256, 257, 70_000, 1):
            message = Message(body="x", address=address or "orders")
            message.properties = {"_AMQ_DUPL_ID": identifier(size)}
            [outcome] = await client.send(link, message)
            depths.append((outcome.accepted, orders.depth, len(orders.duplicates)))
            if not outcome.accepted:
                assert (outcome.state, outcome.condition) == (OutcomeState.REJECTED, "amqp:invalid-field")
                assert outcome.description == "_AMQ_DUPL_ID has at most 256 bytes"
        assert depths == [(True, 1, 1), (False, 1, 1), (False, 1, 1), (True, 2, 2)]
        await client.close()


def test_an_id_of_a_type_with_parts_is_measured_with_them() -> None:
    """Computed by hand: a list32 of one binary32, whose bytes count."""
    for size, taken in ((243, True), (300, False)):
        parts = b"\xb0" + size.to_bytes(4, "big") + bytes(size)
        value = b"\xd0" + (4 + len(parts)).to_bytes(4, "big") + (1).to_bytes(4, "big") + parts
        content = b"\xa1\x0c_AMQ_DUPL_ID" + value
        section = (
            b"\x00\x53\x74\xd1" + (4 + len(content)).to_bytes(4, "big") + (2).to_bytes(4, "big") + content
        )
        data = section + b"\x00\x53\x77\x40"
        with contextlib.nullcontext() if taken else pytest.raises(InvalidFieldError):
            assert inspect_new(data).duplicate_id == value
