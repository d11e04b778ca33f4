"""The distinct events that a stream has read so far, in Parquet, by batch and by date.

Rules
-----
* A batch has a folder of its own, named after its id, and replaces a former one: if a kill interrupts a
  batch, Spark repeats it under the same id and with the same files.
* An event belongs to the batch that brought it first.  A later copy has the same id and time, so only the
  ids of its date are compared.  This bounds the work by a day's ids, and no event is too late.
  A watermark would drop lines that a disconnected client delivers late; the batch job keeps them.
  A copy with another time stays too: ``ingest.distinct`` chooses between them as in a batch job,
  in whatever order they arrived.
* Many small batches are merged while no batch runs.  ``CURRENT`` names the valid folder, and changes by a
  rename.
* Batches of an older version are read under today's names (``former``).
"""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType, StructType

from haclient.analysis.io import former, ingest

MANY = 200
"""Batches that start a merge: to list and open so many files takes longer than to rewrite them."""

_CURRENT = "CURRENT"


class Batches:
    """Tables of one stream, each batch in a folder of its own.

    :param folder: used by this stream only, and visible to all of Spark's nodes.
    :param schema: schema of the rows; a column ``date`` among them partitions the files.
    """

    def __init__(self, spark: SparkSession, folder: Path, schema: StructType) -> None:
        self._spark = spark
        self._folder = folder
        self._schema = StructType(list(schema.fields)).add("batch", IntegerType())
        self._dated = "date" in schema.names
        folder.mkdir(parents=True, exist_ok=True)
        self._drop_leftovers()

    def write(self, batch: int, rows: DataFrame) -> None:
        """Store ``rows`` as batch ``batch``, in place of its former rows."""
        self._write(rows, self._batch(self._root(), batch))

    def before(self, batch: int) -> DataFrame:
        """Return the rows of older batches."""
        return self._read().where(sf.col("batch") < batch).drop("batch")

    def everything(self) -> DataFrame:
        """Return the rows of all batches."""
        return self._read().drop("batch")

    def of(self, batch: int | None) -> DataFrame:
        """Return the rows of one batch; no rows for ``None`` or an unknown id."""
        return self._read().where(sf.col("batch") == sf.lit(batch)).drop("batch")

    def fresh(self, batch: int, events: DataFrame) -> DataFrame:
        """Return the ``events`` that no older batch has."""
        dates = [row["date"] for row in events.select("date").distinct().collect()]
        named = [date for date in dates if date is not None]
        wanted = sf.col("date").isin(named) | (sf.lit(len(named) < len(dates)) & sf.col("date").isNull())
        key = (*ingest.IDENTITY, *ingest.ORDER)
        known = self.before(batch).where(wanted)
        known = known.select(*(sf.col(name).alias(f"known_{name}") for name in key))
        same = [sf.col(name).eqNullSafe(sf.col(f"known_{name}")) for name in key]
        return events.join(known, same, "left_anti")

    def last(self, *, before: float = float("inf")) -> int | None:
        """Return the highest id of a batch below ``before``; ``None`` if there is none."""
        return max((batch for batch in self._ids() if batch < before), default=None)

    def drop(self, *, before: int) -> None:
        """Remove the batches with an id below ``before``."""
        for batch in self._ids():
            if batch < before:
                shutil.rmtree(self._batch(self._root(), batch))

    def compact(self) -> None:
        """Merge many batches into one; call it only after the last batch was committed."""
        last = self.last()
        if last is None or len(self._ids()) < MANY:
            return
        old = self._root()
        new = self._folder / str(int(old.name) + 1)
        self._write(self.everything(), self._batch(new, last))
        pointer = self._folder / f".{_CURRENT}.new"
        pointer.write_text(new.name)
        pointer.replace(self._folder / _CURRENT)
        shutil.rmtree(old)

    def _write(self, rows: DataFrame, path: Path) -> None:
        if self._dated:
            ingest.by_date(rows).write.mode("overwrite").partitionBy("date").parquet(str(path))
        else:
            rows.coalesce(1).write.mode("overwrite").parquet(str(path))

    def _read(self) -> DataFrame:
        root = self._root()
        if not any(root.rglob("*.parquet")):
            return self._nothing()
        stored = self._spark.read.schema(former.with_former(self._schema)).parquet(str(root))
        return former.current(stored).select(*self._schema.names)

    def _nothing(self) -> DataFrame:
        """Return no rows; ``createDataFrame`` would send them through a Python process."""
        columns = [sf.lit(None).cast(field.dataType).alias(field.name) for field in self._schema.fields]
        return self._spark.range(0).select(*columns)

    def _ids(self) -> list[int]:
        return [int(path.name.removeprefix("batch=")) for path in self._root().glob("batch=*")]

    def _batch(self, root: Path, batch: int) -> Path:
        return root / f"batch={batch}"

    def _root(self) -> Path:
        pointer = self._folder / _CURRENT
        root = self._folder / (pointer.read_text() if pointer.exists() else "0")
        root.mkdir(exist_ok=True)
        return root

    def _drop_leftovers(self) -> None:
        """Remove the remains of a compaction that was killed."""
        current = self._root().name
        for path in self._folder.iterdir():
            if path.is_dir() and path.name != current:
                shutil.rmtree(path)
