"""Messages with the largest and the smallest times, numbers and names of AMQP."""

from __future__ import annotations

from typing import Any

import proton
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_stub.amqp.message_format import REPLICATE
from haclient.engine.amqp_values.encode import encode_value
from haclient.outcome import OutcomeState
from tests.broker_stub.clients import Client, running
from tests.broker_stub.connections.unconnected import (
    Primary,
    contents,
    contents_after_restart,
    to_anywhere,
    to_queue,
)

LARGEST = 2**64 - 1
TIMES = st.one_of(
    st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1]).map(proton.timestamp),
    st.integers(0, LARGEST).map(proton.ulong),
    st.sampled_from([2**63 - 1, 2**63, LARGEST]).map(proton.ulong),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1).map(proton.timestamp),
    st.sampled_from([None, True, 1.5, "soon", b"later", [1], {}]),
)
ANNOTATIONS = st.dictionaries(
    st.sampled_from(
        [
            "x-opt-delivery-time",
            "x-opt-delivery-delay",
            "x-opt-dead-letter-id",
            "x-qpid-replicate",
            "x-opt-de",
            "x-opt-site",
        ]
    ).map(proton.symbol),
    TIMES,
)
IDS = st.one_of(st.text(max_size=70), st.binary(max_size=70), st.uuids(), TIMES)
HEADERS = st.tuples(
    st.booleans(),
    st.sampled_from([None, 0, 4, 9, 255]).map(lambda each: None if each is None else proton.ubyte(each)),
    st.sampled_from([None, 0, 1, 2**32 - 1]).map(lambda each: None if each is None else proton.uint(each)),
    st.booleans(),
    st.sampled_from([None, 0, 2**32 - 1]).map(lambda each: None if each is None else proton.uint(each)),
)


def section(code: int, value: Any) -> bytes:
    return bytes((0, 0x53, code)) + encode_value(value, "section")


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    parts = []
    if draw(st.booleans()):
        parts.append(section(0x70, list(draw(HEADERS))))
    if draw(st.booleans()):
        parts.append(section(0x72, draw(ANNOTATIONS)))
    if draw(st.booleans()):
        fields = [draw(IDS), None, "q", None, None, None, None, None, draw(TIMES), draw(TIMES), draw(IDS)]
        parts.append(section(0x73, fields))
    if draw(st.booleans()):
        parts.append(section(0x74, {"_AMQ_DUPL_ID": draw(IDS)}))
    parts.append(section(0x77, "body"))
    data = b"".join(parts)
    if draw(st.integers(0, 9)) == 0:  # some are cut, or have a byte changed
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(max_size=2)) + data[at + draw(st.integers(0, 2)) :]
    return data


@settings(max_examples=60)
@given(sent=st.lists(messages(), min_size=1, max_size=4), anonymous=st.booleans())
async def test_every_message_is_everywhere_or_rejected(sent: list[bytes], anonymous: bool) -> None:
    """A message is sent twice, as after a lost connection; with an id that the queue knows it is stored
    once.
    """
    primary = Primary()
    link = (to_anywhere if anonymous else to_queue)(primary)
    link.start()
    for data in sent:
        before = primary.queue.last_number
        delivery = primary.client.send(link, data)
        await primary.quiet()
        outcome = primary.client.outcomes[delivery]
        assert outcome.accepted or outcome.state is OutcomeState.REJECTED
        if not outcome.accepted:
            assert outcome.condition != "amqp:internal-error", outcome.description
            assert primary.queue.last_number == before
        again = primary.client.send(link, data)
        await primary.quiet()
        assert primary.client.outcomes[again].accepted == outcome.accepted
    own = contents(primary.addresses)
    if not any(REPLICATE in data for data in sent):  # a message may exclude itself from the backups
        assert contents(primary.backup.addresses) == own
    assert await contents_after_restart(primary.store) == own


@pytest.mark.parametrize("time", [2**63, LARGEST])
async def test_a_message_for_a_time_that_no_clock_reaches_is_kept(time: int) -> None:
    async with running() as broker:
        client = await Client().connect(broker.address)
        sender = await client.attach("sender", "s", "q")
        annotations: Any = {
            proton.symbol("x-opt-delivery-time"): proton.ulong(time),
            proton.symbol("x-opt-delivery-delay"): 1,
        }
        for _ in range(2):
            message = proton.Message(
                body="late", annotations=annotations, properties={"_AMQ_DUPL_ID": "an id"}
            )
            [outcome] = await client.send(sender, message)
            assert outcome is not None
            assert outcome.accepted
        assert broker.addresses.queue("q").depth == 1
        await client.send(sender, proton.Message(body="the connection lives"))
        assert broker.addresses.queue("q").depth == 2
        await client.close()
