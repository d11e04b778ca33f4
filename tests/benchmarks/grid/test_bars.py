"""The bars, computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.grid.bars import Outcome, bars, broken, outcome
from benchmarks.grid.cells import Cell


def of(last: float, attempts: float, most_syns: int = 2, smallest_gap: float = 0.5) -> Outcome:
    return Outcome(
        last=last, p50=last, attempts=attempts, before=1.0, most_syns=most_syns, smallest_gap=smallest_gap
    )


def cell(members: int = 1, clients: int = 2000) -> Cell:
    """Return a cell whose best possible time is a 200th of the number of clients, in seconds."""
    return Cell(members=members, kind="reset", clients=clients, outage=3.0)


PRESETS = {
    "quick": of(10.0, 9.0),
    "as quick": of(10.15, 11.0),
    "slow": of(20.0, 30.0),
    "never": of(math.inf, 1.0),
}


def test_the_bars_are_a_fifth_above_the_fastest_and_the_attempts_of_those_as_fast() -> None:
    limits = bars(cell(), PRESETS)
    assert (limits.fastest, limits.last, limits.attempts) == ("quick", 12.0, 11.0)


@pytest.mark.parametrize(("members", "last"), [(1, 1.1), (3, 1.6)])
def test_a_small_fleet_has_a_second_beside_the_best_possible(members: int, last: float) -> None:
    limits = bars(cell(members, clients=20), {"quick": of(0.1, 1.0), "nearly": of(0.19, 1.5)})
    assert (limits.last, limits.attempts) == (pytest.approx(last), 2.0)


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        (of(12.0, 8.0), []),
        (of(12.1, 8.0), ["late"]),
        (of(10.0, 11.1), ["attempts"]),
        # 5 % slower and 5 % more attempts than "quick".
        (of(10.6, 9.5), ["behind quick"]),
        (of(10.6, 9.4), []),
        (of(10.4, 9.5), []),
        (of(30.0, 40.0), ["late", "attempts", "behind quick, as quick, slow"]),
        (of(math.inf, 1.0), ["late"]),
    ],
)
def test_a_cell_holds_unless_it_breaks_a_bar(ours: Outcome, expected: list[str]) -> None:
    assert broken(ours, bars(cell(), PRESETS), PRESETS) == expected


def test_small_differences_put_nobody_behind() -> None:
    """Differences of 50 ms or a tenth of an attempt are ignored."""
    presets = {"quick": of(0.50, 1.0)}
    limits = bars(cell(clients=20), presets)
    assert broken(of(0.54, 1.9), limits, presets) == []
    assert broken(of(0.56, 1.09), limits, presets) == []
    assert broken(of(0.56, 1.11), limits, presets) == ["behind quick"]


@pytest.mark.parametrize(
    ("most", "gap", "polite"), [(2, 0.4, True), (2, 0.4 - 1e-9, True), (3, 0.4, False), (2, 0.39, False)]
)
def test_two_syns_a_second_are_polite(most: int, gap: float, polite: bool) -> None:
    assert of(1.0, 1.0, most, gap).is_polite is polite


def run(last: float | None, attempts: float, gap: float | None = 1.0) -> dict[str, Any]:
    return {
        "last": last,
        "p50": last,
        "attempts_per_client": attempts,
        "attempts_before": 3.0,
        "syns_of_client": 1,
        "smallest_gap": gap,
    }


def test_medians_are_of_each_figure_and_what_never_ends_is_infinite() -> None:
    found = outcome([run(1.0, 9.0), run(3.0, 7.0, 0.2), run(2.0, 8.0, None)])
    assert (found.last, found.attempts, found.smallest_gap) == (2.0, 8.0, 0.2)
    assert outcome([run(None, 1.0), run(1.0, 1.0), run(None, 1.0)]).last == math.inf


def test_the_grid_has_bars_of_its_own_for_known_fleets() -> None:
    def known(clients: int) -> Cell:
        return replace(cell(clients=clients), base=(("fleet_known", True),))

    presets = {"kafka": of(14.0, 1.5)}
    limits = bars(known(2000), presets)
    assert (limits.last, limits.attempts) == (pytest.approx(10.5), 3.0)
    assert broken(of(10.4, 1.0), limits, presets) == []
    assert broken(of(10.6, 3.1), limits, presets) == ["late", "attempts"]
    assert bars(known(100), presets).last == pytest.approx(1.2 * 14.0)
