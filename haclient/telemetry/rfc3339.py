"""Reads times of RFC 3339.

Rules
-----
* A line's time must follow RFC 3339 exactly; any year and leap seconds are allowed.
* A time that a user types may lack the time of day, and the time zone, which is then UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

_TIME = re.compile(
    r"([+-]?[0-9]{4,6})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]+)?"
    r"([Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)
_LAST_YEAR = 9999
# Java's limit of a zone offset, on either side.
_FARTHEST = timedelta(hours=18)


def moment(text: str) -> datetime:
    """Read a time that a user types; the time of day and the zone are optional.

    :raises ValueError: when it is not a time.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time like 2026-11-20T02:00:00Z") from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def exact_moment(text: str) -> datetime | None:
    """Read the time of a line, in whole seconds; years that Python cannot hold give its first or last time.

    :returns: ``None`` when it is not a time of RFC 3339.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(match[number]) for number in range(1, 7))
    try:
        # An equivalent year: the calendar repeats after 400 years.
        like = year if 1 <= year <= _LAST_YEAR else 2000 + year % 400
        date(like, month, day)
        leap = second == 60  # noqa: PLR2004 - a leap second
        time = datetime(like, month, day, hour, minute, 59 if leap else second, tzinfo=UTC)
    except ValueError:
        return None
    offset = timedelta(hours=int(match[10] or 0), minutes=int(match[11] or 0))
    if offset > _FARTHEST or int(match[11] or 0) > 59:  # noqa: PLR2004 - minutes
        return None
    if like != year:
        return datetime.max.replace(tzinfo=UTC) if year > 0 else datetime.min.replace(tzinfo=UTC)
    try:
        return time - offset if match[9] == "+" else time + offset
    except OverflowError:
        return time
