"""A message that cannot be decoded is delivered; reading it raises the reason, and the receiver goes on."""

from __future__ import annotations

import pytest

from haclient.errors import HaclientError, UndecodableMessage
from haclient.outcome import Outcome, OutcomeState
from tests.engine.encoded_messages import list_of, section
from tests.peers import primary, url
from tests.peers.apis import API

DATA, SEQUENCE, VALUE = 0x75, 0x76, 0x77
TOO_MANY = section(VALUE, list_of([b"\x40"] * 70_000))


@pytest.mark.parametrize("data", [TOO_MANY, section(VALUE, b"\xa1\x05cut"), b"no message"])
async def test_it_can_be_rejected_and_the_next_one_is_received(api: API, data: bytes) -> None:
    async with primary() as peer:
        connection = await api.connect(url(peer))
        receiver = await connection.create_receiver("q", credit=1)
        peer.put_encoded("q", data)
        peer.put("q", "next")
        delivery = await receiver.receive(timeout=10)
        for name in ("body", "message", "duplicate_id", "body"):
            with pytest.raises(UndecodableMessage, match=r"^cannot decode the ") as caught:
                getattr(delivery, name)
            assert isinstance(caught.value, HaclientError)
        assert delivery.data == data
        await delivery.reject("amqp:decode-error", "not a list of this program")
        delivery = await receiver.receive(timeout=10)
        assert delivery.body == "next"
        await delivery.accept()
        await connection.close()
    rejected = Outcome(OutcomeState.REJECTED, "amqp:decode-error", "not a list of this program")
    assert peer.outcomes[0] == rejected


async def test_a_body_of_several_sections_arrives_whole(api: API) -> None:
    async with primary() as peer:
        connection = await api.connect(url(peer))
        receiver = await connection.create_receiver("q")
        peer.put_encoded(
            "q",
            b"".join(section(DATA, b"\xa0\x05part%d" % index) for index in range(3)),
            b"".join(section(SEQUENCE, list_of([bytes((0x54, index))])) for index in range(3)),
        )
        bodies = [(await receiver.receive(timeout=10)).body for _ in range(2)]
        assert bodies == [b"part0part1part2", [[0], [1], [2]]]
        sender = await connection.create_sender("other")
        await sender.send(bodies[0])
        await connection.close()
    assert peer.bodies == [b"part0part1part2"]
