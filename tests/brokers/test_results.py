from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.brokers import results
from tests.brokers.results import Row


def row(**facts: Any) -> Row:
    given = {"cluster": "pair", "program": "cli", "fault": "kill", "times": 2, "settled": 1000, **facts}
    return Row(commit="c0ffee", seed=7, date="2026-01-01T00:00:00+00:00", **given)


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "results.jsonl"
    written = [row(outages=[1.0], errors={"SendTimeout": 2}), row(broken="no primary"), row(skipped="no JVM")]
    for each in written:
        results.append(path, each)
    assert results.read(path) == written
    assert [each.holds for each in written] == [True, False, False]


def test_a_file_that_is_not_there_has_no_rows(tmp_path: Path) -> None:
    assert results.read(tmp_path / "results.jsonl") == []


def test_rows_of_a_cell_add_up() -> None:
    table = results.cells_table(
        [
            row(
                outages=[1.0, 2.0],
                shares=[0.5, 0.25],
                next_dials=[0.125, 0.0],
                most_dials=2,
                smallest_gap=0.5,
                errors={"SendTimeout": 1},
            ),
            row(
                outages=[9.0],
                shares=[0.75],
                next_dials=[0.25],
                handshakes=[1.0],
                most_dials=1,
                errors={"SendTimeout": 2},
                redelivered=3,
            ),
            row(program="asyncio", missing=1, wrong=["missing: 1"]),
        ]
    )
    _header, cli, asyncio = [line.split("  ") for line in table.splitlines()]
    assert [text.strip() for text in cli if text.strip()] == [
        *("pair", "cli", "kill", "4", "2,000", "0", "0", "0", "3"),
        *("2.00 / 9.00 s", "0.50 / 0.75 s", "0.12 / 0.25 s", "1.00 / 1.00 s", "2", "0.50 s"),
        *("3 SendTimeout", "yes"),
    ]
    assert "1 of 1 not" in asyncio[-1]


def test_programs_on_haclient_of_a_cluster_and_fault_add_up() -> None:
    table = results.sums_table(
        [row(), row(program="asyncio"), row(fault="stop"), row(skipped="no JVM"), row(program="qpid-jms")]
    )
    assert [line.split()[:4] for line in table.splitlines()[1:]] == [
        ["pair", "kill", "4", "2,000"],
        ["pair", "stop", "2", "1,000"],
    ]
