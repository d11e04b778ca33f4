"""The report's text: the sentence on top, the headline values, and how values are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from haclient.analysis.report import svg

Row = Mapping[str, Any]
Rows = Sequence[Row]

_LONGEST = 120  # characters of a value that came with telemetry
_PAIRS = 5


def first(rows: Rows) -> Row:
    """The only row of a table, or an empty one."""
    return next(iter(rows), {})


def summary(headline: Row) -> str:
    """What happened, in one or two sentences."""
    outages = headline.get("outages") or 0
    if not outages:
        return " ".join(["No connection was lost.", *_unhappy(headline)])
    clients = counted(headline.get("clients_hit"), "connection")
    text = f"{counted(outages, 'outage')} hit {clients}."
    if headline.get("p50") is not None:
        text += f" The median downtime is {downtime(headline, 'p50')}, the 99th percentile"
        text += f" {downtime(headline, 'p99')}."
    return " ".join([text, *(_unhappy(headline) or ["None was left behind."])])


def _unhappy(headline: Row) -> list[str]:
    """A sentence for each kind of outage that did not end well."""
    kinds = {
        "open": "is still searching|are still searching",
        "silent": "went silent before it was back|went silent before they were back",
        "gave_up": "gave up|gave up",
        "never_connected": "never connected|never connected",
    }
    found = []
    for name, verbs in kinds.items():
        count = headline.get(name) or 0
        one, several = verbs.split("|")
        if count:
            found.append(f"{counted(count, 'connection')} {one if count == 1 else several}.")
    return found


def downtime(headline: Row, rank: str) -> str:
    """A percentile; who is not back has been down for longer."""
    longer = "over " if headline.get(f"{rank}_is_bound") else ""
    return f"{longer}{svg.seconds(headline.get(rank))}"


def tiles(headline: Row, alarms: int) -> list[tuple[str, str, bool]]:
    """The headline: label, value, and whether it is bad news."""
    outages = headline.get("outages") or 0
    gone = sum(headline.get(name) or 0 for name in ("silent", "gave_up", "never_connected"))
    of_all = headline.get("connections")
    return [
        ("outages", svg.number(outages), False),
        (
            f"connections hit{f', of {svg.number(of_all)}' if of_all else ''}",
            svg.number(headline.get("clients_hit") or 0),
            False,
        ),
        ("downtime, p50", downtime(headline, "p50"), False),
        ("downtime, p99", downtime(headline, "p99"), False),
        ("downtime, longest", downtime(headline, "max"), False),
        ("not recovered", svg.number(gone), gone > 0),
        ("alarms", svg.number(alarms), alarms > 0),
    ]


def not_drawn(storm: Row, buckets: Rows) -> str:
    """What of a storm is right of its drawing."""
    attempts = (storm.get("attempts") or 0) - sum(bucket["attempts"] for bucket in buckets)
    if attempts <= 0:
        return ""
    end = max(bucket["second"] + bucket["width"] for bucket in buckets)
    return f"After {svg.seconds(end)}, not drawn: {counted(attempts, 'attempt')}."


def counted(count: int | None, noun: str) -> str:
    """``1 outage``, ``2 outages``."""
    return f"{svg.number(count or 0)} {noun}{'' if count == 1 else 's'}"


# -- values in tables -----------------------------------------------------------------------------


def text(value: Any) -> str:
    """Any value, cut to a bearable length."""
    if value is None or value == "":
        return svg.BLANK
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return svg.number(value)
    shown = str(value)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


def moment(value: Any) -> str:
    """A time in UTC to the millisecond."""
    if isinstance(value, datetime):
        value = value.isoformat(" ", "milliseconds").partition("+")[0]
    return text(value)


def endpoint(row: Row) -> str:
    """``host:port``."""
    return text(f"{row.get('server_address')}:{row.get('server_port')}")


def pairs(value: Any) -> str:
    """Counts by name, the largest first."""
    counts = dict(value or {})
    order = sorted(counts, key=lambda name: (-counts[name], name))
    shown = [f"{text(name)} {svg.number(counts[name])}" for name in order[:_PAIRS]]
    return ", ".join([*shown, *(["…"] if len(order) > _PAIRS else [])]) or svg.BLANK


def listed(value: Any) -> str:
    """The parts of a list with commas."""
    parts = value if isinstance(value, list | tuple) else [value]
    return ", ".join(text(part) for part in parts[:_PAIRS]) or svg.BLANK


def stream(row: Row) -> str:
    """A link of a cluster, or the cluster's own events."""
    link = row.get("link")
    return text(f"{row.get('cluster')}: {f'link {link}' if link else 'its own events'}")


def times(value: float | None) -> str:
    """A ratio."""
    return svg.BLANK if value is None else f"{value:.2f}\N{MULTIPLICATION SIGN}"


FILTERS: dict[str, Callable[..., Any]] = {
    "seconds": svg.seconds,
    "number": svg.number,
    "percent": svg.percent,
    "text": text,
    "moment": moment,
    "endpoint": endpoint,
    "pairs": pairs,
    "listed": listed,
    "times": times,
    "stream": stream,
}
