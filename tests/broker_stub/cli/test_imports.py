"""A pair stays light: members and supervisor import no module that they do not need at the start."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from broker_stub.local_cluster.supervisor import LocalCluster, LocalClusterOptions

PATIENCE = 60.0
# Neither may import these: other parts of the packages, and modules that the standard library loads by the
# dozen.
NOBODY = {
    "benchmarks",
    "bz2",
    "dns",
    "email",
    "haclient.analysis",
    "haclient.blocking",
    "haclient.cli",
    "haclient.configuration",
    "haclient.reactor",
    "haclient.simulation",
    "haclient.testing",
    "haclient.telemetry.writer",
    "haclient.tracing",
    "haclient.utils",
    "importlib.metadata",
    "kazoo",
    "opentelemetry",
    "prometheus_client",
    "pyspark",
    "rich",
    "zipfile",
}
NO_MEMBER = NOBODY | {
    "broker_stub.election.arbiter.zookeeper",
    "broker_stub.local_cluster",
    "broker_stub.management_client",
    "broker_stub.scratch_directory",
    "broker_stub.telemetry.writer",
    "decimal",
    "lzma",
    "shutil",
    "statistics",
    "tempfile",
}
# The supervisor removes a temporary directory, which needs the libraries of archives.
NO_SUPERVISOR = NOBODY - {"bz2"} | {
    "backoff",
    "broker_stub.broker",
    "broker_stub.member",
    "broker_stub.queueing.queue",
    "broker_stub.replication",
    "broker_stub.sites.site",
    "broker_stub.store",
    "haclient.aio",
    "haclient.core",
    "sqlite3",
}
# Runs ``python -m broker_stub ...``, and lists the modules at the end.
PROGRAM = """
import atexit, json, runpy, sys
where = sys.argv[1]
atexit.register(lambda: json.dump(sorted(sys.modules), open(where, "w")))
sys.argv = sys.argv[sys.argv.index("broker_stub"):]
runpy.run_module("broker_stub", run_name="__main__", alter_sys=True)
"""


def below(modules: set[str], names: set[str]) -> set[str]:
    """Return the modules that are one of the names, or inside one.

    Members and supervisor log in by SCRAM, so what its library loads is left out.
    """
    modules = modules - _scramps()
    return {module for module in modules for name in names if f"{module}.".startswith(f"{name}.")}


@functools.cache
def _scramps() -> frozenset[str]:
    program = "import json, sys, scramp; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return frozenset(json.loads(done.stdout))


@pytest.fixture(autouse=True)
def _no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HACLIENT_TELEMETRY", raising=False)


@pytest.mark.slow
async def test_a_primary_and_its_backup_load_no_more_than_they_need(tmp_path: Path) -> None:
    lists = {f"member-{number}": tmp_path / f"{number}.json" for number in (1, 2)}
    wrappers = {name: (sys.executable, "-c", PROGRAM, str(path)) for name, path in lists.items()}
    async with LocalCluster(LocalClusterOptions(wrappers=wrappers)):
        pass  # the primary serves, and the other one has caught up
    for path in lists.values():
        modules = set(json.loads(path.read_text()))
        assert "broker_stub.member.member" in modules
        assert below(modules, NO_MEMBER) == set()


@pytest.mark.slow
def test_a_supervisor_without_a_terminal_loads_neither_a_member_nor_a_screen(tmp_path: Path) -> None:
    path = tmp_path / "modules.json"
    command = [sys.executable, "-c", PROGRAM, str(path), "broker_stub", "pair", "--memory", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert any(json.loads(line)["event"] == "ready" for line in process.stdout)
        os.kill(process.pid, signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
    modules = set(json.loads(path.read_text()))
    assert "broker_stub.local_cluster.supervisor" in modules
    assert below(modules, NO_SUPERVISOR) == set()
