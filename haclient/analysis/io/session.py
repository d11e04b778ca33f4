"""The Spark session of the analysis, created alike for a laptop, a cluster and Spark Connect.

Rules
-----
1. Missing software is reported before Spark starts, instead of by a traceback from py4j: ``NoSparkError``
   without pyspark, ``NoJavaError`` without a suitable Java.
2. Executors run the same Python as this process, times are UTC, there is no web UI.
3. The caller's options override those chosen here; JVM options are combined.
4. A local master listens on loopback only, and shuffles into as many partitions as it has cores.
5. A Spark Connect session needs no Java here; its server has set the JVM's options.
6. Columns do not record the line of Python that made them: this would take eight more calls to the
   JVM per call.
7. JVM classes that make columns are looked up once.  pyspark would look them up for every column, by
   names for which the JVM searches several packages in each of Spark's 300 archives.
8. A handler of SIGINT that the program has set stays.  pyspark would replace it by one that calls the JVM
   from inside another call.

Source: Spark 4.1 configuration, https://spark.apache.org/docs/latest/configuration.html
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from haclient.command_line.python import safe_path
from haclient.version import install_extra

if TYPE_CHECKING:
    from pyspark import StorageLevel
    from pyspark.sql import DataFrame, SparkSession

LOOPBACK = "127.0.0.1"
LOGGING = Path(__file__).with_name("log4j2.properties")
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
OLDEST_JAVA = 17  # Spark 4 is compiled for it
COLLECTOR = "-XX:+UseParallelGC"  # throughput matters to a job, short pauses do not
_COLLECTORS = r"-XX:\+Use\w+GC\b"
COMPILE_LATE = (  # ten times the JVM's defaults: most generated code ends before full compilation would pay
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
SHORT_LIFE = (  # enough memory for loaded and compiled code, so that the JVM need not free any
    "-Xmn160m -XX:MetaspaceSize=256m -XX:ReservedCodeCacheSize=240m -XX:-UseCodeCacheFlushing"
)
LIGHT = {  # for few lines: planning and compiling a query takes longer than reading them
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.lightweightPlanChangeValidation": "false",
    # rows of one partition are joined in place; a broadcast would be another job
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.optimizer.disableHints": "true",
    "spark.sql.join.preferSortMergeJoin": "false",
    # without these, Spark shuffles frames that it estimates to be large
    "spark.sql.maxSinglePartitionBytes": "1024p",
    "spark.sql.defaultSizeInBytes": "1k",
    "spark.buffer.pageSize": "256k",
    JAVA_OPTIONS: f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {SHORT_LIFE}",
}
JAVA_TIMEOUT = 30.0  # s; `java -version` takes 0.1 s, a cold disk some seconds


class AnalysisError(Exception):
    """The analysis cannot run at all, or not on this input.  The text names the remedy."""


class NoSparkError(AnalysisError):
    """pyspark is not installed."""

    def __init__(self) -> None:
        super().__init__(f"the analysis needs PySpark: {install_extra('spark')}")


class NoJavaError(AnalysisError):
    """No suitable Java for Spark was found.

    :param found: result of the search.
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
    """Return a session for the arguments; reuse the active one if it fits.

    :param master: Spark master; without one, the choice of ``spark-submit`` or the environment,
        else ``local[*]``.
    :param remote: ``sc://host:port`` of a Spark Connect server, instead of a master.
    :param config: Spark options that override those chosen here.
    :param light: for a local master: interpret queries, for an input of few lines.
    :raises AnalysisError: if pyspark or Java is missing, or both ``master`` and ``remote`` are given.
    """
    if master and remote:
        raise AnalysisError("a master and a Spark Connect server were given; one of them is enough")
    check_pyspark()
    if remote:
        return _connect(remote, app, dict(config or {}))
    check_java()
    return _classic(master, app, dict(config or {}), light=light)


def check_pyspark() -> None:
    """:raises NoSparkError: if pyspark cannot be imported."""
    if importlib.util.find_spec("pyspark") is None:
        raise NoSparkError


def check_java() -> int:
    """Return the version of the Java that Spark would start.

    :raises NoJavaError: if there is none, or one too old for Spark.
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
    """Parse the major version from the output of ``java -version``; Java 8 prints 1.8."""
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
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has chosen a master and started its JVM
    builder, conf = SparkSession.builder.appName(app), SparkConf().setAppName(app)
    if master is None and not submitted:
        master = "local[*]"
    if master is not None:
        builder, conf = builder.master(master), conf.setMaster(master)
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    chosen = _options(master)
    if light and master is not None and master.startswith("local"):
        chosen = _merged(chosen, LIGHT)
    for name, value in _merged(chosen, config).items():
        builder, conf = builder.config(name, value), conf.set(name, value)
    handler = signal.getsignal(signal.SIGINT)
    with safe_path():  # the JVM keeps this environment and starts Python workers with -m
        SparkContext.getOrCreate(conf)
    if handler is not signal.default_int_handler and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)
    session: SparkSession = builder.getOrCreate()
    _resolve_once(session.sparkContext._jvm)  # noqa: SLF001 - py4j's own view of the JVM
    return session


class _Known:
    """The static methods of a JVM class, each looked up once."""

    def __init__(self, its: object) -> None:
        self._its = its

    def __getattr__(self, name: str) -> object:
        found = getattr(self._its, name)
        setattr(self, name, found)
        return found


def _resolve_once(jvm: object) -> None:
    for name in ("org.apache.spark.sql.functions", "functions", "PythonUtils"):
        found = getattr(jvm, name)
        if not isinstance(found, _Known):
            setattr(jvm, name, _Known(found))


def _options(master: str | None) -> dict[str, str]:
    options = {
        "spark.sql.session.timeZone": "UTC",
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",  # slower with so many groups
    }
    jvm = []
    if LOGGING.is_file():  # absent in a zip
        jvm.append(f"-Dlog4j2.configurationFile={LOGGING.as_uri()}")
    if master is not None and master.startswith("local"):
        options |= {
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.host": LOOPBACK,
            "spark.driver.memory": "2g",  # the executor of a local master runs in the driver
            "spark.sql.shuffle.partitions": str(local_cores(master)),
            # each sort and each hash table takes a page, by Spark's default one of 32 MB
            "spark.buffer.pageSize": "2m",
        }
        jvm += [COLLECTOR, COMPILE_LATE]
    return options | ({JAVA_OPTIONS: " ".join(jvm)} if jvm else {})


def _merged(chosen: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    ours, theirs = chosen.get(JAVA_OPTIONS, ""), given.get(JAVA_OPTIONS, "")
    if re.search(_COLLECTORS, theirs):  # a JVM with two collectors does not start
        ours = re.sub(_COLLECTORS, "", ours)
    both = f"{ours} {theirs}".strip()
    return {**chosen, **given} | ({JAVA_OPTIONS: both} if both else {})


def is_single(spark: SparkSession) -> bool:
    """Report whether the session shuffles into one partition, as a light one does."""
    return spark.conf.get("spark.sql.shuffle.partitions") == "1"


def single(frame: DataFrame) -> DataFrame:
    """Coalesce ``frame`` into one partition if the session shuffles into one.

    Spark then needs no shuffle to group, join or sort it.
    """
    return frame.coalesce(1) if is_single(frame.sparkSession) else frame


def computed_once(frame: DataFrame, level: StorageLevel | None = None) -> DataFrame:
    """Cache ``frame`` for all its readers, until ``unpersist`` or ``clearCache``.

    A light session uses a checkpoint: the cache would compile code for every new list of columns.
    """
    if is_single(frame.sparkSession):
        return frame.coalesce(1).localCheckpoint()
    return frame.persist() if level is None else frame.persist(level)


def literal(spark: SparkSession, rows: Sequence[Mapping[str, object]], schema: str) -> DataFrame:
    """Build a frame of a few rows; ``createDataFrame`` would send them through a Python process."""
    from pyspark.sql import functions as sf  # noqa: PLC0415

    found = sf.from_json(sf.lit(json.dumps(rows)), sf.lit(f"array<struct<{schema}>>"))
    return spark.range(1).select(sf.inline(found))


def local_cores(master: str) -> int:
    """Return the number of threads of a local master: ``local`` 1, ``local[3]`` 3, ``local[*]`` all cores."""
    found = re.match(r"local\[(\d+)", master)
    if found:
        return int(found[1])
    return os.cpu_count() or 1 if master.startswith("local[*") else 1
