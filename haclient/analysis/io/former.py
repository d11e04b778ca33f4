"""Read rows stored under former names of columns and types, as today's.

Rules
-----
* Only reading knows former names: all output, and every table, has today's.
* A frame without a former column is unchanged: its types are today's too, because both changed at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructField, StructType

from haclient.telemetry.schema import FORMER_COLUMNS, FORMER_KINDS

COLUMNS: Mapping[str, str] = {**FORMER_COLUMNS, "error": "why"}
"""Today's columns of events and of the quarantine, with their former names."""


def with_former(schema: StructType) -> StructType:
    """Add the former names of the schema's columns, for files that may hold either."""
    former = [
        StructField(COLUMNS[field.name], field.dataType) for field in schema.fields if field.name in COLUMNS
    ]
    return StructType([*schema.fields, *former])


def current(rows: DataFrame) -> DataFrame:
    """Rename former columns; a row may have its value under either name."""
    present = {name: former for name, former in COLUMNS.items() if former in rows.columns}
    for name, former in present.items():
        value = sf.coalesce(name, former) if name in rows.columns else sf.col(former)
        rows = rows.withColumn(name, value).drop(former)
    if present and "type" in rows.columns:
        return rows.withColumn("type", current_kind(sf.col("type")))
    return rows


def current_kind(kind: Column) -> Column:
    """Translate a former name of a type to today's."""
    for former, today in FORMER_KINDS.items():
        kind = sf.when(kind == former, today.value).otherwise(kind)
    return kind
