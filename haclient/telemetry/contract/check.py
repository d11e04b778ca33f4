"""Validates lines against the schemas of the package.

Rules
-----
1. First check that a reader can use the line (``line.json``, and a plausible time).  If not, the reason is
   the one of the analysis' quarantine.
2. Then check the schema of its type.  Readers accept a line that violates it, but its writer broke the
   contract.  A line of an unknown type has no schema, and is valid.
3. ``violation`` supports only the keywords that our schemas use, so no package has to be installed.

Source: JSON Schema 2020-12, validation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from typing import Any

from haclient.telemetry.rfc3339 import exact_moment
from haclient.telemetry.schema import Reason

READERS = "line"
_OLDEST = datetime(2000, 1, 1, tzinfo=UTC)
_AHEAD = timedelta(days=1)

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one line.

    :param reason: ``None`` for a valid line.
    :param detail: where it is wrong; empty if the reason is enough.
    :param unknown_type: the type, if this release does not know it.
    """

    reason: Reason | None = None
    detail: str = ""
    unknown_type: str | None = None


@cache
def schemas() -> Mapping[str, Schema]:
    """Return the schemas by type, and the readers' schema."""
    folder = resources.files("haclient.telemetry.contract") / "schemas"
    files = (file for file in folder.iterdir() if file.name.endswith(".json"))
    return {file.name.removesuffix(".json"): json.loads(file.read_text("utf-8")) for file in files}


def check(text: str, now: datetime) -> Verdict:
    """Validate a line.

    :param now: when it is read, with a time zone: a time more than a day later is implausible.
    """
    try:
        line = json.loads(text, parse_constant=_refuse, parse_float=_number)
    except (ValueError, RecursionError):
        return Verdict(Reason.NOT_JSON)
    if not isinstance(line, dict):
        return Verdict(Reason.NOT_JSON, "no object")
    broken = violation(line, schemas()[READERS])
    if broken:
        return Verdict(_reason(line, broken), broken)
    if not is_plausible(line["time"], now):
        return Verdict(Reason.IMPLAUSIBLE, f"time: {line['time'][:40]}")
    known = schemas().get(str(line["type"]))
    if known is None:
        return Verdict(unknown_type=str(line["type"])[:100])
    broken = violation(line, known)
    return Verdict(Reason.VIOLATION, broken) if broken else Verdict()


def _refuse(constant: str) -> None:
    raise ValueError(constant)


class _Scientific(float):
    """A number with an exponent; not an integer here, because Spark reads no integer written like that."""


def _number(text: str) -> float:
    return _Scientific(text) if "e" in text or "E" in text else float(text)


def _reason(line: Mapping[str, Any], broken: str) -> Reason:
    if broken.startswith("dataschema:"):
        return Reason.OTHER_VERSION
    if not broken.startswith(("id:", "type:", "time:")):
        return Reason.OTHER_TYPE
    return Reason.NO_ID if line.get("id") is None or line.get("type") is None else Reason.NO_TIME


def violation(value: object, schema: Schema, path: str = "") -> str:
    """Return the first violation of the schema by ``value``; empty if there is none."""
    return next(_violations(value, schema, path), "")


def _violations(value: object, schema: Schema, path: str) -> Iterator[str]:
    where = path or "line"
    types = schema.get("type", ())
    kinds = (types,) if isinstance(types, str) else types
    if kinds and not any(_is(value, kind) for kind in kinds):
        yield f"{where}: not of type {' or '.join(kinds)}"
        return
    if "not" in schema and not violation(value, schema["not"]):
        yield f"{where}: is null"
    if "const" in schema and value != schema["const"]:
        yield f"{where}: not {schema['const']}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: not one of {', '.join(schema['enum'])}"
    match value:
        case str():
            yield from _violations_of_text(value, schema, where)
        case dict():
            yield from _violations_of_object(value, schema, path)
        case int() | float() if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            yield f"{where}: out of range"


def _violations_of_object(value: Mapping[str, Any], schema: Schema, path: str) -> Iterator[str]:
    inner = f"{path}." if path else ""
    yield from (f"{inner}{name}: missing" for name in schema.get("required", ()) if name not in value)
    for name, each in schema.get("properties", {}).items():
        if name in value:
            yield from _violations(value[name], each, f"{inner}{name}")


def _violations_of_text(value: str, schema: Schema, where: str) -> Iterator[str]:
    if len(value) < schema.get("minLength", 0):
        yield f"{where}: too short"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{where}: not like {schema['pattern']}"
    if schema.get("format") == "date-time" and exact_moment(value) is None:
        yield f"{where}: not a time of RFC 3339"


def _is(value: object, kind: str) -> bool:
    match kind:
        case "integer":
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return whole and not isinstance(value, bool | _Scientific)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case _:
            return isinstance(value, _PYTHON[kind])


_PYTHON: Mapping[str, type] = {
    "string": str,
    "boolean": bool,
    "object": dict,
    "null": type(None),
    "array": list,
}


def is_plausible(text: str, now: datetime) -> bool:
    """Return whether the time is later than 1999 and not later than a day from now."""
    moment = exact_moment(text)
    return moment is not None and _OLDEST <= moment <= now + _AHEAD
