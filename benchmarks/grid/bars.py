"""The bars: limits that a policy must keep in one cell, compared with the presets.

Rules
-----
1. The figures of a cell are the medians over its seeds; for SYNs at one address, the worst value.
2. *late*: the last client is back after more than 1.2 times the time of the fastest preset.  It is also more
   than the best possible time plus a second (1.5 s with several members, as a client must find the primary).
3. *attempts*: a client makes more than 2 attempts, and more than any preset within 2 % or 0.1 s of the
   fastest.
4. *behind*: a preset is better at both, by at least 5 % and 50 ms, and by at least 5 % and 0.1 attempts.
   If a fleet of 300 or more is known (``--fleet-known``), the presets do not matter.  Then *late* means more
   than 1.05 times the best possible time, and more than 3 *attempts* are too many.
5. *SYNs*: a client sends more than two SYNs to one address in a second, or two within 0.4 s (see ``syn``,
   rule 3).  Reported for our own policies only; a cell may hold without it, as no preset always keeps it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any

from benchmarks.grid.cells import Cell

_AS_LATE, _SLACK, _SLACK_OF_SEVERAL = 1.2, 1.0, 1.5
_AS_FAST, _AS_FAST_S, _FEW_ATTEMPTS = 1.02, 0.1, 2.0
_BETTER, _BETTER_S, _BETTER_ATTEMPTS = 0.95, 0.05, 0.1
_AS_LATE_KNOWN, _ATTEMPTS_KNOWN = 1.05, 3.0
_MOST_SYNS, _SMALLEST_GAP = 2, 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The figures of a policy in a cell.

    :param last: seconds until the last client is back; infinite if a client never is.
    :param attempts: SYNs per client after the primary is back; ``before``: SYNs per client until then.
    :param most_syns: most SYNs of one client to one address in a second.
    :param smallest_gap: shortest time between two of these SYNs, in seconds.
    """

    last: float
    p50: float
    attempts: float
    before: float
    most_syns: int
    smallest_gap: float

    @property
    def is_polite(self) -> bool:
        """Return whether rule 5 is kept; tolerates rounding of times."""
        return self.most_syns <= _MOST_SYNS and self.smallest_gap >= _SMALLEST_GAP - 1e-6


def outcome(runs: Sequence[Mapping[str, Any]]) -> Outcome:
    """Return the medians over runs; each run is a ``Result.figures``."""
    return Outcome(
        last=median_low(_time(run["last"]) for run in runs),
        p50=median_low(_time(run["p50"]) for run in runs),
        attempts=median_low(run["attempts_per_client"] for run in runs),
        before=median_low(run["attempts_before"] for run in runs),
        most_syns=max(run["syns_of_client"] for run in runs),
        smallest_gap=min(_time(run["smallest_gap"]) for run in runs),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """The limits in a cell, derived from its presets.

    :param fastest: the fastest preset; ``fastest_last``: its time in seconds.
    :param last: latest time at which the last client may be back, in seconds.
    :param attempts: maximum attempts per client.
    """

    fastest: str
    fastest_last: float
    last: float
    attempts: float


def bars(cell: Cell, presets: Mapping[str, Outcome]) -> Bars:
    """Return the bars of a cell."""
    fastest = min(presets, key=lambda name: presets[name].last)
    first = presets[fastest].last
    slack = _SLACK if cell.members == 1 else _SLACK_OF_SEVERAL
    as_fast = max(_AS_FAST * first, first + _AS_FAST_S)
    if cell.fleet_known:
        return Bars(
            fastest=fastest, fastest_last=first, last=_AS_LATE_KNOWN * cell.best, attempts=_ATTEMPTS_KNOWN
        )
    return Bars(
        fastest=fastest,
        fastest_last=first,
        last=max(_AS_LATE * first, cell.best + slack),
        attempts=max(
            [_FEW_ATTEMPTS, *(other.attempts for other in presets.values() if other.last <= as_fast)]
        ),
    )


def broken(ours: Outcome, limits: Bars, presets: Mapping[str, Outcome]) -> list[str]:
    """Return the names of the broken bars; empty if the cell holds."""
    found = []
    if ours.last > limits.last:
        found.append("late")
    if ours.attempts > limits.attempts:
        found.append("attempts")
    better = [name for name, other in presets.items() if _is_better(other, ours)]
    if better:
        found.append(f"behind {', '.join(better)}")
    return found


def _is_better(other: Outcome, ours: Outcome) -> bool:
    faster = other.last <= min(_BETTER * ours.last, ours.last - _BETTER_S)
    return faster and other.attempts <= min(_BETTER * ours.attempts, ours.attempts - _BETTER_ATTEMPTS)


def _time(value: float | None) -> float:
    return math.inf if value is None else value
