"""``haclient simulate`` for people and for scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from haclient.cli import main
from haclient.simulation import plot

SMALL = ["--clients", "100", "--setup-rate", "100", "--outage", "0.5"]


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *SMALL, *arguments])


def test_without_a_choice_everything_is_compared() -> None:
    done = simulate("--json", "-")
    assert done.exit_code == 0
    names = [row["name"] for row in json.loads(done.stdout)]
    assert names[0] == "adaptive, retry-after"
    assert {
        "adaptive",
        "full",
        "equal",
        "decorrelated",
        "exponential",
        "constant",
        "proton",
        "rhea",
        "kafka",
    } <= set(names)


def test_a_chosen_strategy_meets_both_brokers_and_the_table_is_printed() -> None:
    done = simulate("--strategy", "full", "--preset", "nats")
    assert done.exit_code == 0
    names = [line.split("  ")[0] for line in done.stdout.splitlines()]
    assert names[-3:] == ["full, retry-after", "full", "nats"]


@pytest.mark.parametrize(
    ("flag", "name"), [("--retry-after", "adaptive, retry-after"), ("--no-retry-after", "adaptive")]
)
def test_a_broker_can_be_chosen(flag: str, name: str) -> None:
    done = simulate(flag, "--json", "-")
    assert [row["name"] for row in json.loads(done.stdout)] == [name]


@pytest.mark.parametrize(("given", "last"), [([], 0.357), (["--setup-rate", "50"], 2.0)])
def test_a_broker_that_was_measured_can_be_chosen_and_changed(given: list[str], last: float) -> None:
    """100 clients at 280 a second, unless another rate is given."""
    arguments = [
        "--clients",
        "100",
        "--outage",
        "0",
        "--detection",
        "0",
        "--preset",
        "mongodb",
        "--json",
        "-",
    ]
    done = CliRunner().invoke(main, ["simulate", "--broker", "artemis", *arguments, *given])
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)
    assert row["last"] == pytest.approx(last, abs=0.01)


@pytest.mark.parametrize("park", ["outage", "warm"])
def test_parking_takes_a_second_member(park: str) -> None:
    done = simulate("--park", park, "--json", "-")
    (row,) = json.loads(done.stdout)
    assert (row["name"], row["parked"], row["not_back"]) == ("adaptive, parked", 100, 0)


@pytest.mark.slow
def test_files_are_written(tmp_path: Path) -> None:
    png, html, figures = tmp_path / "a.png", tmp_path / "a.html", tmp_path / "a.json"
    done = simulate("--strategy", "full", "--plot", str(png), "--html", str(html), "--json", str(figures))
    assert done.exit_code == 0
    assert png.stat().st_size
    assert html.stat().st_size
    assert json.loads(figures.read_text())[0]["not_back"] == 0


def test_a_sweep_gives_a_row_for_each_combination() -> None:
    done = simulate("--sweep", "backlog=1,100", "--sweep", "client=full,proton", "--json", "-")
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
        ["--sweep", "rate=1"],
        ["--sweep", "backlog"],
        ["--sweep", "client=nobody"],
        ["--sweep", "backlog=-1"],
        ["--sweep", "backlog=many"],
        ["--spark"],
        ["--redirecting", "1"],
        ["--park", "warm", "--no-retry-after"],
        ["--setup-rate", "0"],
        ["--sweep", "backlog=1", "--plot", "a.png"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_2(wrong: list[str]) -> None:
    done = simulate(*wrong)
    assert done.exit_code == 2, done.output


def test_a_plot_without_the_extra_is_3_and_is_said_before_the_storm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot, "find_spec", lambda _: None)
    done = simulate("--plot", "a.png")
    assert done.exit_code == 3
    assert "pip install 'haclient[plots]'" in done.stderr
