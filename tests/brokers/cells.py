"""The cells of the matrix (cluster, kind of program, fault), and a subset that covers every pair.

Pure, with the same result in every run, so that a run can be resumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import NamedTuple

from tests.brokers.topology import Fault

PROGRAMS: dict[str, str] = {
    "asyncio": "asyncio_api",
    "blocking": "blocking_api",
    "container": "container",
    "blocking-connection": "blocking_connection",
    "cli": "command_line",
}
"""The kinds of programs, and their modules in ``tests.brokers.programs``."""


OTHER_CLIENTS: dict[str, str] = {
    "proton-container": "proton_container",
    "qpid-jms": "other_client",
    "rabbitmq-amqp": "other_client",
}
"""Programs on other clients, and their modules. Their rows are for comparison and may fail."""


class Cell(NamedTuple):
    """One run of the matrix."""

    cluster: str
    program: str
    fault: Fault

    def __str__(self) -> str:
        return f"{self.cluster} {self.program} {self.fault.value}"


_COMPARED = {"rabbitmq4": tuple(OTHER_CLIENTS), "activemq": ("proton-container", "qpid-jms")}


def of_other_clients(faults: Mapping[str, frozenset[Fault]]) -> list[Cell]:
    """Return one kill for each other client, at every cluster that can be started."""
    return [
        Cell(name, client, Fault.KILL)
        for name, clients in _COMPARED.items()
        if name in faults
        for client in clients
    ]


def every(faults: Mapping[str, frozenset[Fault]]) -> list[Cell]:
    """Return the whole matrix.

    :param faults: the faults that apply to each cluster, by cluster name.
    """
    ordered = {name: sorted(those, key=lambda fault: fault.value) for name, those in faults.items()}
    return [
        Cell(name, program, fault)
        for name, those in ordered.items()
        for fault, program in product(those, PROGRAMS)
    ]


def pairwise(cells: Sequence[Cell]) -> list[Cell]:
    """Return a subset that contains every pair of cluster, program and fault that occurs in these cells.

    Greedy: the next cell is the one with the most missing pairs; among equals, the first.
    """
    missing = {pair for cell in cells for pair in _pairs(cell)}
    chosen = []
    while missing:
        best = max(cells, key=lambda cell: len(missing.intersection(_pairs(cell))))
        chosen.append(best)
        missing.difference_update(_pairs(best))
    return sorted(chosen, key=cells.index)


def _pairs(cell: Cell) -> Iterator[tuple[object, object]]:
    """Return the pairs of a cell's values. No two columns share a value, so a pair needs no column names."""
    return combinations(cell, 2)
