"""Arguments of ``send`` and its siblings: messages, and plain bodies."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import gc
import logging
import threading
import uuid
from typing import Any

import proton
import pytest

from haclient import Message, aio, blocking
from haclient.core.message_encoder import Additions, OutgoingMessage
from haclient.engine import codec
from haclient.errors import LinkClosed, MessageNotAccepted, SendManyError, WindowFull
from haclient.outcome import ACCEPTED, Outcome, OutcomeState
from haclient.testing.threads import in_thread
from tests.peers import Primary, primary, url
from tests.peers.apis import API, connected

CALLS = ("send", "submit", "submit_nowait", "send_many")
AMQP_VALUE, DATA = b"\x00\x53\x77", b"\x00\x53\x75"
UTC = datetime.UTC


async def send(sender: Any, call: str, body: Any) -> None:
    """Send one body by any of the calls, and wait until it is accepted."""
    match call:
        case "send":
            assert await sender.send(body) == ACCEPTED
        case "submit":
            assert await (await sender.submit(body)) == ACCEPTED
        case "submit_nowait":
            assert await submitted(sender, body) == ACCEPTED
        case "send_many":
            try:
                assert await sender.send_many([body]) == [ACCEPTED]
            except SendManyError as error:
                raise error.results[0] from error  # type: ignore[misc]


async def submitted(sender: Any, body: Any, **arguments: Any) -> Outcome:
    """Return the outcome of a ``submit_nowait``, which is a coroutine if the API runs on a thread."""
    future = sender.submit_nowait(body, **arguments)
    if not isinstance(future, asyncio.Future):
        future = await future
    outcome: Outcome = await future
    return outcome


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("body", "section", "received"),
    [
        (b"bytes", DATA, b"bytes"),
        (bytearray(b"array"), DATA, b"array"),
        (memoryview(b"view")[1:], DATA, b"iew"),
        ("text", AMQP_VALUE, "text"),
        ({"items": [{"price": 1.5}], "n": None}, AMQP_VALUE, {"items": [{"price": 1.5}], "n": None}),
        ([1, [2, b"three"]], AMQP_VALUE, [1, [2, b"three"]]),
        (5, AMQP_VALUE, 5),
        (0.5, AMQP_VALUE, 0.5),
        (True, AMQP_VALUE, True),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_body_is_sent_without_a_message(
    api: API, call: str, body: Any, section: bytes, received: Any
) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        await send(await connection.create_sender("q"), call, body)
        assert peer.bodies == [received]
        assert type(peer.bodies[0]) is type(received)
        assert section in peer.received[0]


@pytest.mark.parametrize("call", CALLS)
async def test_a_tuple_arrives_as_a_list_with_and_without_a_message(api: API, call: str) -> None:
    for body in ((1, 2), {"pairs": [(1, (2,)), ()]}):
        async with primary() as peer, connected(api, peer) as connection:
            sender = await connection.create_sender("q")
            await send(sender, call, body)
            await send(sender, call, Message(body))
            assert peer.bodies[0] == peer.bodies[1] in ([1, 2], {"pairs": [[1, [2]], []]})


async def test_a_wait_for_a_primary_takes_nothing_off_a_time_to_live(api: API) -> None:
    async with primary(grants=0) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        settled = await sender.submit(Message("one", ttl=5))
        peer.grants = 1
        peer.drop()
        assert await settled == ACCEPTED
        assert codec.decode(peer.received[0]).ttl == 5


@pytest.mark.parametrize("call", CALLS)
async def test_what_amqp_cannot_carry_is_named_by_its_path(api: API, call: str) -> None:
    body = {"items": [0, 1, 2, {"price": decimal.Decimal("1.5")}]}
    async with primary() as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        with pytest.raises(TypeError) as caught:
            await send(sender, call, body)
        assert str(caught.value) == (
            "body['items'][3]['price']: Decimal is not an AMQP type; "
            "send str(value), or float(value) if it may be rounded"
        )
        with pytest.raises(TypeError, match=r"^properties\['at'\]: a datetime without a time zone"):
            await send(sender, call, Message(properties={"at": datetime.datetime(2026, 1, 1)}))  # noqa: DTZ001
        with pytest.raises(TypeError, match=r"^body: None is no body; send Message"):
            await send(sender, call, None)
        assert (peer.received, sender.unsettled) == ([], 0)


async def test_a_datetime_and_a_uuid_arrive_as_such(api: API) -> None:
    at, of = datetime.datetime(2026, 11, 22, 12, 30, 15, 123_999, tzinfo=UTC), uuid.uuid4()
    async with primary() as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        await sender.send({"at": at, "of": of})
        await sender.send(Message(body=at, properties={"of": of, "at": at}))
        milliseconds = proton.timestamp(1795350615123)
        assert peer.bodies == [{"at": milliseconds, "of": of}, milliseconds]
        assert type(peer.bodies[1]) is proton.timestamp


async def test_what_was_received_can_be_sent_on(api: API) -> None:
    """A timestamp is proton's, an ``int`` of milliseconds, and is sent as a timestamp again."""
    at = datetime.datetime(2026, 11, 22, 12, 30, 15, 123_000, tzinfo=UTC)
    body = {"at": at, "of": uuid.uuid4(), "n": [1, 0.5, None, b"x"]}
    async with primary() as peer, connected(api, peer) as connection:
        sender, receiver = await connection.create_sender("q"), await connection.create_receiver("q")
        await sender.send(body)
        peer.queues["q"].append(peer.received[0])
        peer.put("q", "last")
        received = (await receiver.receive(timeout=10)).body
        assert datetime.datetime.fromtimestamp(received["at"] / 1000, UTC) == at
        await sender.send(received)
        assert peer.bodies[1] == peer.bodies[0]
        assert type(peer.bodies[1]["at"]) is proton.timestamp


async def test_a_body_is_encoded_at_once(api: API) -> None:
    async with primary(grants=0) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        body = {"state": "before"}
        sending = await sender.submit(body)
        body["state"] = "after"
        peer.grant(1)
        await sending
        assert peer.bodies == [{"state": "before"}]


async def test_a_hook_sees_a_message(api: API) -> None:
    seen = []

    def hook(outgoing: OutgoingMessage) -> Additions:
        seen.append((outgoing.message.body, outgoing.message.inferred))
        return Additions(properties={"added": 1})

    async with primary() as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q", on_encode=hook)
        await sender.send("text")
        await sender.send(bytearray(b"bytes"))
        assert seen == [("text", False), (b"bytes", True)]
        assert peer.bodies == ["text", b"bytes"]
        assert DATA in peer.received[1]
        assert properties(peer, 0)["added"] == 1


def properties(peer: Primary, index: int) -> Any:
    return codec.decode(peer.received[index]).properties


async def test_a_body_has_a_duplicate_id_and_is_durable_as_a_message_is(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        await sender.send("automatic")
        await sender.send("chosen", duplicate_id="mine", durable=False)
        await submitted(sender, "binary", duplicate_id=b"\x00", durable=True)
        assert str(properties(peer, 0)["_AMQ_DUPL_ID"]).startswith("haclient:")
        assert [properties(peer, each)["_AMQ_DUPL_ID"] for each in (1, 2)] == ["mine", b"\x00"]
        assert [codec.decode(data).durable for data in peer.received] == [True, False, True]
        with pytest.raises(TypeError, match="duplicate_id is a str or bytes, not int"):
            await sender.send("wrong", duplicate_id=5)


# -- submit_nowait --------------------------------------------------------------------------------


async def test_submit_nowait_never_waits(api: API) -> None:
    async with primary(outcome=None) as peer, connected(api, peer, window=2) as connection:
        sender = await connection.create_sender("q")
        waiting = [await sender.submit("1"), await sender.submit("2")]
        with pytest.raises(WindowFull, match=r"^the window of 2 messages is full$") as caught:
            await submitted(sender, "3")
        error = caught.value
        assert (error.window, error.delivered, error.safe_to_retry, error.connection_usable) == (
            2,
            False,
            True,
            True,
        )
        await peer.until(lambda: len(peer.received) == 2)
        peer.outcome = ACCEPTED
        peer.drop()
        await asyncio.gather(*waiting)
        assert await submitted(sender, "3") == ACCEPTED
        assert peer.bodies == ["1", "2", "3"]


async def test_submit_nowait_on_a_closed_sender_says_so(api: API) -> None:
    async with primary(outcome=None) as peer, connected(api, peer, window=1) as connection:
        sender = await connection.create_sender("q")
        await sender.close()
        with pytest.raises(LinkClosed):
            await submitted(sender, "late")


def test_submit_nowait_keeps_within_the_window_on_many_threads() -> None:
    with in_thread(primary(outcome=None)) as peer, blocking.connect(url(peer, window=50)) as connection:
        sender = connection.create_sender("q")
        refused: list[WindowFull] = []

        def submit() -> None:
            for _ in range(50):
                try:
                    sender.submit_nowait("body")
                except WindowFull as error:
                    refused.append(error)

        threads = [threading.Thread(target=submit) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (sender.unsettled, len(refused)) == (50, 150)
        sender.close()


# -- futures that are never awaited ----------------------------------------------------------------


async def test_a_future_that_nobody_looks_at_prints_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Only for the asyncio API: futures of the blocking API never print."""
    rejected = Outcome(OutcomeState.REJECTED, "amqp:decode-error", "no")
    async with primary(outcome=rejected) as peer, aio.connect(url(peer)) as connection:
        sender = await connection.create_sender("q")
        with caplog.at_level(logging.DEBUG):
            await sender.submit("one")
            sender.submit_nowait("two")
            await sender.flush()
            gc.collect()
        assert [each.message for each in caplog.records if "never retrieved" in each.message] == []
        failed = [each for each in caplog.records if "submitted failed" in each.message]
        assert [each.levelno for each in failed] == [logging.DEBUG] * 2
        future = await sender.submit("three")
        with pytest.raises(MessageNotAccepted):
            await future
