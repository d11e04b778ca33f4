"""Format values for the report: durations, counts, shares, times, and texts from telemetry.

An unknown value (``None``) is shown as ``BLANK``; ``counted`` shows it as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

Row = Mapping[str, Any]
Rows = Sequence[Row]

BLANK = "\N{EN DASH}"
"""Placeholder for an unknown value."""

OTHERS = "others"
"""Label for all members without a colour of their own."""

RESULTS = {
    "open": "still searching",
    "silent": "silent",
    "gave_up": "gave up",
    "never_connected": "never connected",
}
"""Results of outages that have not ended, in words."""

LOSSES = {
    "close": "closed by the broker",
    "cut": "connection cut",
    "silence": "silence",
    "error": "ended by the client",
    "renewal": "new token",
}
"""Kinds of loss, in words."""

STATES = {
    "open": "it writes lines and tries to connect",
    "silent": "no line in the last two minutes, so that its process may be gone",
    "gave_up": "it tries no more",
    "never_connected": "no connection since it began, over a minute ago",
}
"""Explanations of ``RESULTS``."""

LABEL, LINE = 40, 20
"""Most characters of a value in a chart, and of one of its lines."""

_SEPARATORS = " .:/_-…"
_SOURCE = 1000  # most characters of a value that are read
_LONGEST = 120  # most characters of a value from telemetry
_PAIRS = 5
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0


# -- durations, counts, shares --------------------------------------------------------------------


def seconds(value: float | None) -> str:
    """Format a duration in a suitable unit, from ``ms`` to ``days``; ``BLANK`` if it is unknown."""
    if value is None:
        return BLANK
    if value < 1:
        return f"{value * 1000:.3g} ms"
    if value < 2 * _MINUTE:
        return f"{value:.3g} s"
    if value < 2 * _HOUR:
        return f"{value / _MINUTE:.3g} min"
    if value < 2 * _DAY:
        return f"{value / _HOUR:.3g} h"
    return f"{value / _DAY:,.3g} days"


def number(value: float | None) -> str:
    """Format a number; ``BLANK`` if it is unknown.

    Whole numbers, and all from 100, have separators and no decimals.  Others have three significant digits.
    """
    if value is None:
        return BLANK
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits


def percent(value: float | None) -> str:
    """Format a share, 1 for all, in per cent; ``BLANK`` if it is unknown.

    Less than all is never "100 %", and more than none is never "0 %".
    """
    if value is None:
        return BLANK
    if value in (0, 1) or value > 1:
        return f"{value * 100:,.0f} %"
    texts = (f"{value * 100:.{digits}f}" for digits in (1, 2, 3))
    shown = next((text for text in texts if 0 < float(text) < 100), "")  # noqa: PLR2004 - per cent
    return f"{shown.removesuffix('.0')} %" if shown else f"{'< 0.001' if value < 1 / 2 else '> 99.999'} %"


def counted(count: int | None, noun: str) -> str:
    """Format a count with its noun: ``1 outage``, ``2 outages``."""
    plural = f"{noun}{'es' if noun.endswith('s') else 's'}"
    return f"{number(count or 0)} {noun if count == 1 else plural}"


def joined(parts: Sequence[str]) -> str:
    """Join the parts by commas and a final ``and``."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


# -- values in tables -----------------------------------------------------------------------------


def text(value: Any, longest: int = _LONGEST) -> str:
    """Format any value: numbers as ``number`` does, booleans as "yes" or "no", others as text.

    ``BLANK`` stands for ``None`` and for an empty text.

    :param longest: most characters of a text; a longer one is cut, and ends with ``…``.
    """
    if value is None or value == "":
        return BLANK
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    shown = str(value)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def label(value: Any) -> str:
    """Shorten a value for a chart or a sentence; cut its middle, because names differ at their ends."""
    shown = text(value, _SOURCE)
    if len(shown) <= LABEL:
        return shown
    head = LABEL // 2
    return f"{shown[:head]}…{shown[head + 1 - LABEL :]}"


def axis_labels(values: Iterable[Any]) -> dict[Any, str]:
    """Return a distinct label for each value, in two lines if one is too short."""
    found: dict[Any, str] = {}
    for value in dict.fromkeys(values):
        shown, number = _two_lines(label(value)), 2
        while shown in found.values():
            shown, number = f"{_two_lines(label(value))} ({number})", number + 1
        found[value] = shown
    return found


def _two_lines(shown: str) -> str:
    """Break a label after a separator, as near to the middle as possible."""
    if len(shown) <= LINE:
        return shown
    middle = len(shown) / 2
    fits = range(len(shown) - LINE, LINE + 1)
    cuts = [cut for cut in fits if shown[cut - 1] in _SEPARATORS] or [len(shown) // 2]
    cut = min(cuts, key=lambda cut: abs(cut - middle))
    return f"{shown[:cut]}\n{shown[cut:]}"


def name(value: Any) -> str:
    """Return the last part of a path or an address, and other texts unchanged."""
    shown = str(value or "")
    return text(shown.rstrip("/").rpartition("/")[2] if shown[:1] in "/." or "://" in shown else shown)


def moment(value: Any) -> str:
    """Format a time in UTC to the millisecond."""
    if isinstance(value, datetime):
        value = value.isoformat(" ", "milliseconds").partition("+")[0]
    return text(value)


def minute(value: Any) -> str:
    """Format a time in UTC to the second."""
    return moment(value)[:19]


def extent(first_at: Any, last_at: Any) -> str:
    """Format a period; a date common to both times appears once."""
    last = minute(last_at)
    return f"{minute(first_at)} to {clock(last_at) if minute(first_at)[:11] == last[:11] else last}"


def clock(value: Any) -> str:
    """Format the time of day of a time in UTC, to the second."""
    shown = minute(value)
    return shown[11:] or shown


def endpoint(row: Row) -> str:
    """Format an endpoint as ``host:port``."""
    return text(f"{row.get('server_address')}:{row.get('server_port')}")


def pairs(value: Any) -> str:
    """List the five largest counts of a mapping, such as ``refused 12, timed_out 3, …``."""
    counts = dict(value or {})
    order = sorted(counts, key=lambda name: (-counts[name], name))
    shown = [f"{text(name)} {number(counts[name])}" for name in order[:_PAIRS]]
    return ", ".join([*shown, *(["…"] if len(order) > _PAIRS else [])]) or BLANK


def listed(value: Any) -> str:
    """Join the first five items of a list by commas; another value counts as a list of one."""
    parts: Iterable[Any] = value if isinstance(value, list | tuple) else [value]
    return ", ".join(text(part) for part in list(parts)[:_PAIRS]) or BLANK


def stream(row: Row) -> str:
    """Name a stream: a link of a cluster, or the cluster's own events."""
    link = row.get("link")
    return text(f"{row.get('cluster')}: {f'link {link}' if link else 'its own events'}")


def redirected(member: Row) -> int | None:
    """Count attempts that a member redirected to the primary; ``None`` if this is unknown.

    Redirected attempts are no failures.
    """
    return None if member.get("failures") is None else dict(member["failures"]).get("redirected") or 0


def failed(member: Row) -> int | None:
    """Count attempts that failed at a member, without redirected ones; ``None`` if this is unknown."""
    refusals = member.get("refusals")
    return None if refusals is None else refusals - (redirected(member) or 0)


def times(value: float | None) -> str:
    """Format a ratio with two decimals and a multiplication sign; ``BLANK`` if it is unknown."""
    return BLANK if value is None else f"{value:.2f}\N{MULTIPLICATION SIGN}"


def first(rows: Rows) -> Row:
    """Return the only row of a table, or an empty one."""
    return next(iter(rows), {})


def not_back(storm: Row) -> int | None:
    """Count connections of a storm that did not come back; ``None`` in older tables."""
    hit, back = storm.get("clients_hit"), storm.get("back")
    return None if hit is None or back is None else hit - back


def to_ideal(storm: Row) -> str:
    """Format a storm's length as a multiple of the best possible time, given the accept rate.

    Returns a reason instead if the storm did not saturate the accept rate, or if connections are not back.
    """
    if not storm.get("saturated"):
        return "not saturated"
    ratio = storm.get("ratio_to_ideal")
    return "not all are back" if ratio is None and not_back(storm) else times(ratio)


def state(row: Row) -> str:
    """Name the state of a connection that is down in the words of ``RESULTS``, such as ``still searching``.

    If ``RESULTS`` has no word for it, return its last state, as ``text`` formats it.
    """
    result = "never_connected" if row.get("never_connected") else row.get("episode_result")
    return RESULTS.get(str(result), text(row.get("last_state")))


def ending(kind: Any) -> str:
    """Name the kind of a loss."""
    return LOSSES.get(str(kind), text(kind))


FILTERS: dict[str, Callable[..., Any]] = {
    "seconds": seconds,
    "number": number,
    "percent": percent,
    "text": text,
    "name": name,
    "moment": moment,
    "minute": minute,
    "extent": extent,
    "endpoint": endpoint,
    "pairs": pairs,
    "listed": listed,
    "times": times,
    "to_ideal": to_ideal,
    "not_back": not_back,
    "failed": failed,
    "redirected": redirected,
    "stream": stream,
    "state": state,
    "ending": ending,
}
