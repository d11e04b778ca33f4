"""Times of lines are RFC 3339 to the letter; people may leave out the zone and the time of the day."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from haclient.telemetry.rfc3339 import exact_moment, moment


def test_a_time_without_a_zone_is_utc() -> None:
    assert moment("2026-11-20") == datetime(2026, 11, 20, tzinfo=UTC)
    assert moment("2026-11-20T02:00:00+02:00") == datetime(2026, 11, 20, tzinfo=UTC)
    assert moment("2026-11-20 02:00:00.5").tzinfo is UTC


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-31", "2026-11-20T25:00:00Z"])
def test_what_is_no_time_is_an_error_that_shows_one(text: str) -> None:
    with pytest.raises(ValueError, match="is no time like 2026-11-20T02:00:00Z"):
        moment(text)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-11-20t02:00:00.25z", datetime(2026, 11, 20, 2, tzinfo=UTC)),
        ("2026-11-20 02:00:60+02:00", datetime(2026, 11, 20, 0, 0, 59, tzinfo=UTC)),
        ("+12026-02-29T00:00:00Z", None),
        ("12024-02-29T00:00:00Z", datetime.max.replace(tzinfo=UTC)),
        ("-0001-02-28T00:00:00Z", datetime.min.replace(tzinfo=UTC)),
        ("2026-11-20T02:00:00", None),
        ("2026-11-20", None),
        ("2026-11-20T02:00:00+18:01", None),
    ],
)
def test_a_time_of_a_line_has_a_zone_and_may_be_of_any_year(text: str, time: datetime | None) -> None:
    assert exact_moment(text) == time
