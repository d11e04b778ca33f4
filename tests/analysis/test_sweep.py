"""A sweep of the simulation on Spark; it is here to share the suite's session."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from benchmarks.grid import sweep


@pytest.mark.slow
def test_spark_brings_the_same_rows_in_the_same_order(spark: SparkSession) -> None:
    base = {"clients": 100, "setup_rate": 100.0, "outage": 0.5}
    points = sweep.points(base, {"client": ["full", "kafka"], "seed": [1, 2]})
    assert sweep.run_on_spark(spark, points) == list(sweep.run(points))
