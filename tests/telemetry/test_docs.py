"""The documentation's page agrees with the code."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from haclient.telemetry import TelemetrySettings
from haclient.telemetry.contract.check import schemas
from haclient.telemetry.jsonl import _NAMES
from haclient.telemetry.schema import (
    DATA,
    KEYS,
    RESOURCE,
    Kind,
    ddl,
    markdown_table,
)
from scripts.generate.tables import attributes_table, keys_table, values_table

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "telemetry.md").read_text()


def test_the_table_of_keys_is_the_schema() -> None:
    """``python -m scripts.generate`` writes it."""
    assert f"<!-- keys -->\n{markdown_table()}<!-- /keys -->" in PAGE
    assert f"<!-- attributes -->\n{attributes_table()}<!-- /attributes -->" in PAGE


def test_the_tables_of_the_contract_are_those_of_the_schemas() -> None:
    """The page is also read back: required keys and allowed values equal the files'."""
    assert f"<!-- contract -->\n{keys_table()}<!-- /contract -->" in PAGE
    assert f"<!-- values -->\n{values_table()}<!-- /values -->" in PAGE
    rows = [row.split("|")[1:-1] for row in keys_table().splitlines()[2:]]
    common = {name.strip(" *"): _names(keys) for name, keys, _ in rows if name.strip().endswith(" keys*")}
    shared = {key.name for key in RESOURCE}
    for name, required, optional in rows[: len(Kind)]:
        data = schemas()[name.strip(" `")]["properties"]["data"]
        of_all = next((keys for whose, keys in common.items() if whose in required), set())
        assert _names(required) | of_all == set(data["required"]), name
        assert _names(optional) | shared == {*data["properties"]} - {*data["required"]} | shared, name


def _names(cell: str) -> set[str]:
    return set(re.findall("`([^`]+)`", cell))


def test_every_type_and_every_setting_has_its_row() -> None:
    types = PAGE.partition("\n## Types\n")[2].partition("\n## ")[0]
    assert re.findall("^[|] `(haclient[^`]+)`", types, re.MULTILINE) == list(Kind)
    for each in fields(TelemetrySettings):
        assert each.name == "directory" or f"| `{each.name}` |" in PAGE


def test_keys_and_columns_are_distinct() -> None:
    assert len({key.column for key in KEYS}) == len(KEYS) == len({key.name for key in KEYS})


def test_the_writer_and_the_readers_have_the_keys_of_the_schema() -> None:
    assert {key.column: f'"{key.name}":' for key in DATA} == _NAMES
    for key in DATA:
        assert f"`{key.name}`: {key.type}" in ddl()
