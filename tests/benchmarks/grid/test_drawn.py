"""Cells drawn at random: their ranges, their ratios, and the command that compares policies in them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.grid.__main__ import main
from benchmarks.grid.bars import Outcome
from benchmarks.grid.drawn import FIGURES, POLICIES, RANGES, drawn_cells, quantiles, ratios
from tests.benchmarks.grid import kolmogorov

SAMPLES = 2000


@given(st.integers())
def test_every_cell_is_in_the_ranges(seed: int) -> None:
    for cell in drawn_cells(20, seed):
        scenario = cell.scenario(cell.seeds[0])
        assert all(low <= getattr(scenario, name) <= high for name, (low, high) in RANGES.items())
        assert not scenario.retry_after
        together = len(cell.seeds) * scenario.clients
        assert together >= 100
        assert together < 400 or len(cell.seeds) == 1


@pytest.mark.parametrize("name", ["setup_rate", "outage", "round_trip"])
def test_a_number_is_drawn_log_uniform(name: str) -> None:
    low, high = RANGES[name]
    sample = [math.log(getattr(cell.first, name)) for cell in drawn_cells(SAMPLES, 1)]
    even = kolmogorov.uniform(math.log(low), math.log(high))
    assert kolmogorov.distance(sample, even) < kolmogorov.limit(SAMPLES)


@pytest.mark.parametrize(
    ("name", "values"),
    [("when_full", {"reset", "silent"}), ("members", {1, 3}), ("dead_host", {False, True})],
)
def test_alternatives_have_even_chances(name: str, values: set[object]) -> None:
    drawn = [getattr(cell.first, name) for cell in drawn_cells(SAMPLES, 1)]
    assert set(drawn) == values
    # 3.3 standard deviations
    assert drawn.count(min(values, key=repr)) == pytest.approx(SAMPLES / 2, abs=3.3 * math.sqrt(SAMPLES) / 2)


def test_a_larger_count_begins_with_the_same_cells() -> None:
    assert drawn_cells(9, 1)[:5] == drawn_cells(5, 1)
    assert drawn_cells(5, 2) != drawn_cells(5, 1)


def outcome(last: float) -> Outcome:
    return Outcome(last=last, p50=1.0, attempts=1.0, before=2.0, most_syns=1, smallest_gap=1.0)


def test_ratios_are_to_the_best_of_each_cell() -> None:
    found = [
        {"a": outcome(2.0), "b": outcome(3.0)},
        {"a": outcome(5.0), "b": outcome(1.0)},
        {"a": outcome(4.0), "b": outcome(math.inf)},
        {"a": outcome(math.inf), "b": outcome(math.inf)},
    ]
    assert ratios(found, FIGURES["last client"]) == {
        "a": [1.0, 5.0, 1.0, math.inf],
        "b": [1.5, 1.0, math.inf, math.inf],
    }
    assert ratios(found[:1], FIGURES["attempts, outage included"]) == {"a": [1.0], "b": [1.0]}


@given(st.lists(st.floats(min_value=1), min_size=1))
def test_quantiles_are_those_of_numpy(values: list[float]) -> None:
    expected = np.quantile(values, [0.1, 0.5, 0.9, 1.0], method="inverted_cdf")
    assert list(quantiles(values).values()) == list(expected)


# -- the command -----------------------------------------------------------------------------------------

TINY = ["--seed", "3", "--cells", "30", "--client-seconds", "150", "--jobs", "1"]


def command(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["drawn", *arguments])


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drawn") / "cache.jsonl"


def figure(name: str, found: dict[str, Any]) -> float:
    match name:
        case "last client":
            return float(found["last"])
        case "median client":
            return float(found["p50"])
        case "attempts after the return":
            return float(found["attempts"])
        case _:
            return float(found["before"] + found["attempts"])


def test_the_tables_are_the_quantiles_of_the_figures_in_the_file(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "a.json"
    done = command(*TINY, "--cache", str(cache), "--json", str(path))
    assert done.exit_code == 0, done.output
    found = json.loads(path.read_text())
    cells = [cell["policies"] for cell in found["cells"]]
    assert 2 <= len(cells) < 30
    said = f"{len(cells)} of 30 cells drawn with seed 3; {30 - len(cells)} left out, of more than 150 client-"
    assert said in done.stdout
    assert found["drawn"].startswith(said)
    lines = iter(done.stdout.splitlines())
    for name in FIGURES:
        assert next(lines) == f"{name}: ratio to the best of each cell"
        assert next(lines).split() == ["policy", "0.1", "0.5", "0.9", "worst"]
        for policy in POLICIES:
            row = next(lines)
            values = [
                figure(name, of_cell[policy]) / min(figure(name, each) for each in of_cell.values())
                for of_cell in cells
            ]
            expected = np.quantile(values, [0.1, 0.5, 0.9, 1.0], method="inverted_cdf")
            assert row.startswith(policy)
            shown = [float(word) for word in row.removeprefix(policy).split()]
            assert shown == pytest.approx(list(expected), rel=0.01)


def test_a_seed_gives_the_same_figures_again(cache: Path) -> None:
    first = command(*TINY, "--cache", str(cache), "--json", "-")
    assert first.exit_code == 0, first.output
    assert command(*TINY, "--json", "-").stdout == first.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("name", "begin"), [("a.png", b"\x89PNG"), ("a.svg", b"<svg")])
def test_a_picture_is_written(tmp_path: Path, cache: Path, name: str, begin: bytes) -> None:
    done = command(*TINY, "--cache", str(cache), "--plot", str(tmp_path / name))
    assert done.exit_code == 0, done.output
    assert (tmp_path / name).read_bytes().startswith(begin)


@pytest.mark.parametrize(
    "wrong",
    [[], ["--seed", "x"], ["--seed", "1", "--cells", "0"], ["--seed", "1", "--client-seconds", "0"]],
    ids=" ".join,
)
def test_wrong_usage_is_2(wrong: list[str]) -> None:
    done = command(*wrong)
    assert done.exit_code == 2, done.output
