"""The contract as JSON Schema, draft 2020-12: a document for each type, and one for readers.

``python -m scripts.generate`` writes the files of ``haclient/telemetry/contract/schemas/``.

A reader accepts more than a writer may write: any value for a text key, and only indispensable keys are
required.  ``line.json`` describes that.  No schema checks whether a time is plausible: that depends on the
day.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from haclient.telemetry import contract
from haclient.telemetry.schema import DATA, DATASCHEMA, ENVELOPE, FORMER_KEYS, VERSION, Key, Type
from scripts.generate.event_types import COLUMNS, EVENT_TYPES, REQUIRED_ENVELOPE, EventType

FOLDER = Path(contract.__file__).parent / "schemas"
READERS = "line"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$"
ONE_VERSION = f"^(?!{DATASCHEMA.rpartition(':')[0]}:(?!{VERSION}$))"
"""Does not match another version of this format."""

Schema = dict[str, Any]

_JSON_TYPES = {
    Type.STRING: "string",
    Type.LONG: "integer",
    Type.DOUBLE: "number",
    Type.BOOLEAN: "boolean",
}
_LARGEST = 2**63 - 1
_FROM_ONE = frozenset({"connection", "sequence", "outage", "dropped", "site_count"})
_ANY_SIGN = frozenset({"monotonic", "generation"})
_PORTS = frozenset({"server_port", "redirect_port"})


def documents() -> dict[str, Schema]:
    """Return every schema by the name of its file."""
    return {READERS: readers_schema(), **{str(each.kind): type_schema(each) for each in EVENT_TYPES}}


def write(folder: Path = FOLDER) -> None:
    """Write the files."""
    folder.mkdir(exist_ok=True)
    for name, document in documents().items():
        (folder / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def type_schema(event: EventType) -> Schema:
    """Return the schema of a type's lines."""
    envelope: dict[str, Schema] = {
        "specversion": {"const": "1.0"},
        "id": {"type": "string", "minLength": 1},
        "source": {"type": "string", "pattern": "^/[^/]+/."},
        "type": {"const": str(event.kind)},
        "time": {"type": "string", "pattern": TIME, "format": "date-time"},
        "subject": {"type": "string"},
        "dataschema": {"const": DATASCHEMA},
    }
    columns = (*event.required, *event.optional)
    keys = [key for key in DATA if key.column in columns]
    data = {
        "type": "object",
        "required": [COLUMNS[column].name for column in event.required],
        "properties": {key.name: _value(key, event.values) for key in keys},
    }
    described = {
        key.name: {**envelope[key.name], "description": key.meaning}
        for key in ENVELOPE
        if event.subject or key.name != "subject"
    }
    return {
        "$schema": DRAFT,
        "$id": f"{DATASCHEMA}:{event.kind}",
        "type": "object",
        "required": [*REQUIRED_ENVELOPE, *(("subject",) if event.subject else ()), "data"],
        "properties": {**described, "data": data},
    }


def readers_schema() -> Schema:
    """Return the schema of all lines that readers accept, of any type."""
    names = {key.name: key for key in DATA} | {
        former: next(key for key in DATA if key.name == name) for name, former in FORMER_KEYS.items()
    }
    present: Schema = {"not": {"type": "null"}}
    data = {
        "type": ["object", "null"],
        "properties": {name: _readable(key) for name, key in names.items() if key.type is not Type.STRING},
    }
    return {
        "$schema": DRAFT,
        "$id": f"{DATASCHEMA}:{READERS}",
        "type": "object",
        "required": ["id", "type", "time"],
        "properties": {
            "id": present,
            "type": present,
            "time": {"type": "string", "format": "date-time"},
            "dataschema": {"pattern": ONE_VERSION},
            "data": data,
        },
    }


def _value(key: Key, values: Mapping[str, tuple[str, ...]]) -> Schema:
    schema: Schema = {"type": _JSON_TYPES[key.type], **_bounds(key)}
    if key.column in values:
        schema["enum"] = list(values[key.column])
    return {**schema, "description": f"{key.meaning}; {key.unit}" if key.unit else key.meaning}


def _readable(key: Key) -> Schema:
    whole = {"minimum": -_LARGEST - 1, "maximum": _LARGEST} if key.type is Type.LONG else {}
    return {"type": [_JSON_TYPES[key.type], "null"], **whole}


def _bounds(key: Key) -> Schema:
    if key.type not in {Type.LONG, Type.DOUBLE}:
        return {}
    largest = 65535 if key.column in _PORTS else _LARGEST
    upper = {"maximum": largest} if key.type is Type.LONG else {}
    if key.column in _ANY_SIGN:
        return {"minimum": -_LARGEST - 1, **upper} if key.type is Type.LONG else {}
    return {"minimum": 1 if key.column in _FROM_ONE else 0, **upper}
