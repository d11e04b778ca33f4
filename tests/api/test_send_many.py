"""``send_many``: pipelined within the window, in order, and every message has a result."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from typing import Any

import pytest

from haclient import Message, aio, blocking
from haclient.engine import codec
from haclient.errors import (
    ConnectionClosed,
    DeliveryUnknown,
    LinkClosed,
    MessageNotAccepted,
    SendManyError,
    SendTimeout,
    UnencodableValue,
)
from haclient.outcome import ACCEPTED, Outcome, OutcomeState
from haclient.testing.threads import in_thread
from tests.peers import primary, url
from tests.peers.apis import API, connected

REJECTED = Outcome(OutcomeState.REJECTED, "amqp:decode-error", "no")


@pytest.mark.parametrize("window", [1, 2, 1000])
async def test_all_are_sent_in_order(api: API, window: int) -> None:
    async with primary(grants=7) as peer, connected(api, peer, window=window) as connection:
        sender = await connection.create_sender("q")
        bodies = [f"{number}" for number in range(50)]
        assert await sender.send_many(bodies) == [ACCEPTED] * 50
        assert peer.bodies == bodies
        assert sender.unsettled == 0


async def test_messages_and_bodies_may_be_mixed(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        assert await sender.send_many([b"bytes", Message(body="message"), {"a": [1]}]) == [ACCEPTED] * 3
        assert peer.bodies == [b"bytes", "message", {"a": [1]}]


async def test_nothing_to_send_is_no_message(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        assert await sender.send_many([]) == []
        assert await sender.send_many(iter(())) == []
        assert peer.received == []


async def test_an_iterator_is_read_as_the_window_allows(api: API) -> None:
    read: list[int] = []

    def bodies() -> Iterator[str]:
        for number in range(10):
            read.append(number)
            yield f"{number}"

    async with primary(outcome=None) as peer, connected(api, peer, window=3) as connection:
        sender = await connection.create_sender("q")
        sending = asyncio.ensure_future(sender.send_many(bodies()))
        await peer.until(lambda: len(peer.received) == 3)
        assert read == [0, 1, 2]
        peer.outcome = ACCEPTED
        peer.drop()
        assert await sending == [ACCEPTED] * 10
        assert peer.bodies == [f"{number}" for number in range(10)]


async def test_an_asynchronous_iterator_may_wait() -> None:
    """Only for the asyncio API: the blocking one cannot wait for an iterator."""

    async def bodies() -> AsyncIterator[str]:
        for number in range(5):
            await asyncio.sleep(0)
            yield f"{number}"

    async with primary() as peer, aio.connect(url(peer, window=2)) as connection:
        sender = await connection.create_sender("q")
        assert await sender.send_many(bodies()) == [ACCEPTED] * 5
        assert peer.bodies == [f"{number}" for number in range(5)]


async def test_what_is_not_accepted_has_its_error_in_its_place(api: API) -> None:
    async with primary(outcome=REJECTED) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        with pytest.raises(SendManyError) as caught:
            await sender.send_many(["a", "b", "c"])
        results = caught.value.results
        assert [type(each) for each in results] == [MessageNotAccepted] * 3
        assert [each.outcome for each in results] == [REJECTED] * 3  # type: ignore[union-attr]
        assert str(caught.value) == (
            "3 of 3 messages were not accepted\n"
            "  3 times, first at [0]: the message was rejected (amqp:decode-error: no)"
        )
        assert (caught.value.delivered, caught.value.safe_to_retry) == (False, True)
        again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
        assert (str(again), len(again.results), again.delivered) == (str(caught.value), 3, False)


async def test_one_that_is_rejected_leaves_the_others_accepted(api: API) -> None:
    async with primary() as peer, connected(api, peer, window=1) as connection:
        sender = await connection.create_sender("q")

        def bodies() -> Iterator[str]:
            for number in range(4):
                peer.outcome = REJECTED if number == 2 else ACCEPTED
                yield f"{number}"

        with pytest.raises(
            SendManyError, match=r"1 of 4 messages were not accepted\n  1 times, first at \[2\]"
        ) as caught:
            await sender.send_many(bodies())
        assert [isinstance(each, Outcome) for each in caught.value.results] == [True, True, False, True]
        assert caught.value.delivered is None
        assert not caught.value.safe_to_retry


async def test_the_time_is_that_of_the_whole_call(api: API) -> None:
    async with primary(outcome=None) as peer, connected(api, peer, window=3) as connection:
        sender = await connection.create_sender("q")
        with pytest.raises(SendManyError, match=r"no more were taken: the 0\.3 s of the call") as caught:
            await sender.send_many((f"{number}" for number in range(10)), timeout=0.3)
        results = caught.value.results
        assert [type(each) for each in results] == [SendTimeout] * 3
        assert [each.delivered for each in results] == [None] * 3
        assert sender.unsettled == 0
        # Each can be repeated by its own id.
        peer.outcome = ACCEPTED
        for body, each in enumerate(results):
            assert isinstance(each, SendTimeout)
            await sender.send(f"{body}", duplicate_id=each.duplicate_id)
        assert (peer.bodies, peer.copies) == (["0", "1", "2"], 3)


async def test_what_never_left_is_not_delivered(api: API) -> None:
    async with primary(grants=0) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        with pytest.raises(SendManyError) as caught:
            await sender.send_many(["a", "b"], timeout=0.05)
        assert [each.delivered for each in caught.value.results] == [False, False]  # type: ignore[union-attr]
        assert (caught.value.delivered, caught.value.safe_to_retry) == (False, True)
        peer.grant(10)
        assert await sender.send_many(["c"]) == [ACCEPTED]
        assert peer.bodies == ["c"]


async def test_when_none_could_be_taken_it_is_the_error_of_send(api: API) -> None:
    async with primary(outcome=None) as peer, connected(api, peer, window=1) as connection:
        sender = await connection.create_sender("q")
        filling = await sender.submit("fills the window")
        with pytest.raises(SendTimeout, match=r"the window of 1 messages stayed full for 0\.05 s"):
            await sender.send_many(["a"], timeout=0.05)
        filling.cancel()
        await sender.close()
        with pytest.raises(LinkClosed):
            await sender.send_many(["a"])


async def test_a_closed_sender_ends_it(api: API) -> None:
    async with primary(outcome=None) as peer, connected(api, peer, window=2) as connection:
        sender = await connection.create_sender("q")
        sending = asyncio.ensure_future(sender.send_many([*"abcd"]))
        await peer.until(lambda: len(peer.received) == 2)
        await sender.close()
        with pytest.raises(SendManyError, match="no more were taken: the sender for 'q' is closed") as caught:
            await sending
        assert [type(each) for each in caught.value.results] == [LinkClosed] * 2
        assert [each.delivered for each in caught.value.results] == [None] * 2  # type: ignore[union-attr]


async def test_a_closed_connection_ends_it(api: API) -> None:
    async with primary(outcome=None) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        sending = asyncio.ensure_future(sender.send_many([*"ab"]))
        await peer.until(lambda: len(peer.received) == 2)
        await connection.close()
        with pytest.raises(SendManyError) as caught:
            await sending
        assert [type(each) for each in caught.value.results] == [ConnectionClosed] * 2
        assert not caught.value.connection_usable


async def test_at_most_once_a_lost_connection_leaves_unknown_ones(api: API) -> None:
    async with (
        primary(outcome=None) as peer,
        connected(api, peer, window=2, delivery="at-most-once") as connection,
    ):
        sender = await connection.create_sender("q")
        sending = asyncio.ensure_future(sender.send_many([*"abcd"]))
        await peer.until(lambda: len(peer.received) == 2)
        peer.outcome = ACCEPTED
        peer.drop()
        with pytest.raises(SendManyError, match="2 of 4") as caught:
            await sending
        assert [type(each) for each in caught.value.results] == [DeliveryUnknown] * 2 + [Outcome] * 2


async def test_a_failover_sends_them_again(api: API) -> None:
    async with primary(outcome=None) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        sending = asyncio.ensure_future(sender.send_many([*"abc"]))
        await peer.until(lambda: len(peer.received) == 3)
        peer.outcome = ACCEPTED
        peer.drop()
        assert await sending == [ACCEPTED] * 3
        assert (peer.bodies, peer.copies) == ([*"abc"], 3)


async def test_what_the_iterable_raises_is_raised_when_the_others_have_arrived(api: API) -> None:
    def bodies() -> Iterator[Any]:
        yield "a"
        yield "b"
        raise ZeroDivisionError("in the iterable")

    async with primary() as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        with pytest.raises(ZeroDivisionError, match="in the iterable") as caught:
            await sender.send_many(bodies())
        assert caught.value.__notes__ == ["send_many had sent before: all 2 messages were accepted"]
        assert peer.bodies == ["a", "b"]
        assert sender.unsettled == 0
        # Other calls can use the freed place in the window.
        await sender.send("next")


async def test_what_cannot_be_encoded_is_a_result_and_the_others_are_sent(api: API) -> None:
    bodies: list[Any] = ["a", {"price": [Decimal(1)]}, "b", None, object(), "c"]
    async with primary() as peer, connected(api, peer, window=2) as connection:
        sender = await connection.create_sender("q")
        with pytest.raises(SendManyError, match="3 of 6 messages were not accepted") as caught:
            await sender.send_many(bodies)
        results = caught.value.results
        assert [isinstance(each, UnencodableValue) for each in results] == [
            each not in ("a", "b", "c") for each in bodies
        ]
        assert "body['price'][0]: Decimal" in str(results[1])
        assert "None is no body" in str(results[3])
        assert peer.bodies == ["a", "b", "c"]
        assert sender.unsettled == 0


class Late(TimeoutError):
    """An error of the iterator that is not the call's timeout."""


async def test_an_error_of_the_iterator_hides_no_rejected_message(api: API) -> None:
    def bodies() -> Iterator[str]:
        yield "a"
        raise Late("the database")

    async with primary(outcome=REJECTED) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        with pytest.raises(Late, match="the database") as caught:
            await sender.send_many(bodies(), timeout=60)
        assert "1 of 1 messages were not accepted" in caught.value.__notes__[0]


@pytest.mark.parametrize("wrong", [None, 5, Message(body="one")], ids=repr)
async def test_what_cannot_be_iterated_is_a_type_error(api: API, wrong: Any) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        with pytest.raises(TypeError, match="send_many takes an iterable"):
            await sender.send_many(wrong)


@pytest.mark.parametrize("wrong", ["text", b"bytes", {"a": 1}], ids=repr)
async def test_a_single_body_is_not_taken_to_pieces(api: API, wrong: Any) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        with pytest.raises(TypeError, match="one body: give it to send"):
            await sender.send_many(wrong)
        assert peer.received == []


async def test_a_cancellation_withdraws_what_is_not_on_the_wire() -> None:
    async with (
        primary(grants=2, outcome=None) as peer,
        aio.connect(url(peer, window=4, backoff_base=0.001)) as connection,
    ):
        sender = await connection.create_sender("q")
        sending = asyncio.ensure_future(sender.send_many([*"abcdef"]))
        await peer.until(lambda: len(peer.received) == 2)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert sender.unsettled == 2
        # They stay until they are settled or their connection is lost, although no call waits for them.
        peer.outcome, peer.grants = ACCEPTED, 10
        peer.drop()
        await sender.send("next")
        assert (peer.bodies, peer.copies) == (["a", "b", "next"], 0)


def test_an_interrupt_withdraws_what_is_not_on_the_wire() -> None:
    def bodies() -> Iterator[str]:
        yield from "ab"
        raise KeyboardInterrupt

    with in_thread(primary(grants=0)) as peer, blocking.connect(url(peer)) as connection:
        sender = connection.create_sender("q")
        with pytest.raises(KeyboardInterrupt):
            sender.send_many(bodies())
        assert sender.unsettled == 0
        sender.close()


async def test_others_send_beside_it(api: API) -> None:
    """Neither starves the other, whatever the window."""
    async with primary(grants=5) as peer, connected(api, peer, window=2) as connection:
        sender = await connection.create_sender("q")
        many = [asyncio.ensure_future(sender.send_many([f"{n}"] * 100)) for n in range(3)]
        for _ in range(20):
            await sender.send("one")
        assert await asyncio.gather(*many) == [[ACCEPTED] * 100] * 3
        assert (len(peer.received), sender.unsettled) == (320, 0)


async def test_durable_holds_for_each(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        await sender.send_many(["a", Message(body="b")], durable=False)
        await sender.send_many(["c", Message(body="d")])
        assert [codec.decode(data).durable for data in peer.received] == [False, False, True, True]
