"""``haclient simulate`` for people and for scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click import Context
from click.testing import CliRunner, Result

from haclient.cli import main
from haclient.simulation import plot

SMALL = ["--clients", "100", "--setup-rate", "100", "--outage", "0.5"]


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *SMALL, *arguments])


def test_without_a_choice_the_default_meets_both_brokers() -> None:
    done = simulate("--json", "-")
    assert done.exit_code == 0
    assert [row["name"] for row in json.loads(done.stdout)] == ["adaptive, retry-after", "adaptive"]


def test_chosen_strategies_meet_both_brokers_and_the_table_is_printed() -> None:
    done = simulate("--strategy", "full", "--strategy", "adaptive")
    assert done.exit_code == 0
    assert done.stdout.startswith("100 clients, best possible 1 s")
    names = [line.split("  ")[0] for line in done.stdout.splitlines()]
    assert names[-4:] == ["full, retry-after", "full", "adaptive, retry-after", "adaptive"]


@pytest.mark.parametrize(
    ("flag", "name"), [("--retry-after", "adaptive, retry-after"), ("--no-retry-after", "adaptive")]
)
def test_a_broker_can_be_chosen(flag: str, name: str) -> None:
    done = simulate(flag, "--json", "-")
    assert [row["name"] for row in json.loads(done.stdout)] == [name]


def test_a_fleet_that_is_known_needs_no_retry_after() -> None:
    done = simulate("--set", "fleet_known=true", "--json", "-")
    assert [row["name"] for row in json.loads(done.stdout)] == ["adaptive, fleet known"]


def test_the_rest_of_the_scenario_and_options_of_the_client_can_be_set() -> None:
    arguments = ["--no-retry-after", "--outage", "5", "--set", "horizon=1", "--set", "deadline=2s"]
    (row,) = json.loads(simulate(*arguments, "--json", "-").stdout)
    assert (row["gave_up"], row["not_back"]) == (100, 100)


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


@pytest.mark.parametrize(
    "wrong",
    [
        ["--backlog", "-1"],
        ["--set", "rate=1"],
        ["--set", "detection"],
        ["--set", "detection=soon"],
        ["--set", "detection=-1"],
        ["--set", "syn_repeats=never"],
        ["--set", "max_retry_after=-1"],
        ["--set", "clients=5"],
        ["--set", "redirecting=1"],
        ["--set", "fleet_known=true", "--park", "warm"],
        ["--park", "warm", "--no-retry-after"],
        ["--setup-rate", "0"],
        ["--setup-rate", "inf"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_2(wrong: list[str]) -> None:
    done = simulate(*wrong)
    assert done.exit_code == 2, done.output


def test_an_option_of_the_client_is_checked_as_in_a_url() -> None:
    done = simulate("--set", "max_dials=many")
    assert done.exit_code == 2
    assert "max_dials" in done.stderr
    assert "many" in done.stderr


def test_it_has_at_most_fifteen_options() -> None:
    command = main.get_command(Context(main), "simulate")
    assert command is not None
    assert len(command.params) <= 15


def test_a_plot_without_the_extra_is_3_and_is_said_before_the_storm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot, "find_spec", lambda _: None)
    done = simulate("--plot", "a.png")
    assert done.exit_code == 3
    assert "pip install '.[plots]'" in done.stderr
