"""A send that timed out can be repeated by its id without a second message at the broker."""

from __future__ import annotations

import asyncio
import copy
import pickle
from typing import Any

import pytest
from proton import Message

from haclient import events
from haclient.core.message_encoder import Additions
from haclient.errors import ConnectionClosed, SendTimeout
from haclient.outcome import ACCEPTED
from tests.members import Members
from tests.peers import Primary, primary, url
from tests.peers.apis import API, connected

ID = "_AMQ_DUPL_ID"
# The timeout of a send that is to time out after its message has arrived.
SHORT = 0.4
FAST = {"backoff_base": 0.001, "backoff_max": 0.01}


async def timed_out(sender: Any, peer: Primary, message: Message, **arguments: Any) -> SendTimeout:
    """Send a message that arrives and is not settled in time."""
    number = len(peer.received) + peer.copies + 1
    sending = asyncio.ensure_future(sender.send(message, timeout=SHORT, **arguments))
    await peer.until(lambda: len(peer.received) + peer.copies == number)
    with pytest.raises(SendTimeout) as caught:
        await sending
    assert caught.value.delivered is None
    return caught.value


def ids(peer: Primary) -> list[Any]:
    found = []
    for data in peer.received:
        message = Message()
        message.decode(data)
        value = (message.properties or {}).get(ID)
        found.append(bytes(value) if isinstance(value, memoryview) else value)  # a view into the message
    return found


async def _error_of(future: Any) -> BaseException | None:
    return (await asyncio.gather(future, return_exceptions=True))[0]


async def test_the_error_has_the_id_of_a_message_that_the_client_could_not_receive(api: API) -> None:
    """A tuple as a map's key is a list on the wire, and cannot be a key of a dict when received."""
    async with primary(outcome=None) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        error = await timed_out(sender, peer, Message(body={(1, 2): "x"}), duplicate_id="mine")
        assert error.duplicate_id == "mine"


async def test_a_send_repeated_by_its_id_is_stored_once(api: API) -> None:
    async with primary(outcome=None) as peer, connected(api, peer) as connection:
        sender, message = await connection.create_sender("q"), Message(body="one")
        error = await timed_out(sender, peer, message)
        assert [error.duplicate_id] == ids(peer)
        again = await timed_out(sender, peer, message, duplicate_id=error.duplicate_id)
        assert again.duplicate_id == error.duplicate_id
        peer.outcome = ACCEPTED
        assert (await sender.send(message, duplicate_id=again.duplicate_id)).accepted
        assert (peer.bodies, peer.copies) == (["one"], 2)
        assert message.properties is None, "nothing is kept in the message"


async def test_without_the_id_it_is_another_message(api: API) -> None:
    """A program may use one message repeatedly, with the same body or another."""
    async with primary(outcome=None) as peer, connected(api, peer) as connection:
        sender, message = await connection.create_sender("q"), Message(body="one")
        await timed_out(sender, peer, message)
        peer.outcome = ACCEPTED
        await sender.send(message)
        message.body = "two"
        await sender.send(message)
        assert (peer.bodies, peer.copies) == (["one", "one", "two"], 0)


async def test_it_can_be_repeated_on_another_connection(api: API) -> None:
    async with primary(outcome=None) as peer:
        async with connected(api, peer) as connection:
            error = await timed_out(await connection.create_sender("q"), peer, Message(body="one"))
        peer.outcome = ACCEPTED
        async with connected(api, peer) as connection:
            future = await (await connection.create_sender("q")).submit(
                Message(body="one"), duplicate_id=error.duplicate_id
            )
            assert (await future).accepted
        assert (peer.bodies, peer.copies) == (["one"], 1)


async def test_a_message_that_never_left_has_its_id_too(api: API) -> None:
    async with primary(grants=0) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        with pytest.raises(SendTimeout) as caught:
            await sender.send(Message(body="one"), timeout=0.01)
        assert caught.value.delivered is False
        peer.grant(10)
        await sender.send(Message(body="one"), duplicate_id=caught.value.duplicate_id)
        assert (peer.bodies, peer.copies) == (["one"], 0)
        assert ids(peer) == [caught.value.duplicate_id]


@pytest.mark.parametrize("call", ["send", "submit"])
async def test_a_repetition_that_finds_the_window_full_keeps_its_id(api: API, call: str) -> None:
    async with primary(outcome=None) as peer, connected(api, peer, window=1) as connection:
        sender, message = await connection.create_sender("q"), Message(body="one")
        error = await timed_out(sender, peer, message)
        filling = await sender.submit(Message(body="fills the window"))
        await peer.until(lambda: len(peer.received) == 2)
        with pytest.raises(SendTimeout) as caught:
            await getattr(sender, call)(message, timeout=0.01, duplicate_id=error.duplicate_id)
        assert caught.value.delivered is False
        peer.outcome = ACCEPTED
        peer.drop()
        assert (await filling).accepted
        assert (await sender.send(message, duplicate_id=caught.value.duplicate_id)).accepted
        assert peer.bodies == ["one", "fills the window"]


async def test_the_applications_own_id_is_the_one_to_repeat_by(api: API) -> None:
    async with primary(outcome=None) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        mine = Message(properties={ID: "mine", "n": 1})
        assert (await timed_out(sender, peer, mine)).duplicate_id == "mine"
        error = await timed_out(sender, peer, mine, duplicate_id="of this send")
        assert error.duplicate_id == "of this send"
        assert ids(peer) == ["mine", "of this send"]
        assert mine.properties == {ID: "mine", "n": 1}


@pytest.mark.parametrize("duplicate_id", ["", "x" * 300, b"\x00\xff", b""])
@pytest.mark.parametrize("body", ["text", {"a": "map"}], ids=["plain", "any"])
async def test_an_id_may_be_text_or_bytes_of_any_length(
    api: API, duplicate_id: str | bytes, body: object
) -> None:
    async with primary() as peer, connected(api, peer, duplicate_detection="false") as connection:
        sender = await connection.create_sender("q")
        await sender.send(Message(body=body), duplicate_id=duplicate_id)
        await sender.send(Message(body=body), duplicate_id=duplicate_id)
        assert (peer.copies, ids(peer)) == (1, [duplicate_id])


async def test_without_duplicate_detection_there_is_no_id_to_repeat_by(api: API) -> None:
    async with (
        primary(outcome=None) as peer,
        connected(api, peer, duplicate_detection="false") as connection,
    ):
        error = await timed_out(await connection.create_sender("q"), peer, Message(body="one"))
        assert error.duplicate_id is None


async def test_what_a_hook_adds_stands_beside_the_id(api: API) -> None:
    def hook(_: object) -> Additions:
        return Additions(properties={"added": 1, ID: "by the hook"})

    async with primary() as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q", on_encode=hook)
        await sender.send(Message(body="one"), duplicate_id="mine")
        assert ids(peer) == ["mine"]


async def test_the_text_says_when_nobody_is_connected(api: API) -> None:
    async with primary(outcome=None) as peer:
        connection = await api.connect(url(peer, window=1, **FAST))
        sender, watching = await connection.create_sender("q"), connection.events()
        error = await timed_out(sender, peer, Message(body="one"))
        assert str(error) == f"the primary did not settle the message within {SHORT} s"
    async for event in watching:
        if isinstance(event, events.Disconnected):
            break
    with pytest.raises(SendTimeout) as caught:
        await sender.send(Message(body="two"), timeout=0.01)
    nobody = "the connection has no primary"
    assert str(caught.value) == f"{nobody}: the message was not settled within 0.01 s"
    waiting = await sender.submit(Message(body="fills the window"))
    for call in (sender.send, sender.submit):
        with pytest.raises(SendTimeout, match=nobody):
            await call(Message(body="two"), timeout=0.01)
    await connection.close()
    assert isinstance(await asyncio.wait_for(_error_of(waiting), 5), ConnectionClosed)


async def test_a_broker_stores_one_message(api: API, members: Members) -> None:
    """The broker is paused when the first copy is on its way, and gets both when it resumes."""
    broker = members.start("alone", role="primary")
    connection = await api.connect(f"amqp://{broker.address}")
    sender, message = await connection.create_sender("q"), Message(body="one")
    await sender.send(Message(body="before"))
    await asyncio.to_thread(broker.pause)
    with pytest.raises(SendTimeout) as caught:
        await sender.send(message, timeout=SHORT)
    assert caught.value.delivered is None
    await asyncio.to_thread(broker.resume)
    assert (await sender.send(message, duplicate_id=caught.value.duplicate_id)).accepted
    await connection.close()
    stored = await asyncio.to_thread(broker.messages, "q")
    assert [each.body for each in stored] == ["before", "one"]


@pytest.mark.parametrize("how", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])  # noqa: S301
def test_the_id_survives_with_the_error(how: Any) -> None:
    assert how(SendTimeout("late", duplicate_id="mine")).duplicate_id == "mine"
