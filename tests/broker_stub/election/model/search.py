"""Breadth-first search over all states, up to the names of the members."""

from __future__ import annotations

import gc
from dataclasses import dataclass

from broker_stub.election.generation import ArbiterRecord
from tests.broker_stub.election.model import invariants
from tests.broker_stub.election.model.clients import Client
from tests.broker_stub.election.model.invariants import Broken, Globals
from tests.broker_stub.election.model.members import Member
from tests.broker_stub.election.model.moves import Moves
from tests.broker_stub.election.model.rules import RECORD, RULES, Rules
from tests.broker_stub.election.model.tables import BITS, State, Tables


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a search.

    :param complete: True if every reachable state was visited, and all invariants held.
    :param trace: the moves to the first violation.
    """

    states: int
    transitions: int
    complete: bool
    broken: frozenset[Broken] = frozenset()
    trace: tuple[str, ...] = ()


def explore(
    *,
    members: int,
    messages: int = 1,
    generations: int = 3,
    rules: Rules = RULES,
    watch: frozenset[Broken] = invariants.ALL,
    late: bool = False,
    wipes: bool = False,
    forces: bool = False,
    asides: bool = False,
    consumes: bool = False,
    client: Client | None = None,
    most_states: int | None = None,
) -> Outcome:
    """Visit every state until an invariant of ``watch`` is broken, or up to a number of states.

    :param late: True if a compare-and-set may be executed long after its member has given up.
    :param wipes: True if members may lose their disks.
    :param forces: True if members may be promoted by force, so that primaries read the arbiter again.
    :param asides: True if queues may be set aside.
    :param consumes: True if there are consumers.
    :param client: a client of the members, and with it an impostor.
    """
    tables = Tables(Moves(rules, members, messages, generations, late, wipes, forces, asides, consumes))
    world = Globals(ArbiterRecord(0, RECORD if rules.renames else ""), client=client)
    start = tables.state([Member()] * members, world)
    gc.disable()  # no object here is a cycle, and the search for cycles takes half the time
    try:
        return _search(tables, start, watch, most_states)
    finally:
        gc.enable()


def _search(tables: Tables, start: State, watch: frozenset[Broken], most_states: int | None) -> Outcome:
    first = tables.canonical(start)
    parents = {_packed(first): -1}
    frontier, transitions = [first], 0
    while frontier and (most_states is None or len(parents) < most_states):
        level: list[State] = []
        for state in frontier:
            number = _packed(state)
            for _, after in tables.after(state):
                transitions += 1
                found = tables.canonical(after)
                packed = _packed(found)
                if packed in parents:
                    continue
                parents[packed] = number
                level.append(found)
                broken = tables.broken(found) & watch
                if broken:
                    trace = _trace(tables, start, _path(parents, packed))
                    return Outcome(len(parents), transitions, False, broken, trace)
        frontier = level
    return Outcome(len(parents), transitions, not frontier)


def _packed(state: State) -> int:
    packed = 0
    for number in state:
        packed = packed << BITS | number
    return packed


def _path(parents: dict[int, int], last: int) -> list[int]:
    path = [last]
    while parents[path[-1]] >= 0:
        path.append(parents[path[-1]])
    return path[-2::-1]


def _trace(tables: Tables, state: State, path: list[int]) -> tuple[str, ...]:
    """Return the labels along a path of canonical states, with one set of names from start to end."""
    labels = []
    for wanted in path:
        step, state = next(
            (step, after) for step, after in tables.after(state) if _packed(tables.canonical(after)) == wanted
        )
        labels.append(step.label)
    return tuple(labels)
