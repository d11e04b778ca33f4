"""The vectors of the contract, and mutated lines derived from them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from haclient.telemetry import contract
from haclient.telemetry.contract.check import Verdict
from haclient.telemetry.schema import KEYS, Reason

VECTORS = Path(contract.__file__).with_name("vectors.jsonl")
# No exponents in whole numbers: JSON Schema cannot tell them from others, and Spark does not read them.
_NUMBERS = st.one_of(
    st.integers(-(2**64), 2**64),
    st.integers(-2, 70_000),
    st.floats(-1e6, 1e6).map(lambda value: round(value, 3)),
    st.integers(-5, 5).map(float),
)
_TIMES = st.sampled_from(
    [
        "2026-11-21T02:00:00.5Z",
        "2026-11-21t02:00:00z",
        "2026-11-21 02:00:00-05:30",
        "2026-11-21T02:00:60Z",
        "2026-11-21T02:60:00Z",
        "2026-11-21T02:00:00+18:30",
        "2026-11-31T02:00:00Z",
        "1999-12-31T23:59:59Z",
        "2026",
        "T08:00:00",
        "",
    ]
)
_VALUES = st.one_of(
    st.none(), st.booleans(), _NUMBERS, _TIMES, st.text(max_size=5), st.just({}), st.just([1])
)
_NAMES = st.sampled_from([*(key.name for key in KEYS), "data", "haclient.hint", "later"])


def is_quarantined(verdict: Verdict) -> bool:
    """Return whether the analysis takes neither the line nor its time."""
    return verdict.reason not in {None, Reason.VIOLATION, Reason.TOO_LONG}


@cache
def vectors() -> tuple[dict[str, Any], ...]:
    """Return ``name``, ``line`` (text), ``reason`` (null for a valid line) and ``detail``."""
    return tuple(map(json.loads, VECTORS.read_text().splitlines()))


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Draw a valid line with some keys changed, left out or added; or cut, or with a suffix."""
    line = json.loads(draw(st.sampled_from([each["line"] for each in vectors() if each["reason"] is None])))
    for _ in range(draw(st.integers(0, 3))):
        name = draw(_NAMES)
        where = line if name in line or name in {"data", "id"} else line.get("data")
        if not isinstance(where, dict):
            continue
        if draw(st.booleans()):
            where.pop(name, None)
        else:
            where[name] = draw(_VALUES)
    text = json.dumps(line, separators=(",", ":"))
    match draw(st.integers(0, 9)):
        case 0:
            return text[: draw(st.integers(1, len(text) - 1))]
        case 1:
            return text + draw(st.sampled_from([text, " x", "]", " ", "\t"]))
        case _:
            return text
