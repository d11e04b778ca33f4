"""Annotations that consumers add to a message, without sockets; proton's codec is the reference."""

from __future__ import annotations

from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Message, symbol

from broker_stub.amqp.message_format import MalformedMessageError, header_end, inspect
from broker_stub.queueing import annotations, dead_letters
from broker_stub.queueing.message import DeadLetterReason
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.queue_limits import TotalSize
from tests.broker_stub.queueing.takers import Taker, decoded

NAMES = st.sampled_from(["x-a", "x-b", "x-opt-c", "x-" + "long" * 70])
VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.text(max_size=20),
    st.booleans(),
    st.none(),
    st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2),
)
MAPS = st.dictionaries(NAMES, VALUES, max_size=4)


def encoded(values: dict[Any, Any]) -> bytes:
    """Encode the annotations of an outcome."""
    data = proton.Data()
    data.put_object({symbol(key) if isinstance(key, str) else key: value for key, value in values.items()})
    return bytes(data.encode())


def of(data: bytes) -> dict[str, Any]:
    return {str(key): value for key, value in (decoded(data).annotations or {}).items()}


def message(**fields: Any) -> bytes:
    return bytes(Message(body="b", **fields).encode())


@given(own=MAPS, outcomes=st.lists(MAPS, max_size=4))
def test_a_message_has_its_own_annotations_and_the_last_of_each_that_consumers_added(
    own: dict[str, Any], outcomes: list[dict[str, Any]]
) -> None:
    data = message(annotations={symbol(key): value for key, value in own.items()} or None, ttl=9.0)
    added, expected = b"", dict(own)
    for values in outcomes:
        added = annotations.combined(added, encoded(values))
        expected |= values
    delivered = annotations.annotated(data, added) if added else data
    assert of(delivered) == expected
    before, after = decoded(data), decoded(delivered)
    assert (after.body, after.ttl) == (before.body, before.ttl)
    assert annotations.restored(annotations.stored(data, added)) == (data, added)
    assert annotations.checked(added) == added


@pytest.mark.parametrize(
    "name", ["x-opt-delivery-time", "x-opt-delivery-delay", "x-opt-dead-letter-id", "x-qpid-replicate"]
)
def test_what_the_broker_heeds_stays_the_sender_s(name: str) -> None:
    assert annotations.combined(b"", encoded({name: 1})) == b""
    assert annotations.combined(b"", encoded({name: 1, "x-a": 2})) == annotations.combined(
        b"", encoded({"x-a": 2})
    )


def test_a_long_symbol_is_the_same_key_as_a_short_one() -> None:
    name = b"x-qpid-replicate"
    content = b"\xb3" + len(name).to_bytes(4) + name + b"\x42"
    assert annotations.combined(b"", b"\xc1" + bytes([len(content) + 1, 2]) + content) == b""


def test_keys_that_are_no_symbols_are_left_out() -> None:
    added = annotations.combined(b"", encoded({proton.ulong(5): 1, "x-a": 2}))
    assert of(annotations.annotated(message(), added)) == {"x-a": 2}


def test_they_have_a_bound_and_one_outcome_adds_all_or_nothing() -> None:
    added = annotations.combined(b"", encoded({"x-a": "a" * 2000}))
    assert annotations.combined(added, encoded({"x-b": "b" * 2000, "x-c": 1, "x-a": "new"})) != added
    assert annotations.combined(added, encoded({"x-b": "b" * 2100, "x-c": 1})) == added
    room = annotations.MOST_BYTES - len(added)
    for size in range(room - 30, room + 5):
        grown = annotations.combined(added, encoded({"x-b": b"b" * size}))
        assert len(grown) <= annotations.MOST_BYTES
        assert (grown == added) == (len(added) + len(b"\xa3\x03x-b\xb0....") + size > annotations.MOST_BYTES)


@pytest.mark.parametrize(
    "given",
    [b"\x40", b"\x45", b"", b"\xc1", b"\xc1\x05\x02\xa3", b"\xa1\x03x-a", b"\xc1\x08\x02\xa3\x03x-a\xa1\xff",
     b"\xd1\xff\xff\xff\xff\xff\xff\xff\xff", b"\xc1\x02\x02\x00\x00\x00\x00"],
)  # fmt: skip
def test_what_is_no_map_adds_nothing(given: bytes) -> None:
    assert annotations.combined(b"", given) == b""


@given(
    st.sampled_from([b"", b"\xc1", b"\xd1", b"\xc1\x20\x02", b"\xc1\x20\x02\xa3\x03x-a"]),
    st.binary(max_size=40),
)
def test_whatever_a_consumer_writes_the_message_stays_one(start: bytes, rest: bytes) -> None:
    added = annotations.combined(b"", start + rest)
    assert annotations.checked(added) == added
    delivered = annotations.annotated(message(), added) if added else message()
    assert annotations.combined(added, encoded({"x-b": 1})) != added
    inspect(delivered)
    assert delivered.endswith(message()[header_end(message()) :])


@pytest.mark.parametrize(
    "given", [b"\x40", encoded({"x-qpid-replicate": False}), encoded({"x-a": "a" * 4100})]
)
def test_what_no_consumer_can_have_added_is_not_taken_from_a_primary(given: bytes) -> None:
    with pytest.raises(ValueError, match="no consumer"):
        annotations.checked(given)


def test_no_client_can_send_what_the_store_puts_in_front() -> None:
    with pytest.raises(MalformedMessageError):
        inspect(annotations.stored(message(), encoded({"x-a": 1})))


BROKEN = b"\x00\x53\x72\xc1\x04\x02\xa3\xff" + b"x" + message()[header_end(message()) :]


def test_a_message_whose_own_annotations_cannot_be_read_stays_as_it_is() -> None:
    inspect(BROKEN)
    assert annotations.annotated(BROKEN, encoded({"x-a": 1})) == BROKEN


def test_they_count_for_the_size_of_the_queue_until_the_message_has_left() -> None:
    total = TotalSize()
    queue = Queue("q", lambda: 0.0, total=total)
    data = message()
    queue.enqueue(data, lambda _: None, None, inspect(data))
    for size in (1000, 10):
        taker = Taker(queue, 1)
        queue.modify(taker.consumer, taker.got[0], annotations=encoded({"x-a": "a" * size}))
        queue.unsubscribe(taker.consumer)
        [number] = queue.ids()
        found = queue.message(number)
        assert found is not None
        assert size < len(found.annotations) < size + 30
        assert queue.size == total.size == len(data) + len(found.annotations)
    taker = Taker(queue, 1)
    queue.accept(taker.consumer, taker.got[0])
    assert queue.size == total.size == 0


def test_a_consumer_that_does_not_hold_the_message_adds_nothing() -> None:
    queue = Queue("q", lambda: 0.0)
    data = message()
    queue.enqueue(data, lambda _: None, None, inspect(data))
    owner, stranger = Taker(queue, 1), Taker(queue, 1)
    queue.modify(stranger.consumer, owner.got[0], annotations=encoded({"x-a": 1}))
    assert owner.got[0].annotations == b""


def test_a_dead_letter_that_becomes_one_again_and_again_does_not_grow_for_ever() -> None:
    queue, data, sizes = Queue("orders", lambda: 0.0), message(annotations={symbol("x-mine"): 1}), []
    for round_number in range(8):
        queued = queue.enqueue(data, lambda _: None, None, inspect(data))
        assert queued is not None
        queue.annotate(queued.number, encoded({f"x-{round_number}": "a" * 1500, "x-last": round_number}))
        data = dead_letters.dead_letter(queue, queued, DeadLetterReason.REJECTED)
        sizes.append(len(data))
    assert max(sizes) < annotations.MOST_BYTES + 1000
    assert sizes[-1] == sizes[-2]
    assert of(data)["x-mine"] == 1


def test_a_dead_letter_has_them_and_its_own_have_precedence() -> None:
    queue = Queue("orders", lambda: 0.0)
    data = message()
    queued = queue.enqueue(data, lambda _: None, None, inspect(data))
    assert queued is not None
    queue.annotate(queued.number, encoded({"x-a": 1, "x-opt-ORIG-QUEUE": "made up"}))
    letter = of(dead_letters.dead_letter(queue, queued, DeadLetterReason.REJECTED))
    assert (letter["x-a"], letter["x-opt-ORIG-QUEUE"]) == (1, "orders")
