"""The batch job on a standalone cluster and on a Spark Connect server: the same tables as on one machine.

Each needs one core to plan its queries, so both run side by side.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from haclient.analysis.io.package import build
from tests.analysis import commands, spark_processes, stored
from tests.analysis.local_job import Done, local

__all__ = ["local"]

pytestmark = pytest.mark.spark

Process = subprocess.CompletedProcess[str]


class Jobs(NamedTuple):
    """The running jobs, and their folders."""

    on_cluster: Future[Process]
    cluster: Path
    on_server: Future[Process]
    server: Path


@pytest.fixture(scope="module")
def jobs(local: Done, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    cluster, server = (tmp_path_factory.mktemp(name) for name in ("cluster", "server"))
    with ThreadPoolExecutor(2) as pool:
        yield Jobs(
            pool.submit(on_cluster, local.telemetry, cluster),
            cluster,
            pool.submit(on_server, local.telemetry, server),
            server,
        )


def on_cluster(telemetry: Path, folder: Path) -> Process:
    """Submit the package; its driver lacks Jinja2."""
    script = build(folder / "haclient.zip")
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['jinja2'] = None\n")
    home = str(spark_processes.SPARK_HOME)
    with spark_processes.standalone(folder / "nodes") as url:
        submit = [f"{home}/bin/spark-submit", "--master", url, "--executor-memory", "512m"]
        executors_too = {"spark.executor.extraJavaOptions": spark_processes.JVM}
        options = spark_processes.settings(spark_processes.SMALL | executors_too)
        what = ["--py-files", str(folder / "haclient.zip"), str(script), str(telemetry)]
        return subprocess.run(
            [*submit, *options, *what, "--out", str(folder / "out")],
            capture_output=True,
            text=True,
            timeout=commands.LONGEST,
            check=False,
            env=commands.environment() | {"SPARK_HOME": home, "PYTHONPATH": str(folder)},
            cwd=folder,
        )


def on_server(telemetry: Path, folder: Path) -> Process:
    """Run the command with a Spark Connect server that was started for it."""
    with spark_processes.connect_server(folder / "server") as url:
        return commands.haclient("analyze", telemetry, "--out", folder / "out", "--remote", url, "--json")


def same_results(done: Process, out: Path, local: Done) -> dict[str, list[Any]]:
    """Assert that the tables equal the local job's."""
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == pytest.approx(local.summary)
    found = stored.tables(out)
    assert found == stored.tables(local.out)
    return found


def test_a_cluster_with_two_workers_runs_the_submitted_package_with_the_same_result(
    local: Done, jobs: Jobs
) -> None:
    same_results(jobs.on_cluster.result(), jobs.cluster / "out", local)
    executors = list((jobs.cluster / "nodes").glob("worker-*/app-*"))
    assert len({path.parent for path in executors}) == 2, "both workers ran an executor"
    assert not (jobs.cluster / "out" / "report.html").exists(), "it needs Jinja2"


def test_a_connect_server_gives_the_same_result(local: Done, jobs: Jobs) -> None:
    found = same_results(jobs.on_server.result(), jobs.server / "out", local)
    assert (jobs.server / "out" / "report.html").exists()
    for name, rows in found.items():
        assert stored.lines(jobs.server / "out" / "json" / name) == len(rows), name
