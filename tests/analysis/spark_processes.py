"""A Spark standalone cluster and a Spark Connect server on loopback, as processes of this pyspark."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from haclient.analysis.io.session import LIGHT, SHORT_LIFE

SPARK_HOME = Path(pyspark.__file__).parent
STARTING = 60.0  # s; a JVM takes 3 s on an idle machine
STOPPING = 20.0
JVM = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {SHORT_LIFE}"
FEW_ROWS = {"spark.driver.extraJavaOptions": JVM, "spark.sql.shuffle.partitions": "2"}
# A light session also changes shuffles and adaptive plans, which run here as on large inputs.
INTERPRETED = {name: value for name, value in LIGHT.items() if ".codegen." in name}
SMALL_PAGES = {name: value for name, value in LIGHT.items() if ".buffer." in name}
SMALL = INTERPRETED | SMALL_PAGES | FEW_ROWS
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


@contextmanager
def standalone(folder: Path, *, workers: int = 2, memory: str = "640m") -> Iterator[str]:
    """Start a master and its workers, one core each; return the master's URL."""
    with ExitStack() as stack:
        log = stack.enter_context(_spark_class(folder / "master.log", MASTER, "--port", "0"))
        url = _wait_for(log, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            work = folder / f"worker-{number}"
            options = ("--cores", "1", "--memory", memory, "--work-dir", str(work), "--port", "0", url)
            stack.enter_context(_spark_class(folder / f"worker-{number}.log", WORKER, *options))
        _wait_for(log, rf"(?s)(?:Registering worker.*?){{{workers}}}()")
        yield url


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Start a Spark Connect server; return its URL.  It compiles queries, as users' servers do."""
    options = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    command = [str(SPARK_HOME / "bin/spark-submit"), "--master", "local[2]", "--class", CONNECT]
    command += [*settings(options | FEW_ROWS), "spark-internal"]
    with _process(folder / "connect.log", command) as log:
        yield "sc://" + _wait_for(log, r"Spark Connect server started at: (\S+)")


def settings(options: Mapping[str, str]) -> list[str]:
    """Return options of Spark, for its commands and ours."""
    return [part for name, value in options.items() for part in ("--conf", f"{name}={value}")]


@contextmanager
def _spark_class(log: Path, name: str, *options: str) -> Iterator[Path]:
    command = [
        str(SPARK_HOME / "bin/spark-class"),
        name,
        "--host",
        "127.0.0.1",
        "--webui-port",
        "0",
        *options,
    ]
    with _process(log, command) as started:
        yield started


@contextmanager
def _process(log: Path, command: list[str]) -> Iterator[Path]:
    """Start a process; ``spark-class`` and ``spark-submit`` exec the JVM, so it is the JVM itself."""
    environment = os.environ | {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": JVM,
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    }
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd=log.parent, env=environment)
        try:
            yield log
        finally:
            process.terminate()
            try:
                process.wait(STOPPING)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(log: Path, pattern: str) -> str:
    """Wait for ``pattern`` in the log; return its first group."""
    deadline = time.monotonic() + STARTING
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found[1]
        time.sleep(0.1)
    raise AssertionError(f"{pattern} did not come:\n{log.read_text(errors='replace')[-3000:]}")
