"""One Spark session for the whole suite.

A test that times out in a call to the JVM leaves the session out of step for all later tests.  So
the limit here is far above the time of any test on a busy machine.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


HERE = Path(__file__).parent
LIMIT = 900.0  # s


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LIMIT))


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip reports, for tests that compare tables and figures: a report takes a third of a job on few
    rows.
    """
    from haclient.analysis.report import data

    monkeypatch.setattr(data, "report_tables", lambda *_: {})


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two cores, and only as many partitions as small tables need."""
    from haclient.analysis.io.session import spark_session
    from tests.analysis.spark_processes import SMALL

    made = spark_session(
        "local[2]",
        app="tests",
        config={**SMALL, "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))},
    )
    yield made
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # py4j leaves its socket to the JVM's exit
        made.stop()
