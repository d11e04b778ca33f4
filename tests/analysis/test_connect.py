"""The batch job on a Spark Connect server: the same tables as on one machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.analysis import spark_processes, stored
from tests.analysis.commands import haclient
from tests.analysis.local_job import Done, local

__all__ = ["local"]


def test_a_connect_server_gives_the_same_result(local: Done, tmp_path: Path) -> None:
    with spark_processes.connect_server(tmp_path / "server") as url:
        done = haclient(
            "analyze", local.telemetry, "--out", tmp_path / "remote-out", "--remote", url, "--json"
        )
    assert done.returncode == 0, done.stderr[-3000:]

    assert json.loads(done.stdout) == pytest.approx(local.figures)
    found = stored.tables(tmp_path / "remote-out")
    assert found == stored.tables(local.out)
    for name, rows in found.items():
        assert stored.lines(tmp_path / "remote-out" / "json" / name) == len(rows), name
