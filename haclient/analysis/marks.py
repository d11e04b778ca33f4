"""Mark groups of delays that differ significantly from the distribution that their backoff strategy promises.

Rules
-----
1. A group is tested if at least ``FEWEST`` of its delays record the distribution that they were drawn from.
2. The test is Kolmogorov-Smirnov's, two-sided, with its exact p [1], from the widely checked scipy.
   pandas, which the analysis also uses, is built for the same numpy.
3. Many groups are tested at once.  Holm's method [2] keeps the probability of marking any good group below
   ``LEVEL``, even if the groups depend on each other.
4. A marked group is also at least ``LEAST`` away from its distribution.  Among a million delays even
   rounding is significant, but needs no action.
5. Without scipy no group is tested, and the verdict says so.

[1] R. Simard, P. L'Ecuyer, "Computing the Two-Sided Kolmogorov-Smirnov Distribution", J. Stat. Softw. 2011.
[2] S. Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scand. J. Statist. 6, 1979.
"""

from __future__ import annotations

import enum
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.05  # for all groups together
FEWEST = 50
LEAST = 0.02


class Verdict(enum.StrEnum):
    """The result of testing a group of delays."""

    MARKED = "marked"
    AS_PROMISED = "as promised"
    FEW = "few delays"
    FIXED = "no jitter"
    UNKNOWN = "no distribution recorded"
    UNTESTED = "not tested: scipy is missing"


@dataclass(frozen=True, slots=True)
class Group:
    """Delays of one group.

    :param delays: number of delays.
    :param fixed: delays without a random part.
    :param judged: delays whose distribution is recorded.
    :param distance: Kolmogorov-Smirnov distance of the judged delays from their distribution.
    """

    delays: int
    fixed: int
    judged: int
    distance: float | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one group and its probabilities.

    :param p_value: probability of such a distance by chance; ``None`` if the group was not tested.
    :param p_adjusted: the same for all groups together; a group below ``LEVEL`` is marked if it is also
        ``LEAST`` away.
    """

    verdict: Verdict
    p_value: float | None = None
    p_adjusted: float | None = None


def judge(groups: Sequence[Group]) -> list[Judgement]:
    """Return the judgement on each group, in the order given."""
    tested = [each for each in groups if _is_tested(each)]
    if not tested or importlib.util.find_spec("scipy") is None:
        return [Judgement(_untested(each)) for each in groups]
    found = p_values(tested)
    made = iter(zip(tested, found, holm(found), strict=True))
    return [_judgement(*next(made)) if _is_tested(each) else Judgement(_untested(each)) for each in groups]


def _is_tested(group: Group) -> bool:
    return group.judged >= FEWEST and group.distance is not None


def _untested(group: Group) -> Verdict:
    if _is_tested(group):
        return Verdict.UNTESTED
    if group.judged:
        return Verdict.FEW
    return Verdict.FIXED if group.fixed == group.delays else Verdict.UNKNOWN


def _judgement(group: Group, p_value: float, p_adjusted: float) -> Judgement:
    far = group.distance is not None and group.distance >= LEAST
    verdict = Verdict.MARKED if p_adjusted <= LEVEL and far else Verdict.AS_PROMISED
    return Judgement(verdict, p_value, p_adjusted)


def p_values(groups: Sequence[Group]) -> list[float]:
    """Return the exact p value of each group's distance.

    :param groups: groups with a distance.
    :raises ImportError: if scipy is not installed.
    """
    from scipy.stats import kstwo  # noqa: PLC0415  # takes half a second, and may not be installed

    return [float(kstwo.sf(each.distance, each.judged)) for each in groups]


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p values by Holm's method, so that each can be compared with the common level."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted
