"""The bars: whether a policy holds in one cell, beside the presets.

Rules
-----
1. The figures of a cell are the medians over its seeds; of SYNs at one address the worst of them.
2. *late*: the last client is back after more than 1.2 times the time of the fastest preset, and more than the
   best possible time plus a second (1.5 s with several members: a client has to find which one serves).
3. *attempts*: more of them a client than any preset that is as fast as the fastest (within 2 % or
   0.1 s), and more than 2.
4. *behind*: a preset is better at both, by at least 5 % and 50 ms, and by at least 5 % and 0.1 attempts.
   Where a fleet of 300 or more is known (``--fleet-known``), *late* is after more than 1.05 times the best
   possible time, and more than 3 *attempts* are too many, whatever the presets do.
5. *SYNs*: of one client at one address more than two in a second, or two within 0.4 s (see ``syn``, rule 3).
   Said of our own policies; it does not decide whether a cell holds, for no preset keeps it everywhere.
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
    """What a policy does in a cell.

    :param last: seconds until the last client is back; infinite when one is not.
    :param attempts: SYNs a client, once the primary is back; ``before``: until then.
    :param most_syns: of one client at one address in a second; ``smallest_gap``: of two of those, in seconds.
    """

    last: float
    p50: float
    attempts: float
    before: float
    most_syns: int
    smallest_gap: float

    @property
    def is_polite(self) -> bool:
        """Rule 5; the sums of times are not exact."""
        return self.most_syns <= _MOST_SYNS and self.smallest_gap >= _SMALLEST_GAP - 1e-6


def outcome(runs: Sequence[Mapping[str, Any]]) -> Outcome:
    """The medians of some runs, whose figures are those of ``Result.figures``."""
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
    """What holds in a cell, by its presets.

    :param fastest: the preset that is, and ``fastest_last`` its seconds.
    :param last: the latest that the last client may be back, in seconds.
    :param attempts: the most a client may make.
    """

    fastest: str
    fastest_last: float
    last: float
    attempts: float


def bars(cell: Cell, presets: Mapping[str, Outcome]) -> Bars:
    """The bars of a cell."""
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
    """Which bars do not hold, in words; none when the cell holds."""
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
