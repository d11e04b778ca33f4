"""A sweep runs every combination of its values."""

from __future__ import annotations

import pytest

from benchmarks.grid import cases, sweep
from haclient.retry.policy import Policy
from haclient.simulation.scenario import Scenario

BASE = {"clients": 100, "setup_rate": 100.0, "outage": 0.5}


def test_points_are_every_combination_with_the_last_axis_fastest() -> None:
    points = sweep.points(BASE, {"backlog": [1, 2], "client": ["full", "kafka"]})
    assert [(point["backlog"], point["client"]) for point in points] == [
        (1, "full"),
        (1, "kafka"),
        (2, "full"),
        (2, "kafka"),
    ]
    assert all(point["clients"] == 100 for point in points)


def test_an_unknown_parameter_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(ValueError, match=r"unknown parameters: rate; there are .*setup_rate"):
        sweep.points(BASE, {"rate": [1]})


def test_a_point_sets_scenario_policy_and_client() -> None:
    case = sweep.case({**BASE, "max_retry_after": 5.0, "client": "full", "retry_after": False})
    assert (case.scenario.clients, case.scenario.retry_after, case.name) == (100, False, "full")
    assert getattr(case.client, "max_retry_after", None) == 5.0
    assert sweep.case({**BASE, "client": "nats"}).scenario.retry_after is False


def test_figures_name_what_was_varied() -> None:
    (row,) = sweep.run([{**BASE, "client": "proton"}])
    assert row["outage"] == 0.5
    assert row["not_back"] == 0


def test_a_case_says_that_the_fleet_is_known() -> None:
    scenario = Scenario(clients=300, retry_after=False, fleet_known=True)
    assert cases.strategy("adaptive", scenario, Policy()).name == "adaptive, fleet known"
