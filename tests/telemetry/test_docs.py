"""The documentation's page is the code's."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from haclient.telemetry import TelemetrySettings
from haclient.telemetry.jsonl import _NAMES
from haclient.telemetry.schema import DATA, KEYS, Kind, attributes_table, ddl, markdown_table

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "telemetry.md").read_text()


def test_the_table_of_keys_is_the_schema() -> None:
    """``scripts/readme_tables.py`` writes it anew."""
    assert f"<!-- keys -->\n{markdown_table()}<!-- /keys -->" in PAGE
    assert f"<!-- attributes -->\n{attributes_table()}<!-- /attributes -->" in PAGE


def test_every_type_and_every_setting_has_its_row() -> None:
    for kind in Kind:
        assert f"| `{kind}` |" in PAGE
    for each in fields(TelemetrySettings):
        assert each.name == "directory" or f"| `{each.name}` |" in PAGE


def test_keys_and_columns_are_distinct() -> None:
    assert len({key.column for key in KEYS}) == len(KEYS) == len({key.name for key in KEYS})


def test_the_writer_and_the_readers_have_the_keys_of_the_schema() -> None:
    assert {key.column: f'"{key.name}":' for key in DATA} == _NAMES
    for key in DATA:
        assert f"`{key.name}`: {key.type}" in ddl()
