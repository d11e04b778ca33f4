"""The same seed makes the same faults."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from tests.faults.faults import FAULTS
from tests.faults.schedule import schedule


def test_a_seed_is_a_schedule() -> None:
    first, again, other = (list(islice(schedule(seed, list(FAULTS)), 60)) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_every_fault_occurs_once_in_a_cycle() -> None:
    cycles = list(islice(schedule(7, list(FAULTS)), 2 * len(FAULTS)))
    for cycle in (cycles[: len(FAULTS)], cycles[len(FAULTS) :]):
        assert sorted(step.fault for step in cycle) == sorted(FAULTS)


def test_the_order_in_which_faults_are_listed_does_not_matter() -> None:
    assert list(islice(schedule(7, list(FAULTS)), 30)) == list(islice(schedule(7, sorted(FAULTS)), 30))


def test_every_fault_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "faults.md").read_text()
    assert [name for name in FAULTS if f"| {name} |" not in page] == []
