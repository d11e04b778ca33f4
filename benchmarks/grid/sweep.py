"""Run a scenario for every combination of some parameters, in this process or with Spark.

A point is a plain dictionary: fields of ``Scenario``, fields of ``Policy``, and ``client``, the name of a
strategy or a preset.  Points and rows of figures are sent as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import product
from typing import TYPE_CHECKING, Any

from benchmarks.grid import cases
from benchmarks.grid.presets import PRESETS
from haclient.retry.policy import Policy
from haclient.simulation.scenario import Scenario

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

Point = Mapping[str, Any]

_SCENARIO = {field.name for field in fields(Scenario)}
_POLICY = {field.name for field in fields(Policy)}
PARAMETERS = frozenset(_SCENARIO | _POLICY | {"client"}) - {"backoff_strategy"}
"""Parameters that can be varied."""


def points(base: Point, axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the base with every combination of the axes' values; the last axis varies fastest.

    :raises ValueError: if a parameter is unknown.
    """
    unknown = sorted({*base, *axes} - PARAMETERS)
    if unknown:
        raise ValueError(
            f"unknown parameters: {', '.join(unknown)}; there are {', '.join(sorted(PARAMETERS))}"
        )
    return [{**base, **dict(zip(axes, values, strict=True))} for values in product(*axes.values())]


def case(point: Point) -> cases.Case:
    """Return the case of a point."""
    scenario = Scenario(**{name: value for name, value in point.items() if name in _SCENARIO})
    policy = Policy(**{name: value for name, value in point.items() if name in _POLICY})
    name = point.get("client", Policy().backoff_strategy)
    return cases.preset(name, scenario) if name in PRESETS else cases.strategy(name, scenario, policy)


def figures(point: Point) -> dict[str, Any]:
    """Return the parameters and the figures of one point."""
    return {**point, **case(point).run().figures()}


def run(every: Iterable[Point]) -> Iterator[dict[str, Any]]:
    """Return the figures of each point, computed one after another in this process."""
    return (figures(point) for point in every)


def run_on_spark(session: SparkSession, every: Sequence[Point]) -> list[dict[str, Any]]:
    """Return the figures of each point, in order, computed by Spark with one task for each point."""
    rows = [(place, json.dumps(dict(point))) for place, point in enumerate(every)]
    frame = session.createDataFrame(rows, "place long, point string").repartitionByRange(len(rows), "place")
    done = frame.mapInArrow(_by_json, "place long, figures string").collect()
    return [json.loads(row["figures"]) for row in sorted(done, key=lambda row: row["place"])]


def _by_json(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow  # noqa: PLC0415  # the extra may be missing

    for batch in batches:
        results = [json.dumps(figures(json.loads(point.as_py()))) for point in batch["point"]]
        yield pyarrow.record_batch({"place": batch["place"], "figures": pyarrow.array(results)})
