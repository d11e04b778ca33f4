"""Events as AMQP messages, and the origin that an applied message carries."""

from __future__ import annotations

import uuid

import proton
import pytest

from broker_stub.amqp.message_format import MalformedMessageError, inspect
from broker_stub.amqp.message_header import with_header
from broker_stub.queueing.site_state import SiteMode
from broker_stub.sites.event import (
    Encoder,
    Event,
    Numbers,
    Op,
    Origin,
    annotate,
    decode,
    origin_of,
    without_origin,
)

STREAM, QUEUE = uuid.uuid4(), uuid.uuid4()
NUMBERS = Numbers(sequence=7, position=5 << 40 | 9, time_ms=1_700_000_000_000, expires_at_ms=1)
MESSAGE = bytes(proton.Message(body="one", durable=True, properties={"_AMQ_DUPL_ID": "x"}).encode())


def event_of(data: bytes = MESSAGE, op: Op = Op.ENQUEUE, queue: str = "orders") -> bytes:
    encoder = Encoder(queue, QUEUE.bytes, SiteMode.ALL, STREAM.bytes)
    return encoder.encode(op, NUMBERS, data)


def test_an_event_is_read_as_it_was_made() -> None:
    event = decode(event_of())
    assert event == Event(Op.ENQUEUE, SiteMode.ALL, STREAM.bytes, "orders", QUEUE.bytes, *NUMBERS, MESSAGE)
    assert event.stream_name == str(STREAM)


def test_the_event_of_a_dequeue_has_no_message() -> None:
    assert decode(event_of(b"", Op.DEQUEUE)).data == b""


def test_any_client_can_read_an_event() -> None:
    message = proton.Message()
    message.decode(event_of(queue="bestellungen-ä"))
    reported = {str(name): value for name, value in message.annotations.items()}
    assert reported == {
        "x-opt-site-op": "enqueue",
        "x-opt-site-mode": "all",
        "x-opt-site-stream": STREAM,
        "x-opt-site-queue": "bestellungen-ä",
        "x-opt-site-queue-id": QUEUE,
        "x-opt-site-sequence": NUMBERS.sequence,
        "x-opt-site-position": NUMBERS.position,
        "x-opt-site-time": NUMBERS.time_ms,
        "x-opt-site-expiry": NUMBERS.expires_at_ms,
    }
    assert bytes(message.body) == MESSAGE


def test_an_event_that_a_client_wrote_is_read() -> None:
    found = proton.Message()
    found.decode(event_of())
    written = proton.Message(annotations=dict(found.annotations), body=MESSAGE, inferred=True)
    assert decode(bytes(written.encode())) == decode(event_of())


def test_an_event_that_is_delivered_again_is_the_same() -> None:
    assert decode(with_header(event_of(), delivery_count=3)) == decode(event_of())


def test_what_the_queue_knows_of_an_event_is_not_what_it_knows_of_the_message() -> None:
    assert inspect(event_of()).duplicate_id is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        MESSAGE,
        bytes(proton.Message(annotations={proton.symbol("x-opt-site-op"): "enqueue"}, body=b"").encode()),
        event_of()[:-1],
        event_of()[:100],
        event_of().replace(b"enqueue", b"enqueuf"),
        event_of().replace(b"\x98" + STREAM.bytes, b"\xa0\x0f" + STREAM.bytes[:15]),
    ],
    ids=["nothing", "no annotations", "no stream", "cut in the body", "cut", "another op", "another type"],
)
def test_what_is_no_event_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        decode(data)


@pytest.mark.parametrize(
    "message", [proton.Message(body="x"), proton.Message(body="x", durable=True, ttl=3.0)]
)
def test_an_applied_message_has_its_origin_and_is_the_same_otherwise(message: proton.Message) -> None:
    data = bytes(message.encode())
    origin = decode(event_of()).origin
    applied = annotate(data, origin)
    assert origin_of(applied) == origin
    assert origin_of(data) is None
    assert inspect(applied) == inspect(data)
    read = proton.Message()
    read.decode(applied)
    assert (read.body, read.durable, read.ttl) == (message.body, message.durable, message.ttl)
    assert origin_of(with_header(applied, delivery_count=2)) == origin


def test_an_origin_replaces_the_one_before() -> None:
    first = decode(event_of()).origin
    second = first._replace(sequence=8)
    assert annotate(annotate(MESSAGE, first), second) == annotate(MESSAGE, second)


BODY = b"\x00\x53\x77\xa1\x03one"
HEADERS = {
    "none": b"",
    "empty": b"\x00\x53\x70\x45",
    "short": b"\x00\x53\x70\xc0\x02\x01\x41",
    "long": b"\x00\x53\x70\xd0\x00\x00\x00\x05\x00\x00\x00\x01\x41",
    "wide descriptor": b"\x00\x80" + bytes(7) + b"\x70\xc0\x02\x01\x41",
    "of 255 bytes": b"\x00\x53\x70\xc0\xff\x01\xa0\xfc" + bytes(252),
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
@pytest.mark.parametrize("times", range(3))
def test_a_client_cannot_say_where_a_message_was_applied(header: bytes, times: int) -> None:
    mark = annotate(BODY, Origin(bytes(16), 7, bytes(16), 9)).removesuffix(BODY)
    for rest in (BODY, b"\x00\x53\x75\xa0" + bytes([len(mark)]) + mark):  # in a body it is no origin mark
        assert without_origin(header + times * mark + rest) == header + rest


@pytest.mark.parametrize("header", ["none", "short", "long"])
def test_a_message_of_marks_alone_is_none(header: str) -> None:
    mark = annotate(BODY, Origin(bytes(16), 7, bytes(16), 9)).removesuffix(BODY)
    if header == "none":
        with pytest.raises(MalformedMessageError):
            without_origin(2 * mark)
    else:
        assert without_origin(HEADERS[header] + mark) == HEADERS[header]
