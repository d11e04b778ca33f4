"""Which groups of delays are marked: those that surely do not have the distribution that was promised.

Rules
-----
1. A group is tested when at least ``FEWEST`` of its delays say which distribution they were drawn from.
2. The test is Kolmogorov-Smirnov's, two-sided, with its exact p [1]: scipy's, which many have checked, and
   not one of our own.  pandas, which the analysis has as well, is made for the same numpy.
3. Many groups are tested at once.  Holm [2] keeps the probability that even one good group is marked below
   ``LEVEL``, whatever depends on what.
4. A group that is marked is also ``LEAST`` away from its distribution: of a million delays every rounding is
   significant, and nobody has to act on it.
5. Without scipy no group is tested, and the verdict says so.  No group passes in silence.

[1] R. Simard, P. L'Ecuyer, "Computing the Two-Sided Kolmogorov-Smirnov Distribution", J. Stat. Softw. 2011.
[2] S. Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scand. J. Statist. 6, 1979.
"""

from __future__ import annotations

import enum
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.05  # of all groups together
FEWEST = 50
LEAST = 0.02


class Verdict(enum.StrEnum):
    """What is said about a group of delays."""

    MARKED = "marked"
    AS_PROMISED = "as promised"
    FEW = "few delays"
    FIXED = "no jitter"
    UNKNOWN = "no distribution recorded"
    UNTESTED = "not tested: scipy is missing"


@dataclass(frozen=True, slots=True)
class Group:
    """Delays of one group.

    :param delays: all of them.
    :param fixed: those that were not drawn: nothing was left to chance.
    :param judged: those whose distribution is recorded.
    :param distance: of these from it.
    """

    delays: int
    fixed: int
    judged: int
    distance: float | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """Of one group.

    :param p_value: probability of such a distance by chance; ``None`` where it is not tested.
    :param p_adjusted: the same among all groups: marked are those below ``LEVEL``, if they are far away.
    """

    verdict: Verdict
    p_value: float | None = None
    p_adjusted: float | None = None


def judge(groups: Sequence[Group]) -> list[Judgement]:
    """The verdict of each group, in their order."""
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
    """The exact p of each distance."""
    from scipy.stats import kstwo  # noqa: PLC0415  # takes half a second, and a cluster may not have it

    return [float(kstwo.sf(each.distance, each.judged)) for each in groups]


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted so that each can be compared with the level of all."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted
