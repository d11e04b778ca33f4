"""The batch job on a standalone cluster: the same tables as on one machine."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from haclient.analysis.package import build
from tests.analysis import commands, spark_processes, stored
from tests.analysis.local_job import Done, local

__all__ = ["local"]


def test_a_cluster_with_two_workers_runs_the_submitted_package_with_the_same_result(
    local: Done, tmp_path: Path
) -> None:
    script = build(tmp_path / "haclient.zip")
    with spark_processes.standalone(tmp_path / "cluster") as url:
        submit = [str(spark_processes.SPARK_HOME / "bin" / "spark-submit"), "--master", url]
        options = ["--executor-memory", "512m", "--py-files", str(tmp_path / "haclient.zip")]
        executors_too = {"spark.executor.extraJavaOptions": spark_processes.JVM}
        options += spark_processes.settings(spark_processes.SMALL | executors_too)
        done = subprocess.run(
            [*submit, *options, str(script), str(local.telemetry), "--out", str(tmp_path / "cluster-out")],
            capture_output=True,
            text=True,
            timeout=commands.LONGEST,
            check=False,
            env=commands.environment() | {"SPARK_HOME": str(spark_processes.SPARK_HOME)},
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        executors = list((tmp_path / "cluster").glob("worker-*/app-*"))
    assert len({path.parent for path in executors}) == 2, "both workers ran an executor"

    assert stored.tables(tmp_path / "cluster-out") == stored.tables(local.out)
    assert json.loads(done.stdout) == pytest.approx(local.figures)
