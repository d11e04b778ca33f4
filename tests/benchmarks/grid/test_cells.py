"""The storms in the grid."""

from __future__ import annotations

import pytest

from benchmarks.grid.cells import Cell, cells


def test_the_whole_grid_has_every_combination_up_to_two_thousand_clients() -> None:
    assert len(cells("whole")) == 6 * 5 * 3 * 2
    assert {len(cell.seeds) for cell in cells("whole")} == {5}


def test_the_short_one_leaves_long_outages_to_small_fleets() -> None:
    short = cells("short")
    assert len(short) == (5 + 5 + 6 + 3 + 1) * 3 * 2
    assert max(cell.clients for cell in short if cell.outage == 300) == 5
    assert max(cell.clients for cell in short if cell.outage == 30) == 100


def test_a_whole_number_of_seconds_is_the_same_cell() -> None:
    """The cache and the known exceptions find a cell by its values."""
    assert cells("whole", {"outage": [3]}) == cells("whole", {"outage": [3.0]})
    assert {type(cell.outage) for cell in cells("whole", {"outage": [3]})} == {float}


def test_twenty_thousand_are_one_storm_each() -> None:
    large = cells("large")
    assert {(cell.clients, len(cell.seeds)) for cell in large} == {(20_000, 1)}
    assert {cell.outage for cell in large} == {0.3, 1.0, 3.0, 30.0}


def test_axes_can_be_chosen() -> None:
    chosen = cells("short", {"clients": [700], "outage": [300.0], "kind": ["silent"]})
    assert [(cell.members, cell.kind, cell.clients) for cell in chosen] == [
        (1, "silent", 700),
        (3, "silent", 700),
    ]


@pytest.mark.parametrize(
    ("axes", "said"), [({"backlog": [1]}, "the grid varies"), ({"kind": ["loud"]}, "kind is one of")]
)
def test_an_axis_that_is_none_is_an_error(axes: dict[str, list[int]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        cells("whole", axes)


def test_a_cell_is_a_storm_at_an_ordinary_broker() -> None:
    cell = Cell(members=3, kind="dead host", clients=20, outage=3.0, base=(("setup_rate", 10.0),))
    scenario = cell.scenario(4)
    assert (scenario.dead_host, scenario.when_full, scenario.retry_after) == (True, "silent", False)
    assert (scenario.members, scenario.seed, scenario.setup_rate, cell.best) == (3, 4, 10.0, 2.0)
