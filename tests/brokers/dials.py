"""When a client dialled: from its telemetry, how soon after an outage, and how often while nobody served.

Rules
-----
* The *next dial* is the first one at the new primary after that began to accept.  It is 0 for a client whose
  connection was on its way by then, or back: its SYN was kept, a member had parked it, or it was faster than
  the judge.
* The *handshake* lasts from the next dial until the connection is usable, further dials included.
* Rates count the dials at one address that did not connect: a refusal is a SYN.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

_ATTEMPT = "haclient.connection.attempt"
_SECOND = 1.0


@dataclass(frozen=True, slots=True)
class Dial:
    """One attempt of a client.

    :ivar endpoint: ``host:port``.
    :ivar began: monotonic seconds, as ``ended``.
    :ivar connected: whether it ended in a usable connection.
    """

    endpoint: str
    began: float
    ended: float
    connected: bool


@dataclass(frozen=True, slots=True)
class NextDial:
    """How a client came back.

    :ivar after: seconds from the moment the primary accepted until the next dial.
    :ivar handshake: seconds from then on until the connection was usable.
    """

    after: float
    handshake: float


def read(folder: Path) -> list[Dial]:
    """The dials in the telemetry of one client, in order."""
    dials = (_dial(facts) for path in sorted(folder.glob("*.jsonl*")) for facts in _attempts(path))
    return sorted(dials, key=lambda dial: dial.began)


def _attempts(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for line in lines:
            event = json.loads(line)
            if event["type"] == _ATTEMPT and event["data"].get("haclient.attempt.duration") is not None:
                yield event["data"]


def _dial(facts: dict[str, Any]) -> Dial:
    ended = facts["haclient.monotonic"]
    return Dial(
        endpoint=f"{facts['server.address']}:{facts['server.port']}",
        began=ended - facts["haclient.attempt.duration"],
        ended=ended,
        connected="error.type" not in facts,
    )


def next_dial(
    dials: Iterable[Dial], endpoint: str, *, lost: float, since: float, until: float
) -> NextDial | None:
    """How a client came back to a primary.

    :param lost: when the outage began: a client may be back before the judge knows that the primary accepts.
    :param since: when the primary began to accept; ``until``: when the next outage began.
    :returns: ``None`` if it did not connect there in that time.
    """
    at_it = (dial for dial in dials if dial.endpoint == endpoint)
    there = [dial for dial in at_it if dial.ended >= lost and dial.began < until]
    back = next((dial for dial in there if dial.connected), None)
    if back is None:
        return None
    if back.began <= since:
        return NextDial(0.0, back.ended - (since if since <= back.ended else back.began))
    first = min(dial.began for dial in there if dial.began > since)
    return NextDial(first - since, back.ended - first)


def refused(dials: Iterable[Dial], since: float, until: float) -> list[list[float]]:
    """When the dials that did not connect began, for each address."""
    times = defaultdict[str, list[float]](list)
    for dial in dials:
        if not dial.connected and since <= dial.began < until:
            times[dial.endpoint].append(dial.began)
    return [sorted(each) for each in times.values()]


def most_in_a_second(times: Sequence[float]) -> int:
    """The most of these moments, in order, within any second."""
    return max((sum(first <= time < first + _SECOND for time in times) for first in times), default=0)


def smallest_gap(times: Sequence[float]) -> float | None:
    """Seconds between the two of these moments, in order, that are closest; ``None`` for fewer than two."""
    return min((later - earlier for earlier, later in pairwise(times)), default=None)
