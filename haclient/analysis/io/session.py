"""The Spark session of the analysis: made the same way for a laptop, a cluster and Spark Connect.

Rules
-----
1. What is missing is said before Spark is started: ``NoSparkError`` without pyspark,
   ``NoJavaError`` without a Java that it can run on.  Neither is a traceback from inside py4j.
2. The executors run the Python that runs this, times are UTC, there is no web UI.
3. Options that are given win over those chosen here; of options for the JVM, both hold.
4. A local master listens on loopback only, and shuffles into as many partitions as it has cores.
5. A Spark Connect session needs no Java here; what belongs to the JVM was set by its server.
6. Columns do not remember the line of Python that made them: recording it takes eight calls to the
   JVM for each call that is made.

Source: Spark 4.1 configuration, https://spark.apache.org/docs/latest/configuration.html
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
LOGGING = Path(__file__).with_name("log4j2.properties")
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
OLDEST_JAVA = 17  # what Spark 4 is compiled for
COLLECTOR = "-XX:+UseParallelGC"  # a job wants its end, not short pauses
COMPILE_LATE = (  # ten times the JVM's own: most of what Spark generates has run before it is compiled well
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
LIGHT = {  # for few lines: to compile and to plan what reads them takes longer than to read them
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
JAVA_TIMEOUT = 30.0  # s; `java -version` takes 0.1 s, a cold disk some seconds


class AnalysisError(Exception):
    """The analysis cannot run, or not on this input.  The text says what to do about it."""


class NoSparkError(AnalysisError):
    """pyspark is not installed."""

    def __init__(self) -> None:
        super().__init__("the analysis needs PySpark: pip install 'haclient[spark]'")


class NoJavaError(AnalysisError):
    """There is no Java that Spark can run on.

    :param found: what there is instead.
    """

    def __init__(self, found: str) -> None:
        self.found = found
        super().__init__(
            f"Spark needs Java {OLDEST_JAVA} or newer, and {found}. "
            "Debian and Ubuntu have it as: apt-get install default-jre-headless. "
            "With several installed, set JAVA_HOME to the right one."
        )

    def __reduce__(self) -> tuple[type[NoJavaError], tuple[str]]:
        return type(self), (self.found,)


def spark_session(
    master: str | None = None,
    remote: str | None = None,
    app: str = "haclient",
    config: Mapping[str, str] | None = None,
    *,
    light: bool = False,
) -> SparkSession:
    """The session that the arguments ask for; the active one if it fits.

    :param master: Spark master; without one, what ``spark-submit`` or the environment says,
        else ``local[*]``.
    :param remote: ``sc://host:port`` of a Spark Connect server, instead of a master.
    :param config: Spark options that win over those chosen here.
    :param light: of a local master: interpret queries, for an input of few lines.
    :raises AnalysisError: when pyspark or Java is missing, or both ``master`` and ``remote`` are given.
    """
    if master and remote:
        raise AnalysisError("a master and a Spark Connect server were given; one of them is enough")
    check_pyspark()
    if remote:
        return _connect(remote, app, dict(config or {}))
    check_java()
    return _classic(master, app, dict(config or {}), light=light)


def check_pyspark() -> None:
    """:raises NoSparkError: when pyspark cannot be imported."""
    if importlib.util.find_spec("pyspark") is None:
        raise NoSparkError


def check_java() -> int:
    """The version of the Java that Spark would start.

    :raises NoJavaError: when there is none, or an older one than Spark runs on.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        raise NoJavaError("no java is on PATH and JAVA_HOME is not set")
    where = f"{java} (from JAVA_HOME)" if home else java
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoJavaError(f"{where} does not run: {error}") from error
    version = java_version(done.stderr + done.stdout)
    if version is None:
        raise NoJavaError(f"{where} does not print its version")
    if version < OLDEST_JAVA:
        raise NoJavaError(f"{where} is version {version}")
    return version


def java_version(text: str) -> int | None:
    """The major version in what ``java -version`` prints; Java 8 calls itself 1.8."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def _connect(remote: str, app: str, config: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415  # the extra may be missing

    builder = SparkSession.builder.remote(remote).appName(app)
    for name, value in {"spark.sql.session.timeZone": "UTC", **config}.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    return session


def _classic(master: str | None, app: str, config: Mapping[str, str], *, light: bool) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has chosen a master, its JVM is up
    builder = SparkSession.builder.appName(app)
    if master is None and not submitted:
        master = "local[*]"
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    chosen = _options(master)
    if light and master is not None and master.startswith("local"):
        chosen = _merged(chosen, LIGHT)
    for name, value in _merged(chosen, config).items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    return session


def _options(master: str | None) -> dict[str, str]:
    options = {
        "spark.sql.session.timeZone": "UTC",
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",  # slower, with that many groups
    }
    jvm = []
    if LOGGING.is_file():  # it is not in a zip
        jvm.append(f"-Dlog4j2.configurationFile={LOGGING.as_uri()}")
    if master is not None and master.startswith("local"):
        options |= {
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.host": LOOPBACK,
            "spark.driver.memory": "2g",  # the executor of a local master lives in the driver
            "spark.sql.shuffle.partitions": str(local_cores(master)),
        }
        jvm += [COLLECTOR, COMPILE_LATE]
    return options | ({JAVA_OPTIONS: " ".join(jvm)} if jvm else {})


def _merged(chosen: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    ours, theirs = chosen.get(JAVA_OPTIONS, ""), given.get(JAVA_OPTIONS, "")
    if re.search(r"-XX:\+Use\w+GC\b", theirs):  # a JVM with two collectors does not start
        ours = ours.replace(COLLECTOR, "")
    both = f"{ours} {theirs}".strip()
    return {**chosen, **given} | ({JAVA_OPTIONS: both} if both else {})


def local_cores(master: str) -> int:
    """How many threads a local master has: ``local`` 1, ``local[3]`` 3, ``local[*]`` all cores."""
    found = re.match(r"local\[(\d+)", master)
    if found:
        return int(found[1])
    return os.cpu_count() or 1 if master.startswith("local[*") else 1
