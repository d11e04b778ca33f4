"""Store tables as Parquet and JSON lines, written by Spark, or here if Spark is remote.

Rules
-----
* ``<base>/tables/<name>`` is Parquet, ``<base>/json/<name>`` is JSON lines; both are folders.
* A table is computed once.  ``write`` returns the stored table for further use.
* Its JSON lines are written while the next table is computed; ``finish`` waits for them.
* A cluster's executors write the files, so all nodes must have access to ``base``.  A Spark Connect
  server has a file system of its own, so its tables are fetched as Arrow.
"""

from __future__ import annotations

import json
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from haclient.analysis.io.session import single

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 10_000  # rows converted to Python objects at once


class Output(Protocol):
    """Writes tables."""

    def write(self, name: str, frame: DataFrame) -> DataFrame:
        """Store ``frame`` as table ``name``, replacing an older one; return the stored table."""
        ...

    def finish(self) -> None:
        """Wait until all tables are stored; raise any error of writing."""
        ...


class SparkOutput:
    """Tables that Spark writes.

    :param base: path or URI that all of Spark's nodes can write to.
    """

    def __init__(self, spark: SparkSession, base: str) -> None:
        self._spark = spark
        self._base = base.rstrip("/")
        self._pool = ThreadPoolExecutor(1)
        self._writing: list[Future[None]] = []

    def write(self, name: str, frame: DataFrame) -> DataFrame:
        """See ``Output``."""
        path = f"{self._base}/tables/{name}"
        frame.write.mode("overwrite").parquet(path)
        stored = single(self._spark.read.schema(frame.schema).parquet(path))
        lines = stored.write.mode("overwrite")
        self._writing.append(self._pool.submit(lines.json, f"{self._base}/json/{name}"))
        return stored

    def finish(self) -> None:
        """See ``Output``."""
        self._pool.shutdown()
        for writing in self._writing:
            writing.result()


class ArrowOutput:
    """Tables of a Spark Connect server, fetched and written here.

    :param base: folder on this machine.
    """

    def __init__(self, base: Path) -> None:
        self._base = base

    def write(self, name: str, frame: DataFrame) -> DataFrame:
        """See ``Output``; the server keeps a checkpoint, in memory or on disk, until the session ends.

        Without the checkpoint the plan would grow with every table.  It is sent with every request, and
        would soon be nested deeper than the protocol allows.
        """
        from pyarrow import parquet  # noqa: PLC0415  # part of the extra, and only needed here

        checkpoint = frame.localCheckpoint()
        table = checkpoint.toArrow()
        parquet.write_table(table, _emptied(self._base / "tables" / name) / "part-0.parquet")
        with (_emptied(self._base / "json" / name) / "part-0.json").open("w") as file:
            for batch in table.to_batches(max_chunksize=_ROWS):
                file.writelines(json.dumps(row, default=_text) + "\n" for row in _rows(batch))
        return checkpoint

    def finish(self) -> None:
        """See ``Output``; ``write`` has stored everything."""


def output(spark: SparkSession, base: str, *, remote: bool) -> Output:
    """Choose the output that fits the session."""
    return ArrowOutput(Path(base)) if remote else SparkOutput(spark, base)


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Convert rows to the form that Spark writes: null keys omitted, maps as objects."""
    maps = {field.name for field in batch.schema if str(field.type).startswith("map")}
    return [
        {name: dict(value) if name in maps else value for name, value in row.items() if value is not None}
        for row in batch.to_pylist()
    ]


def _text(value: Any) -> str:
    """Format a time as RFC 3339."""
    return str(value.isoformat(timespec="milliseconds")).replace("+00:00", "Z")
