from __future__ import annotations

from itertools import combinations

from tests.brokers.cells import PROGRAMS, Cell, every, pairwise
from tests.brokers.topology import Fault

CLUSTERS = {
    "one": frozenset(Fault),
    "two": frozenset(Fault) - {Fault.VIP, Fault.MOVE},
    "three": frozenset({Fault.KILL, Fault.STOP, Fault.BOTH_DOWN}),
}


def test_the_whole_matrix_has_each_fault_that_makes_sense_for_each_program() -> None:
    cells = every(CLUSTERS)
    assert len(cells) == len(set(cells)) == sum(map(len, CLUSTERS.values())) * len(PROGRAMS)
    assert Cell("two", "cli", Fault.VIP) not in cells


def test_the_subset_has_every_pair_of_the_whole() -> None:
    cells = every(CLUSTERS)
    chosen = pairwise(cells)
    assert set(chosen) < set(cells)
    assert {pair for cell in chosen for pair in combinations(cell, 2)} == {
        pair for cell in cells for pair in combinations(cell, 2)
    }


def test_the_subset_is_hardly_larger_than_its_largest_pair_of_columns() -> None:
    """Each combination of cluster and fault is a pair, so this many cells are needed."""
    pairs = sum(map(len, CLUSTERS.values()))
    assert pairs <= len(pairwise(every(CLUSTERS))) <= 1.5 * max(pairs, len(PROGRAMS) * len(Fault))
