"""The matrix end to end with the broker pair, and the selection by its options."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.brokers import clusters, matrix, results
from tests.brokers.cells import Cell
from tests.brokers.topology import Fault

pytestmark = pytest.mark.slow

_CELL = "pair asyncio kill"


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(matrix.main, arguments)
    return result.exit_code, result.output


def test_a_cell_with_the_pair_holds_and_is_left_out_of_a_run_that_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    code, output = invoke("--only", _CELL, "--kills", "1", "--seed", "7", "--results", str(path))
    assert code == 0, output
    (row,) = results.read(path)
    assert (row.cell, row.times, row.missing, row.doubled) == (("pair", "asyncio", "kill"), 1, 0, 0)
    assert row.settled > 0
    assert len(row.outages) == len(row.shares) == 2, "one for each producer"
    assert len(row.next_dials) == len(row.handshakes) == 3, "one for each program"
    assert "0 cells" in invoke("--only", _CELL, "--resume", "--results", str(path))[1]


def test_clusters_that_are_not_installed_are_skipped_with_the_reason_and_a_run_of_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "missing", lambda name: f"{name} is not installed")
    code, output = invoke("--short", "--results", str(tmp_path / "results.jsonl"))
    assert code == 1
    assert output.count("    skipped: artemis-locked is not installed") == 1
    assert "skipped: broker-j: broker-j is not installed" in output


def test_words_that_choose_no_cell_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    code, output = invoke("--only", _CELL, "--only", "pair kil", "--results", str(path))
    assert code == 2
    assert "has all these words: pair kil" in output
    assert not path.exists()


def test_words_choose_cells() -> None:
    cells = [
        Cell("pair", "cli", Fault.KILL),
        Cell("pair", "asyncio", Fault.KILL),
        Cell("rabbitmq", "cli", Fault.STOP),
    ]
    assert matrix.selected(cells, []) == cells
    assert matrix.selected(cells, ["kill pair"]) == cells[:2]
    assert matrix.selected(cells, ["asyncio", "stop"]) == cells[1:]
