"""The client's default in a part of the grid that takes seconds; ``make grid`` has the rest."""

from __future__ import annotations

import pytest

from benchmarks.grid.cache import Cache
from benchmarks.grid.cells import Cell, cells
from benchmarks.grid.run import Judged, grid
from haclient.retry.policy import Policy

pytestmark = pytest.mark.timeout(600)  # 3 s on a free processor

PART = cells("whole", {"clients": [5, 20], "outage": [0.3, 3.0]})


@pytest.fixture(scope="module")
def judged() -> dict[Cell, Judged]:
    with Cache(None) as cache:
        return {each.cell: each for each in grid(PART, {"haclient": Policy()}, cache=cache, jobs=1)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell", PART, ids=lambda cell: f"{cell.members}-{cell.kind}-{cell.clients}-{cell.outage}"
)
def test_our_default_holds_beside_every_preset(cell: Cell, judged: dict[Cell, Judged]) -> None:
    assert judged[cell].broken["haclient"] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell", PART, ids=lambda cell: f"{cell.members}-{cell.kind}-{cell.clients}-{cell.outage}"
)
def test_no_client_sends_more_than_two_syns_a_second_to_an_address(
    cell: Cell, judged: dict[Cell, Judged]
) -> None:
    assert judged[cell].ours["haclient"].is_polite
