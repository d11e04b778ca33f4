"""Ids, times and lines."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from haclient.telemetry.jsonl import Clock, Ids, Lines
from haclient.telemetry.schema import Kind

TIMES = st.floats(min_value=0, max_value=4e9)


@given(st.lists(TIMES, min_size=1, max_size=50))
def test_ids_are_uuids_of_version_7_and_grow_whatever_the_clock_does(times: list[float]) -> None:
    ids = Ids()
    made = [ids.next(now) for now in times]
    assert made == sorted(set(made))
    for text in made:
        found = uuid.UUID(text)
        assert (found.version, found.variant, str(found)) == (7, uuid.RFC_4122, text)
    assert int(made[0].replace("-", "")[:12], 16) == int(times[0] * 1000)


def test_an_id_counts_into_the_next_millisecond_when_its_random_bits_are_used_up() -> None:
    ids = Ids()
    first = ids.next(1.0)
    ids._random = 2**74 - 1
    second = ids.next(1.0)
    assert first < second < ids.next(0.5)


@given(TIMES)
def test_times_are_rfc_3339_to_the_microsecond(now: float) -> None:
    text = Clock().text(now)
    assert text.endswith("Z")
    assert abs(datetime.fromisoformat(text).timestamp() - now) < 2e-6
    assert datetime.fromisoformat(text).tzinfo is UTC or datetime.fromisoformat(text).utcoffset() is not None


@given(st.text(), st.text(), st.floats(allow_nan=False, allow_infinity=False))
def test_any_text_makes_one_line_of_ascii(subject: str, reason: str, delay: float) -> None:
    lines = Lines("/haclient/x")
    who = lines.subject(subject, {"client_id": subject})
    line = lines.line(Kind.BACKOFF, who, 1.5, {"reason": reason, "backoff_delay": delay, "retry_after": None})
    assert line.isascii()
    assert line.count("\n") == 1
    found = json.loads(line)
    assert found["subject"] == found["data"]["messaging.client.id"] == subject
    assert found["data"]["haclient.close.reason"] == reason
    assert found["data"]["haclient.backoff.delay"] == delay
    assert "haclient.retry_after" not in found["data"]
