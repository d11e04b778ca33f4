"""One Spark session for the whole suite."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores, and no more partitions than small tables need."""
    from haclient.analysis.session import spark_session

    made = spark_session(
        "local[2]",
        app="tests",
        config={
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.codegen.wholeStage": "false",  # compiling takes longer than these few rows
            "spark.default.parallelism": "2",
        },
    )
    yield made
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # py4j leaves its socket to the JVM's exit
        made.stop()
