"""``python -m benchmarks.grid``: one storm for all clients, and its variations; ``test_run`` has the grid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.grid.__main__ import main
from haclient.simulation import plot

SMALL = ["--set", "clients=100", "--set", "setup_rate=100", "--set", "outage=0.5"]


def command(name: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, [name, *SMALL, *arguments])


def test_without_a_choice_everything_is_compared() -> None:
    done = command("compare", "--json", "-")
    assert done.exit_code == 0
    names = [row["name"] for row in json.loads(done.stdout)]
    assert names[0] == "adaptive, retry-after"
    assert {
        "adaptive",
        "full",
        "proton",
        "rhea",
        "kafka",
    } <= set(names)


def test_a_chosen_strategy_meets_both_brokers_a_preset_an_ordinary_one() -> None:
    done = command("compare", "--strategy", "full", "--preset", "nats")
    assert done.exit_code == 0
    names = [line.split("  ")[0] for line in done.stdout.splitlines()]
    assert names[-3:] == ["full, retry-after", "full", "nats"]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (["retry_after=true"], "adaptive, retry-after"),
        (["retry_after=false"], "adaptive"),
        (["fleet_known=true"], "adaptive, fleet known"),
        (["parking=true", "members=2"], "adaptive, parked"),
    ],
)
def test_a_broker_can_be_chosen(given: list[str], name: str) -> None:
    done = command("compare", *(word for each in given for word in ("--set", each)), "--json", "-")
    assert [row["name"] for row in json.loads(done.stdout)] == [name]


@pytest.mark.parametrize(("given", "last"), [([], 0.357), (["--set", "setup_rate=50"], 2.0)])
def test_a_broker_that_was_measured_can_be_chosen_and_changed(given: list[str], last: float) -> None:
    """100 clients at the measured 280 a second, unless another rate is given."""
    storm = ["--set", "clients=100", "--set", "outage=0", "--set", "detection=0"]
    arguments = ["--broker", "artemis", "--preset", "mongodb", "--json", "-"]
    done = CliRunner().invoke(main, ["compare", *storm, *arguments, *given])
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)
    assert row["last"] == pytest.approx(last, abs=0.01)


@pytest.mark.slow
def test_files_are_written(tmp_path: Path) -> None:
    png, html, figures = tmp_path / "a.png", tmp_path / "a.html", tmp_path / "a.json"
    files = ["--plot", str(png), "--html", str(html), "--json", str(figures)]
    done = command("compare", "--preset", "kafka", *files)
    assert done.exit_code == 0
    assert png.stat().st_size
    assert html.stat().st_size
    assert json.loads(figures.read_text())[0]["not_back"] == 0


def test_a_sweep_gives_a_row_for_each_combination() -> None:
    done = command("sweep", "backlog=1,100", "client=full,proton", "--json", "-")
    rows = json.loads(done.stdout)
    assert [(row["backlog"], row["client"]) for row in rows] == [
        (1, "full"),
        (1, "proton"),
        (100, "full"),
        (100, "proton"),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        ["sweep"],
        ["sweep", "rate=1"],
        ["sweep", "backlog"],
        ["sweep", "client=nobody"],
        ["sweep", "backlog=-1"],
        ["sweep", "backlog=many"],
        ["sweep", "backlog=1", "--master", "local[1]"],
        ["sweep", "backlog=1", "--plot", "a.png"],
        ["compare", "--set", "redirecting=1"],
        ["compare", "--set", "parking=true", "--set", "retry_after=false"],
        ["compare", "--set", "setup_rate=0"],
        ["compare", "--preset", "nobody"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_2(wrong: list[str]) -> None:
    done = command(*wrong)
    assert done.exit_code == 2, done.output


@pytest.mark.parametrize("name", ["compare", "judge"])
def test_a_plot_without_the_extra_is_3_and_is_said_before_the_storm(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plot, "find_spec", lambda _: None)
    done = CliRunner().invoke(main, [name, "--plot", "a.png"])
    assert done.exit_code == 3
    assert "pip install '.[plots]'" in done.stderr
