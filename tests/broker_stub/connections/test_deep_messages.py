"""Deeply nested lists in a message: consumers and selectors need not follow them."""

from __future__ import annotations

import proton
import pytest

from broker_stub.amqp.message_format import InvalidFieldError, inspect, inspect_new
from broker_stub.queueing.annotations import combined
from broker_stub.queueing.selectors import Selector
from haclient.engine.amqp_values.walk import MOST_LEVELS
from haclient.outcome import ACCEPTED, OutcomeState
from tests.broker_stub.clients import Client, running, until

FILTER = proton.symbol("apache.org:selector-filter:string")
BODY = b"\x00\x53\x77\xa1\x04body"


def nested(levels: int) -> bytes:
    value = b"\x40"
    for _ in range(levels):
        value = b"\xd0" + (len(value) + 4).to_bytes(4) + (1).to_bytes(4) + value
    return value


def with_property(levels: int, *, section: int = 0x74) -> bytes:
    """Make a message with a property or an annotation of that depth, including the map around it."""
    key = b"\xa3\x04deep" if section == 0x72 else b"\xa1\x04deep"
    content = key + nested(levels - 1)
    size = (len(content) + 4).to_bytes(4)
    return bytes((0, 0x53, section, 0xD1)) + size + (2).to_bytes(4) + content + BODY


@pytest.mark.parametrize("section", [0x71, 0x72, 0x74])
def test_what_stands_before_the_body_is_bounded_in_depth(section: int) -> None:
    assert inspect_new(with_property(MOST_LEVELS, section=section)) == inspect(BODY)
    with pytest.raises(InvalidFieldError, match="more than 300 levels"):
        inspect_new(with_property(MOST_LEVELS + 1, section=section))


def test_a_message_that_a_store_has_already_is_read_all_the_same() -> None:
    """Otherwise a member would not start, or a backup would refuse its primary."""
    assert inspect(with_property(2000)) == inspect(BODY)
    assert not Selector("deep IS NOT NULL").selects(with_property(2000))
    assert Selector("deep IS NULL").selects(with_property(2000))


def test_consumers_add_no_deeper_annotations_than_producers() -> None:
    def given(levels: int) -> bytes:
        value = b"\x40"
        for _ in range(levels):
            value = b"\x00\x43" + value  # described by 0
        content = b"\xa3\x04deep" + value
        return b"\xd1" + (len(content) + 4).to_bytes(4) + (2).to_bytes(4) + content

    assert b"deep" in combined(b"", given(MOST_LEVELS - 10))
    assert combined(b"", given(MOST_LEVELS + 10)) == b""


async def test_a_deep_message_is_rejected_and_consumers_with_selectors_go_on() -> None:
    async with running() as broker:
        client = await Client().connect(broker.address)
        sender = await client.attach("sender", "s", "q")
        sender.send(with_property(1000), None)
        outcome = await client.outcomes.get()
        assert outcome is not None
        assert (outcome.state, outcome.condition) == (OutcomeState.REJECTED, "amqp:invalid-field")
        message = proton.Message(body="shallow", properties={"n": 1})
        assert await client.send(sender, message) == [ACCEPTED]
        # A message stored by a version without the check.
        queue = broker.addresses.queue("q")
        queue.insert(queue.last_number + 1, with_property(1000), inspect(with_property(1000)), 0, 0)
        assert client.engine is not None
        receiver = client.engine.receiver(client.session, "r", client)  # type: ignore[arg-type]
        receiver.endpoint.source.address = "q"
        receiver.endpoint.source.filter.put_dict({FILTER: proton.Described(FILTER, "n = 1")})
        client.engine.attach(receiver)
        (await client.answered(receiver)).grant(10)
        assert (await client.receive()).body == "shallow"
        await until(lambda: queue.depth == 1)
        await client.close()
