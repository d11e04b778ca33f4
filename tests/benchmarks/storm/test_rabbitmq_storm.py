"""A short storm at a real RabbitMQ node that restarts: ``compare_storms.py --broker rabbitmq``."""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.examples.program import ROOT
from tests.interop.installed import needs_rabbitmq

pytestmark = pytest.mark.slow

BENCHMARKS = ROOT / "benchmarks"
CONNECTIONS = 100

takes_root = pytest.mark.skipif(os.geteuid() != 0, reason="a packet socket takes root")


@pytest.fixture
def benchmark_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("rabbitmq_storm")


@needs_rabbitmq
@takes_root
@pytest.mark.timeout(400)  # a node starts three times, and a hundred clients are disconnected twice
def test_all_clients_are_back_at_a_node_that_was_stopped_and_started(tmp_path: Path) -> None:
    arguments = ["--broker", "rabbitmq", "--connections", str(CONNECTIONS), "--outage", "0.5"]
    program = subprocess.run(
        [
            sys.executable,
            BENCHMARKS / "compare_storms.py",
            *arguments,
            "--only",
            "haclient",
            "--out",
            tmp_path,
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert program.returncode == 0, program.stdout + program.stderr
    storms = {storm["name"]: storm for storm in json.loads((tmp_path / "rabbitmq.json").read_text())}
    assert set(storms) == {"haclient", "haclient, delays of kafka"}
    for storm in storms.values():
        assert (storm["clients"], storm["back"], storm["gave_up"]) == (CONNECTIONS, CONNECTIONS, 0)
        assert (storm["settled"], storm["lost"]) == (2 * CONNECTIONS, 0)
        assert storm["syns"] + storm["syns_before"] >= CONNECTIONS
        assert storm["processor"] > 0
        assert storm["simulated"]["not_back"] == 0


@takes_root
def test_syns_are_counted_once_each_whether_somebody_listens_or_not(benchmark_module: ModuleType) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.1", 0)) as other:
        port = listener.getsockname()[1]
        with benchmark_module.SynCounter(port) as syns:
            for _ in range(5):
                socket.create_connection(("127.0.0.1", port)).close()
                socket.create_connection(other.getsockname()).close()
            listener.close()
            for _ in range(3):
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", port))
            while len(syns.times) < 8:
                pass
    assert (len(syns.times), syns.missed) == (8, 0)
    first, last = syns.times[0], syns.times[-1]
    assert syns.between(first, last) == list(syns.times[:-1])


def test_the_simulator_serves_as_fast_as_one_processor_of_the_node(benchmark_module: ModuleType) -> None:
    """The density of arrivals is no measure: a node that sets up clients in parallel ends all together."""
    figures = SimpleNamespace(clients=1_000, outage=3.0)
    row = benchmark_module.Row(
        outcome=SimpleNamespace(figures=figures),
        preset=None,
        syns=0,
        syns_before=0,
        busiest=0,
        processor=2.0,
    )
    assert row.rate == 500
    result = benchmark_module.predict(row)
    # 1,000 clients at 500 a second; they poll every 0.56 s, and no SYN is dropped.
    assert 2.0 <= result.last <= 2.0 + 0.6
    assert result.attempts_per_client == pytest.approx(1.0)


def test_as_many_connections_as_files_allow(
    benchmark_module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark_module.resource, "getrlimit", lambda _: (1024, 2000))
    benchmark_module.check_limits(100)
    with pytest.raises(SystemExit, match="4500 files, 2000 are allowed"):
        benchmark_module.check_limits(3000)


@takes_root
def test_what_passes_before_the_filter_is_there_is_not_counted(benchmark_module: ModuleType) -> None:
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as busy:

        def dial() -> None:
            while not over.is_set():
                socket.create_connection(busy.getsockname()).close()
                busy.accept()[0].close()

        thread = threading.Thread(target=dial)
        thread.start()
        try:
            counted = 0
            for _ in range(30):
                with benchmark_module.SynCounter(1) as syns:
                    pass
                counted += len(syns.times)
        finally:
            over.set()
            thread.join()
    assert counted == 0
