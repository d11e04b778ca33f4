"""The figures of a storm, from the reports of clients and members.  No I/O.

Definitions
-----------
* The primary is *back* at the time at which the promoted member recorded that it serves.  If a cluster
  records
  nothing, it is back with the first client.  Other times count from there.
* A client is back when its Begin was answered.  ``last``, ``p50`` and ``p99`` are over all clients that
  were connected when the primary was killed.  They are infinite if too few clients came back.
* The setup rate (mu) is *sustained*: the middle four fifths of the connections, divided by the time that they
  took.  It is computed from the primary's telemetry of admitted clients, and without it from the clients.
  ``ideal`` is N/mu, and ``ratio`` is ``last`` / ``ideal``.  ``accept_rate`` is the rate that the primary
  reports.
* An attempt is a dial.  ``attempts`` counts dials since the kill, to any member; ``attempts_after`` counts
  dials to the primary that began after it was back.
* A defect is an error of the clients' library that ended its event loop; the worker then restarted the loop.
* A message is lost if it was settled for its client and was not in the queue after the storm.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.storm.footprint import Footprint
from benchmarks.storm.lines import body
from benchmarks.storm.member_lines import Served
from benchmarks.storm.results import Results

# The share of the connections at each end that is left out, since start and end distort the rate.
_RIM = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one storm.  Times are seconds since the primary was back, rates a second."""

    name: str
    clients: int
    back: int
    gave_up: int
    redials: int
    defects: int
    outage: float
    p50: float
    p99: float
    last: float
    setup_rate: float
    accept_rate: float | None
    ideal: float
    ratio: float
    peak: int
    attempts: float
    attempts_after: float
    refused: float
    settled: int
    lost: int
    twice: int
    memory: int
    files: int
    arrivals: tuple[float, ...]
    dials: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The inputs of `figures`: everything that one storm reported.

    :param primary: ``host:port`` of the new primary, empty if unknown.
    :param accept_rate: the admissions a second that it reports; ``None`` for no limit, or if unknown.
    :param came: how often each message was in the queue.
    """

    name: str
    results: Results
    clients: Collection[int]
    killed_at: float
    primary: str
    accept_rate: float | None
    served: Served | None
    came: Counter[str]
    footprints: Mapping[str, Footprint]


def figures(facts: Facts) -> Figures:
    """Compute the figures of a storm."""
    results, served = facts.results, facts.served
    clients = [results.clients[number] for number in facts.clients]
    returns = sorted(at for client in clients if (at := client.back_at(facts.killed_at)) is not None)
    since = served.since if served is not None else (returns[0] if returns else facts.killed_at)
    arrivals = [at - since for at in returns]
    dials = _dials(facts, since)
    admitted = served.admitted if served is not None and served.admitted else returns
    rate = sustained_rate(admitted)
    last = share(arrivals, 1.0, len(clients))
    ideal = len(clients) / rate if rate else math.nan
    settled = {body(*key) for key in results.settled}
    return Figures(
        name=facts.name,
        clients=len(clients),
        back=len(arrivals),
        gave_up=sum(client.gave_up is not None for client in clients),
        redials=sum(at > facts.killed_at for client in clients for at in client.redials),
        defects=results.defects.total(),
        outage=since - facts.killed_at,
        p50=share(arrivals, 0.5, len(clients)),
        p99=share(arrivals, 0.99, len(clients)),
        last=last,
        setup_rate=rate,
        accept_rate=facts.accept_rate,
        ideal=ideal,
        ratio=last / ideal,
        peak=busiest_second(arrivals),
        attempts=_each(clients, sum(at > facts.killed_at for c in clients for at, _ in c.attempts)),
        attempts_after=_each(clients, len(dials)),
        refused=_each(clients, len(served.refused) if served is not None else 0),
        settled=len(settled),
        lost=sum(facts.came[text] == 0 for text in settled),
        twice=sum(count > 1 for count in facts.came.values()),
        memory=max((each.memory for each in facts.footprints.values()), default=0),
        files=max((each.files for each in facts.footprints.values()), default=0),
        arrivals=tuple(arrivals),
        dials=dials,
    )


def _dials(facts: Facts, since: float) -> tuple[float, ...]:
    """Return when clients dialled the primary, in seconds after it was back, ascending."""
    attempts = itertools.chain.from_iterable(facts.results.clients[each].attempts for each in facts.clients)
    return tuple(sorted(at - since for at, to in attempts if at >= since and facts.primary in ("", to)))


def _each(clients: Collection[object], count: int) -> float:
    return count / len(clients) if clients else math.nan


def sustained_rate(times: Sequence[float]) -> float:
    """Return the events a second among the middle ones; 0.0 for too few events."""
    ordered = sorted(times)
    first, last = int(len(ordered) * _RIM), int(len(ordered) * (1 - _RIM)) - 1
    if last <= first or ordered[last] <= ordered[first]:
        return 0.0
    return (last - first) / (ordered[last] - ordered[first])


def share(times: Sequence[float], part: float, clients: int) -> float:
    """Return when this share of all clients was back; infinite if it never was.

    :param times: ascending.
    """
    rank = max(1, math.ceil(part * clients))
    return times[rank - 1] if rank <= len(times) else math.inf


def busiest_second(times: Sequence[float]) -> int:
    """Return the most events within one second.

    :param times: ascending.
    """
    return max((bisect_left(times, at + 1.0) - index for index, at in enumerate(times)), default=0)


def percentile(values: Collection[float], part: float) -> float:
    """Return the value at that rank; infinite if there are no values."""
    return share(sorted(values), part, len(values)) if values else math.inf
