"""Provide a query for each figure of the report, for DuckDB in the folder of the results (``queries.sql``).

The queries compute the figure from the stored tables independently.  They confirm the report's numbers,
and are a starting point for further analysis.  Times are in UTC.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from importlib.resources import files
from string import Template

_WHERE = "-- for DuckDB, in the folder that has this report"
_PATH = re.compile(r"'([^']*(?:\.parquet|summary\.json))'")
_BLOCK = re.compile(r"^-- (part|query): (\w+)\n", re.MULTILINE)


def queries(*, width: int = 60, slo: float = 0.999, baseline: str = "FORMER") -> dict[str, str]:
    """Return the queries by the names of their figures.

    :param width: width of the timeline's columns, in seconds.
    :param slo: share of the time that connections should be usable.
    :param baseline: folder of a former run.
    """
    parts, texts = _texts()
    texts = {name: f"{_WHERE}\n{text}" for name, text in texts.items()}
    former = baseline.rstrip("/").replace("'", "''")
    values = {"width": width, "slo": f"{slo:g}", "baseline": former, **parts}
    return {name: Template(text).substitute(values) for name, text in texts.items()}


def sources(query: str) -> list[str]:
    """Return the tables and files that a query reads, relative to the folder of the results."""
    paths = (path.removesuffix("/*.parquet") for path in _PATH.findall(query))
    return list(dict.fromkeys(paths))


@functools.cache
def _texts() -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the common beginnings of queries, and the queries, both with placeholders."""
    text = files(__package__).joinpath("queries.sql").read_text(encoding="utf-8")
    blocks = _BLOCK.split(text)[1:]
    found: dict[str, dict[str, str]] = {"part": {}, "query": {}}
    for kind, name, body in zip(blocks[::3], blocks[1::3], blocks[2::3], strict=True):
        found[kind][name] = body.strip()
    return found["part"], found["query"]
