"""Percentiles: exact for groups of up to ``EXACT`` values, approximate for larger groups.

An exact percentile keeps every different value of its group in the memory of one task.  A sketch [1] keeps
some thousand.  Its error in rank is at most ``1 / ACCURACY`` of the number of values; minimum and maximum are
exact.  The caller must know the number of values in advance, since an aggregate cannot change its method.

[1] M. Greenwald, S. Khanna, "Space-Efficient Online Computation of Quantile Summaries", SIGMOD 2001.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as sf

EXACT = 5_000_000  # values of a group; some 400 MB if all differ
ACCURACY = 2_000  # half of the documented error in rank, 0.1 %


def percentiles(value: str | Column, shares: Sequence[float], values: int) -> Column:
    """Return an aggregate: an array with the percentile of each share.

    :param value: null if a row has no value.
    :param values: upper bound of the number of values in the largest group.
    """
    if values <= EXACT:
        return sf.percentile(value, list(shares))
    return sf.approx_percentile(value, list(shares), ACCURACY)
