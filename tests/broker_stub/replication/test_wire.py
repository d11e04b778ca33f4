"""Events between a primary and its backups are AMQP messages, and are decoded as they were encoded."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.replication import wire

IDS = st.integers(0, 2**63 - 1)
QUEUE = bytes(range(16))
MESSAGE = bytes(proton.Message(body=b"body", properties={"a": 1}).encode())


@given(IDS, st.integers(0, 2**32 - 1), st.integers(0, 2**62))
def test_a_message_event_is_the_message_behind_its_annotations(number: int, count: int, left: int) -> None:
    event = wire.encode_message(wire.message_head(QUEUE), number, count, left, MESSAGE)
    assert wire.decode(event) == wire.ReplicatedMessage(number, count, 0, MESSAGE, left, QUEUE)
    seen = proton.Message()
    seen.decode(event)
    assert (seen.body, seen.properties) == (b"body", {"a": 1})
    assert seen.instructions == {
        "q": uuid.UUID(bytes=QUEUE),
        "i": number,
        "c": count,
        "l": left,
    }


def test_a_lifetime_beyond_any_clock_is_cut_to_what_a_store_can_hold() -> None:
    decoded = wire.decode(wire.encode_message(wire.message_head(QUEUE), 1, 0, 2**64 - 1, MESSAGE))
    assert isinstance(decoded, wire.ReplicatedMessage)
    assert decoded.lifetime_ms + 10**14 < 2**63


@given(st.lists(IDS, max_size=50))
def test_ids_come_out_as_they_went_in(ids: list[int]) -> None:
    event = wire.decode(wire.encode_ids(QUEUE, "dequeued", ids))
    assert event == wire.Event("dequeued", tuple(ids), queue=QUEUE)


def test_an_order_carries_a_map() -> None:
    event = wire.decode(wire.encode_command("number", {"number": 7, "ready": ["a"]}))
    assert event == wire.Event("number", (), {"number": 7, "ready": ["a"]})


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x00\x53\x71\xc1", b"\x00\x53\x71\xc1" + bytes(70)])
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"replication event|annotations"):
        wire.decode(data)


@given(st.sets(st.integers(0, 200)))
def test_ranges_say_the_same_as_the_ids(ids: set[int]) -> None:
    spans = wire.ranges(sorted(ids))
    assert {number for first, last in spans for number in range(first, last + 1)} == ids


@given(st.sets(st.integers(0, 200)))
def test_ranges_are_as_long_as_they_can_be(ids: set[int]) -> None:
    spans = wire.ranges(sorted(ids))
    assert all(before[1] + 1 < after[0] for before, after in itertools.pairwise(spans))


class Looked(Sequence[int]):
    """Ascending numbers that count how many of them are read."""

    def __init__(self, *spans: range) -> None:
        self._ids = [number for span in spans for number in span]
        self.looks = 0

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: Any) -> Any:
        self.looks += 1
        return self._ids[index]


def test_of_a_long_range_few_ids_are_looked_at() -> None:
    """A queue has millions, and the member does nothing else meanwhile."""
    ids = Looked(range(1, 300_000), range(400_000, 700_000))
    assert wire.ranges(ids) == [(1, 299_999), (400_000, 699_999)]
    assert ids.looks < 200
    kept, surplus = wire.compare([(1, 299_999), (400_000, 700_009)], ids)
    assert (kept, surplus) == (len(ids), [(700_000, 700_009)])
    assert ids.looks < 400


@given(st.integers(0, 200))
def test_an_event_that_is_cut_off_is_refused(length: int) -> None:
    event = wire.encode_message(wire.message_head(QUEUE), 1, 2, 3, b"")
    if length < len(event):
        with pytest.raises(ValueError, match=r"replication event"):
            wire.decode(event[:length])


SPANS = st.lists(st.tuples(IDS, st.integers(0, 9)).map(lambda span: (span[0], sum(span))), max_size=400)


@given(
    st.lists(
        st.tuples(st.binary(min_size=16, max_size=16), SPANS), max_size=20, unique_by=lambda item: item[0]
    )
)
def test_a_report_says_what_the_backup_has_in_messages_of_a_bounded_size(
    queues: list[tuple[bytes, list[tuple[int, int]]]],
) -> None:
    reports = [proton.Message(body=body, inferred=True).encode() for body in wire.encode_have(queues)]
    assert [queue for report in reports for queue in wire.decode_have(bytes(report))] == queues
    assert all(len(report) < 16 * 1024 for report in reports)


def test_that_a_commit_goes_on_is_a_report_of_no_queue_which_a_version_before_it_takes() -> None:
    report = proton.Message(body=wire.COMMIT_GOES_ON, inferred=True).encode()
    assert wire.decode_have(bytes(report)) == []
    assert list(wire.encode_have([])) == []


@pytest.mark.parametrize("body", [b"short", bytes(16) + b"\xff\xff\xff\xff", "text", None])
def test_another_report_is_refused(body: object) -> None:
    with pytest.raises(ValueError, match="report"):
        wire.decode_have(bytes(proton.Message(body=body, inferred=True).encode()))


def test_a_report_of_more_messages_than_a_member_can_have_is_refused() -> None:
    [body] = wire.encode_have([(QUEUE, [(0, 2**63)])])
    with pytest.raises(ValueError, match="more than"):
        wire.decode_have(bytes(proton.Message(body=body, inferred=True).encode()))


def test_a_report_that_has_a_queue_twice_is_refused() -> None:
    [body] = wire.encode_have([(QUEUE, [(1, 2)]), (QUEUE, [(1, 2)])])
    with pytest.raises(ValueError, match="twice"):
        wire.decode_have(bytes(proton.Message(body=body, inferred=True).encode()))


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(-1, 9)).map(lambda span: (span[0], sum(span)))),
    st.sets(st.integers(1, 40)),
    st.integers(1, 5),
)
def test_a_backup_keeps_what_it_has_up_to_the_first_that_it_lacks(
    have: list[tuple[int, int]], ids: set[int], most: int
) -> None:
    present = {number for first, last in have for number in range(first, last + 1)}
    expected = set(itertools.takewhile(present.__contains__, sorted(ids)))
    kept, surplus = wire.compare(have, sorted(ids))
    pieces = [
        [number for first, last in piece for number in range(first, last + 1)]
        for piece in wire.in_pieces(surplus, most)
    ]
    assert kept == len(expected)
    assert [number for piece in pieces for number in piece] == sorted(present - expected)
    assert all(0 < len(piece) <= most for piece in pieces)


def test_owners_and_ids_of_confirmed_messages_come_back() -> None:
    pairs = [(bytes([number]) * 16, number) for number in range(1, 5)]
    event = wire.decode(wire.encode_confirmed(bytes(16), pairs))
    assert isinstance(event, wire.Event)
    assert wire.decode_confirmed(event) == pairs


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"owners": b"", "ids": "text"},
        {"owners": bytes(16), "ids": bytes(7)},
        {"owners": bytes(15), "ids": bytes(8)},
        {"owners": bytes(16), "ids": bytes(8)},
        {"owners": bytes(16), "ids": b"\xff" * 8},
    ],
    ids=str,
)
def test_confirmed_messages_that_make_no_sense_are_an_error(arguments: dict[str, object]) -> None:
    event = wire.Event(wire.CONFIRMED, arguments=arguments)
    with pytest.raises(ValueError, match="the primary sent"):
        wire.decode_confirmed(event)
