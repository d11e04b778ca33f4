"""Short stories of one or two clients, each in its own cluster, so that one set of tables has them all.

A query takes Spark as long for five lines as for a thousand: tables of each story would take a minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from haclient.analysis.tables.build import NAMES, Options, each
from haclient.telemetry.schema import KEYS, Kind

START = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)
SCHEMA = ", ".join(f"{key.column} {key.type.value}" for key in KEYS)

Line = tuple[Kind, float, Mapping[str, Any]]
"""A kind, seconds from the start, and the relevant facts."""

Row = tuple[Any, ...]


class Stories:
    """The stories of a module."""

    def __init__(self) -> None:
        self._rows: list[Row] = []

    def tell(self, name: str, lines: Iterable[Line], **everywhere: Any) -> str:
        """Keep a story; return its name, which is its cluster's.

        :param everywhere: facts of all its lines.
        """
        self._rows += rows(name, lines, **{"cluster": name, **everywhere})
        return name

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the lines of all stories."""
        return framed(spark, self._rows)


def rows(name: str, lines: Iterable[Line], **everywhere: Any) -> list[Row]:
    """Return lines of the schema; no client is in two stories."""
    made = []
    for number, (kind, at, facts) in enumerate(lines, start=1):
        fixed = {
            "event_id": f"{name}-{number}",
            "type": kind.value,
            "time": START + timedelta(seconds=at),
            "client_id": "client",
            "instance": "one",
            "connection": 1,
            "outage": 2,
            "sequence": number,
            "monotonic": 1000.0 + at,
        }
        known = fixed | everywhere | facts
        known.setdefault("source", f"/haclient/{known['instance']}")
        known["client_id"] = f"{known['client_id']} of {name}"
        made.append(tuple(known.get(key.column) for key in KEYS))
    return made


def framed(spark: SparkSession, lines: list[Row]) -> DataFrame:
    """Return lines as the ingest makes them; each line is written when it happens."""
    return spark.createDataFrame(lines, SCHEMA).withColumns({"date": sf.to_date("time"), "t": sf.col("time")})


def all_tables(events: DataFrame, options: Options | None = None) -> dict[str, DataFrame]:
    """Return every table by its name."""
    return dict(zip(NAMES, each(events, options or Options()), strict=True))
