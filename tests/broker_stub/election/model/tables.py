"""Results of ``Moves``, cached by numbers.

A model has few different members, in many combinations.  Each gets a number; the moves of one and of two
are computed once.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, combinations, permutations, product
from typing import Generic, NamedTuple, TypeVar

from tests.broker_stub.election.model import invariants
from tests.broker_stub.election.model.invariants import Broken, Globals
from tests.broker_stub.election.model.members import NAMES, Member, anonymous, permuted, renamed
from tests.broker_stub.election.model.moves import NOTHING, Effect, Move, Moves
from tests.broker_stub.election.model.rules import LIVE, MADE_BY

T = TypeVar("T")
BITS = 20
# The numbers of all members, and last the number of the globals.
State = tuple[int, ...]


class Step(NamedTuple):
    """A move by numbers: the member, the replica if there is one, the effect on the others, the globals."""

    label: str
    member: int
    other: int
    effect: int
    world: int


class Numbered(Generic[T]):
    """Things by number, and numbers by thing."""

    def __init__(self) -> None:
        self.things: list[T] = []
        self._numbers: dict[T, int] = {}

    def of(self, thing: T) -> int:
        number = self._numbers.get(thing)
        if number is None:
            number = self._numbers[thing] = len(self.things)
            assert not number >> BITS, "more different things than a state has room for"
            self.things.append(thing)
        return number


class Tables:
    """The cached moves of a model."""

    def __init__(self, moves: Moves) -> None:
        self.moves = moves
        self.members: Numbered[Member] = Numbered()
        self.worlds: Numbered[Globals] = Numbered()
        self._effects: Numbered[Effect] = Numbered()
        self._effects.of(NOTHING)
        self._signatures: Numbered[str] = Numbered()
        self._one: dict[tuple[int, int, int], list[Step]] = {}
        self._two: dict[tuple[int, int, int, int], list[Step]] = {}
        self._touched: dict[tuple[int, int, int], int] = {}
        self._renaming: dict[tuple[int, ...], tuple[dict[int, int], dict[int, int]]] = {}
        self._sign: list[int] = []  # of a member: the same for all its permutations
        self._serves: list[bool] = []
        self._stored: list[int] = []
        self._settles_in: list[frozenset[int]] = []
        self._judged: dict[tuple[int, int], tuple[bool, frozenset[Broken]]] = {}
        self._can: dict[tuple[int, int, int, int, int], bool] = {}
        self._plain: set[int] = set()  # worlds with nothing to forget
        self._kept: dict[tuple[int, frozenset[int]], int] = {}

    def state(self, members: Iterable[Member], world: Globals) -> State:
        """Return the state with these members."""
        return (*(self._number(member) for member in members), self.worlds.of(world))

    # --- Moves ----------------------------------------------------------------------------------

    def after(self, state: State) -> list[tuple[Step, State]]:
        """Return all moves in a state."""
        world, places, found = state[-1], range(len(state) - 1), []
        for i in places:
            me = state[i]
            steps = self._one.get((i, me, world))
            for step in self._of_one(i, me, world) if steps is None else steps:
                after = list(state)
                after[i], after[-1] = step.member, step.world
                if step.effect:
                    self._touch_others(step.effect, after, i, i)
                found.append((step, tuple(after)))
            if self._serves[me]:
                for j in places:
                    if i != j:
                        pair = (i, me, j, state[j])
                        steps = self._two.get(pair)
                        for step in self._of_two(pair) if steps is None else steps:
                            after = list(state)
                            after[i], after[j] = step.member, step.other
                            if step.effect:
                                self._touch_others(step.effect, after, i, j)
                            found.append((step, tuple(after)))
        if self.worlds.things[world].late:
            found.append(self._arrived(state))
        return found

    def _arrived(self, state: State) -> tuple[Step, State]:
        world = self.worlds.things[state[-1]]
        effect, record = self.moves.arrival(world.record)
        number = self._effects.of(effect)
        after = [*state[:-1], self.worlds.of(world._replace(record=record, late=False))]
        self._touch_others(number, after, -1, -1)
        return Step("the compare-and-set under way is carried out", -1, -1, number, after[-1]), tuple(after)

    def _touch_others(self, effect: int, after: list[int], one: int, two: int) -> None:
        for place in range(len(after) - 1):
            if place not in (one, two):
                number = after[place]
                touched = self._touched.get((effect, place, number))
                after[place] = self._touch(effect, place, number) if touched is None else touched

    def _of_one(self, i: int, me: int, world: int) -> list[Step]:
        member, shared = self.members.things[me], self.worlds.things[world]
        moves = chain(
            self.moves.of_one(i, member, shared.record, shared.settled | shared.accepted),
            self.moves.of_client(i, member, shared.client),
        )
        steps = self._one[i, me, world] = [
            self._step(move, self.worlds.of(shared.after(move, NAMES[i]))) for move in moves
        ]
        return steps

    def _of_two(self, pair: tuple[int, int, int, int]) -> list[Step]:
        i, primary, j, replica = pair
        found = self.moves.of_two(i, self.members.things[primary], j, self.members.things[replica])
        steps = self._two[pair] = [self._step(move, -1) for move in found]
        return steps

    def _step(self, move: Move, world: int) -> Step:
        other = -1 if move.other is None else self._number(move.other)
        return Step(move.label, self._number(move.member), other, self._effects.of(move.effect), world)

    def _touch(self, effect: int, place: int, number: int) -> int:
        member = self._effects.things[effect].on(NAMES[place], self.members.things[number])
        touched = self._touched[effect, place, number] = self._number(member)
        return touched

    # --- One state for all that differ in names only ------------------------------------------------

    def canonical(self, state: State) -> State:
        """Return the same state with the members in canonical order, and without dead memory."""
        world = self._remembered(state)
        if world != state[-1]:
            state = (*state[:-1], world)
        sign = self._sign
        if len(state) == 4:
            one, two, three = sign[state[0]], sign[state[1]], sign[state[2]]
            if one < two < three:
                return state
            orders = SORTING[one < two, one == two, one < three, one == three, two < three, two == three]
        else:
            one, two = sign[state[0]], sign[state[1]]
            if one < two:
                return state
            orders = SORTING[one < two, one == two]
        if len(orders) == 1:
            return self._reordered(state, orders[0])
        return min([self._reordered(state, order) for order in orders])

    def _reordered(self, state: State, order: tuple[int, ...]) -> State:
        if order not in self._renaming:
            self._renaming[order] = {}, {}
        members, worlds = self._renaming[order]
        after = list(state)
        for place, new in enumerate(order):
            old = state[place]
            number = members.get(old)
            after[new] = self._permuted(members, order, old) if number is None else number
        world = worlds.get(state[-1])
        if world is None:
            named: Globals = renamed(self.worlds.things[state[-1]], _names(order))
            world = worlds[state[-1]] = self.worlds.of(named._replace(settlers=tuple(sorted(named.settlers))))
        after[-1] = world
        return tuple(after)

    def _permuted(self, known: dict[int, int], order: tuple[int, ...], number: int) -> int:
        after = known[number] = self._number(permuted(self.members.things[number], order, _names(order)))
        return after

    def _remembered(self, state: State) -> int:
        if state[-1] in self._plain:
            return state[-1]
        world = self.worlds.things[state[-1]]
        if not world.settlers:
            self._plain.add(state[-1])
            return state[-1]
        settling = (self._settles_in[number] for number in state[:-1])
        alive = frozenset((world.record.generation,)).union(*settling)
        kept = self._kept.get((state[-1], alive))
        if kept is None:
            kept = self._kept[state[-1], alive] = self.worlds.of(world.kept(alive))
        return kept

    def _number(self, member: Member) -> int:
        number = self.members.of(member)
        if number == len(self._sign):
            self._sign.append(self._signatures.of(anonymous(member)))
            self._serves.append(member.serving is not None)
            self._stored.append(member.stored)
            self._settles_in.append(member.generations)
        return number

    # --- Invariants -----------------------------------------------------------------------------

    def broken(self, state: State) -> frozenset[Broken]:
        """Return the invariants that a state breaks."""
        world = state[-1]
        eligible_members, broken = False, invariants.of_globals(self.worlds.things[world])
        lost = self.worlds.things[world].expected
        for number in state[:-1]:
            lost &= ~self._stored[number]
            judged = self._judged.get((number, world))
            if judged is None:
                shared = self.worlds.things[world]
                member = self.members.things[number]
                eligible, wrong = invariants.of_member(member, shared)
                judged = eligible, wrong | invariants.of_client(member, shared, self.moves.rules)
                self._judged[number, world] = judged
            eligible_members = eligible_members or judged[0]
            if judged[1]:
                broken |= judged[1]
        if lost:
            broken |= {Broken.LOST}
        if not self._ready_can_take_over(state):
            broken |= {Broken.READY_NOT_ELIGIBLE}
        return broken if eligible_members else broken | {Broken.NONE_ELIGIBLE}

    def _ready_can_take_over(self, state: State) -> bool:
        count, world = len(state) - 1, state[-1]
        for i in range(count):
            if self._serves[state[i]]:
                for j in range(count):
                    key = (i, state[i], j, state[j], world)
                    can = self._can.get(key)
                    if can is None:
                        can = self._can[key] = i == j or self._replica_can(*key)
                    if not can:
                        return False
        return True

    def _replica_can(self, i: int, primary: int, j: int, replica: int, world: int) -> bool:
        things, record = self.members.things, self.worlds.things[world].record
        return invariants.of_pair(NAMES[i], things[primary], NAMES[j], things[replica], record)


def _comparison(signs: tuple[int, ...]) -> tuple[bool, ...]:
    pairs = combinations(signs, 2)
    return tuple(found for one, two in pairs for found in (one < two, one == two))


def _sorting(signs: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the orders that sort these signatures: several if some are equal."""
    places = range(len(signs))
    orders = permutations(places)
    return [order for order in orders if [signs[order.index(place)] for place in places] == sorted(signs)]


# How to sort two or three signatures, by how they compare.
SORTING = {
    _comparison(signs): _sorting(signs) for count in (2, 3) for signs in product(range(count), repeat=count)
}


def _names(order: tuple[int, ...]) -> dict[str, str]:
    names = {NAMES[old]: NAMES[new] for old, new in enumerate(order)}
    return {kind + old: kind + new for kind in ("", LIVE, MADE_BY) for old, new in names.items()}
