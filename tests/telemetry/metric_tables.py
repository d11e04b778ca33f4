"""The tables of metrics in docs/metrics.md, and events that touch every metric."""

from __future__ import annotations

import re
from dataclasses import dataclass

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import AttemptRecord, Failure, FailureReason
from haclient.events import (
    AttemptFailed,
    BackingOff,
    Blocked,
    Connected,
    Disconnected,
    Event,
    GaveUp,
    Reconnected,
    Redirected,
    Stamp,
    Unblocked,
)
from tests.docs.pages import DOCS

_HERE, _THERE = Endpoint("broker-a", 5672), Endpoint("broker-b", 5672)


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of a page or an exporter."""

    name: str
    type: str
    labels: frozenset[str]
    unit: str


def rows(section: str) -> list[Row]:
    """Return the metrics of a section of the page.  A label's values stand behind a colon."""
    text = (DOCS / "metrics.md").read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    cells = (
        line.strip("| ").split(" | ") for line in text.replace("| |", "|  |").splitlines() if "| `" in line
    )
    return [
        Row(
            name.strip("`"), kind, frozenset(re.findall("`(.*?)`", labels.partition(":")[0])), unit.strip("`")
        )
        for name, kind, labels, unit, _ in cells
    ]


def _stamp(sequence: int, episode: int = 1) -> Stamp:
    return Stamp(client_id="c", connection=1, sequence=sequence, time=1e9, monotonic=5.0, episode=episode)


def events_of_every_metric() -> list[Event]:
    """Send events that give each metric a value, with all its labels; numbers 3 and 4 were dropped."""
    failed = AttemptRecord(
        number=1, endpoint=_HERE, started=1.0, ended=1.5, failure=Failure(kind=FailureReason.REFUSED)
    )
    return [
        AttemptFailed(_stamp(1), failed),
        BackingOff(_stamp(2), 0.1, 0.2, None, 1),
        Redirected(_stamp(5), _HERE, _THERE, followed=True),
        Connected(_stamp(6), _HERE, 1, 2, 0.5),
        Blocked(_stamp(7), _HERE),
        Unblocked(_stamp(8), _HERE, 4.0),
        Disconnected(_stamp(9), _HERE, "gone", 3, "amqp:connection:forced"),
        Reconnected(_stamp(10, 2), _THERE, 1, 2, 0.5, replayed=3),
        Disconnected(_stamp(11, 2), _THERE, "gone", 0, "amqp:connection:forced"),
        GaveUp(_stamp(12, 3), "no primary", None, "deadline", 1, 2.0),
    ]
