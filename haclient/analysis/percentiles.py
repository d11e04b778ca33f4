"""Percentiles: exact for up to ``EXACT`` values of a group, and of a sketch for more.

An exact percentile keeps every different value of its group in the memory of one task.  A sketch [1] keeps
some thousand, and finds a value whose rank is off by at most ``1 / ACCURACY`` of the values; the lowest and
the highest are exact.  How many values there are must be known before: an aggregate cannot change its mind.

[1] M. Greenwald, S. Khanna, "Space-Efficient Online Computation of Quantile Summaries", SIGMOD 2001.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as sf

EXACT = 5_000_000  # values of a group; as different ones they take some 400 MB
ACCURACY = 2_000  # half of the error in rank that is promised, 0.1 %


def percentiles(value: str | Column, shares: Sequence[float], values: int) -> Column:
    """An aggregate: an array with the percentile of each share.

    :param value: null where a row has none.
    :param values: how many the largest group has, at most.
    """
    if values <= EXACT:
        return sf.percentile(value, list(shares))
    return sf.approx_percentile(value, list(shares), ACCURACY)
