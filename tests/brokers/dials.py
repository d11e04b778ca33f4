"""A client's dials, from its telemetry: how soon after an outage, and how often while no member served.

Rules
-----
* The *next dial* is the first one at the new primary after it began to accept. It is 0 if the connection
  was pending by then, or open already: the kernel repeated its SYN, a member had parked it, or the client
  noticed the primary sooner than the judge did.
* The *handshake* lasts from the next dial until the connection is usable, further dials included.
* Rates count the dials at one address that did not connect: a refused dial is a SYN too.
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
    """One connection attempt of a client.

    :ivar endpoint: ``host:port``.
    :ivar began: monotonic seconds, like ``ended``.
    :ivar connected: whether it ended in a usable connection.
    """

    endpoint: str
    began: float
    ended: float
    connected: bool


@dataclass(frozen=True, slots=True)
class NextDial:
    """A client's return to a primary.

    :ivar after: seconds from the moment the primary accepted until the next dial.
    :ivar handshake: seconds from that dial until the connection was usable.
    """

    after: float
    handshake: float


def read(folder: Path) -> list[Dial]:
    """Return the dials in one client's telemetry, in order."""
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
    """Return how soon a client was back at a primary.

    :param lost: when the outage began. A client may be back before the judge sees the primary accept.
    :param since: when the primary began to accept; ``until``: when the next outage began.
    :returns: ``None`` if the client did not connect there in that time.
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
    """Return, for each address, when the dials that did not connect began."""
    times = defaultdict[str, list[float]](list)
    for dial in dials:
        if not dial.connected and since <= dial.began < until:
            times[dial.endpoint].append(dial.began)
    return [sorted(each) for each in times.values()]


def most_in_a_second(times: Sequence[float]) -> int:
    """Return the largest number of these ordered moments within any second."""
    return max((sum(first <= time < first + _SECOND for time in times) for first in times), default=0)


def smallest_gap(times: Sequence[float]) -> float | None:
    """Return the shortest time in seconds between two of these ordered moments; ``None`` if there are fewer
    than two.
    """
    return min((later - earlier for earlier, later in pairwise(times)), default=None)
