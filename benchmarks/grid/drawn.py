"""Cells drawn at random, in which haclient's default meets the policies of other clients.

The cells of ``cells`` are chosen, and a policy may be fitted to them.  These are drawn from a seed.

Rules
-----
1. Each number of ``RANGES`` is drawn log-uniform, each alternative with even chances.
2. The figures of a policy in a cell are its medians over the seeds (``bars.outcome``).
3. A figure counts as its *ratio* to the figure of the best policy in the same cell, so that a storm of a
   minute counts as much as one of a second.  The best has 1.
4. Quantiles are values that occur (nearest rank), because an infinite time cannot be interpolated.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.grid.bars import Outcome
from benchmarks.grid.presets import JITTERS, PRESETS, Preset
from haclient.retry.policy import Policy
from haclient.simulation.scenario import Scenario

OURS = "haclient"
POLICIES: Mapping[str, Policy | Preset] = {
    OURS: Policy(),
    **{preset.name: preset for preset in (*JITTERS, PRESETS["kafka"], PRESETS["qpid-jms"])},
}

RANGES: Mapping[str, tuple[float, float]] = {
    "clients": (5, 5_000),
    "setup_rate": (20, 2_000),
    "outage": (0.3, 60),
    "backlog": (16, 4_096),
    "round_trip": (0.0001, 0.2),
}
"""Lowest and highest value; rates a second, times in seconds."""

FIGURES: Mapping[str, Callable[[Outcome], float]] = {
    "last client": lambda found: found.last,
    "median client": lambda found: found.p50,
    "attempts after the return": lambda found: found.attempts,
    "attempts, outage included": lambda found: found.before + found.attempts,
}
"""Times are seconds after the primary's return, attempts are SYNs per client."""

QUANTILES: Mapping[str, int] = {"0.1": 10, "0.5": 50, "0.9": 90, "worst": 100}
"""The quantiles of the cells to show, in percent."""

_HORIZON = 2000.0  # seconds; a client that is not back by then never is
_TOGETHER, _MOST_SEEDS = 200, 20


@dataclass(frozen=True, slots=True)
class DrawnCell:
    """One storm at an ordinary broker, which sends no ``retry-after``.

    :param first: the scenario of the first seed.
    """

    first: Scenario

    @property
    def seeds(self) -> Sequence[int]:
        """Return the seeds: as many as give 200 clients together, and at most 20."""
        count = min(_MOST_SEEDS, math.ceil(_TOGETHER / self.first.clients))
        return range(self.first.seed, self.first.seed + count)

    def scenario(self, seed: int) -> Scenario:
        """Return the scenario of one seed."""
        return replace(self.first, seed=seed)

    @property
    def client_seconds(self) -> float:
        """Return about how many seconds all simulated clients are away together; the cost is proportional."""
        return len(self.seeds) * self.first.clients * (self.first.outage + self.first.ideal)


def drawn_cells(count: int, seed: int) -> list[DrawnCell]:
    """Draw some cells; a larger count begins with the cells of a smaller one."""
    rng = random.Random(seed)
    return [DrawnCell(_scenario(rng)) for _ in range(count)]


def _scenario(rng: random.Random) -> Scenario:
    drawn = {
        name: math.exp(rng.uniform(math.log(low), math.log(high))) for name, (low, high) in RANGES.items()
    }
    return Scenario(
        clients=round(drawn["clients"]),
        setup_rate=drawn["setup_rate"],
        outage=drawn["outage"],
        backlog=round(drawn["backlog"]),
        round_trip=drawn["round_trip"],
        when_full=rng.choice(("reset", "silent")),
        members=rng.choice((1, 3)),
        dead_host=rng.choice((False, True)),
        retry_after=False,
        horizon=_HORIZON,
        seed=rng.randrange(1, 1_000_000),
    )


def ratios(
    found: Sequence[Mapping[str, Outcome]], figure: Callable[[Outcome], float]
) -> dict[str, list[float]]:
    """Return for each policy its ratio to the best one in each cell.

    :param found: the outcome of each policy, for each cell.
    """
    cells = [{name: figure(outcome) for name, outcome in of_cell.items()} for of_cell in found]
    return {name: [_ratio(values[name], min(values.values())) for values in cells] for name in found[0]}


def _ratio(value: float, best: float) -> float:
    return value / best if value < math.inf else math.inf


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Return the quantiles of some ratios, by their names in ``QUANTILES``."""
    ordered = sorted(values)
    return {name: ordered[math.ceil(percent * len(ordered) / 100) - 1] for name, percent in QUANTILES.items()}
