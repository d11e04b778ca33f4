"""Materializes small tables: computed once, without the plan that made it, and in one partition.

Spark goes through the whole plan of a frame at each step that is added to it, and a plan that names
another one several times grows by as much: a checkpoint has none.  What is in one partition is grouped,
joined and put in order where it is; otherwise each of these steps is a shuffle, and a job of its own.
"""

from __future__ import annotations

from pyspark.sql import DataFrame


def materialize(frame: DataFrame) -> DataFrame:
    """A checkpoint of ``frame`` in one partition: for tables that one task reads at once."""
    return frame.localCheckpoint().coalesce(1)
