"""One batch job on this machine, the reference for jobs elsewhere; it runs once in a suite."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from haclient.analysis import job
from tests.analysis import small_fleet


@dataclass(frozen=True)
class Done:
    """A finished job."""

    telemetry: Path
    out: Path
    summary: job.Summary


DONE = pytest.StashKey[Done]()


@pytest.fixture(scope="session")
def local(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Done:
    """Run the job.  pytest makes the fixture for each module that imports it; the first one runs the job."""
    kept = request.config.stash
    if DONE not in kept:
        kept[DONE] = _run(spark, tmp_path_factory.mktemp("telemetry"), tmp_path_factory.mktemp("local"))
    return kept[DONE]


def _run(spark: SparkSession, telemetry: Path, out: Path) -> Done:
    for place, lines in enumerate(small_fleet.files(20, 2, seed=1)):
        (telemetry / f"{place}.jsonl").write_text("\n".join(lines) + "\n")
    return Done(telemetry, out, job.run(spark, job.Job(source=str(telemetry), out=out)))
