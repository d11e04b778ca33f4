"""What must hold in every reachable state."""

from __future__ import annotations

import enum
from typing import NamedTuple

from broker_stub.election.generation import ArbiterRecord, may_promote
from tests.broker_stub.election.model.members import Member
from tests.broker_stub.election.model.moves import GOES_ON, STEPS_DOWN, Move, carried_out
from tests.broker_stub.election.model.rules import RULES


class Broken(enum.StrEnum):
    """An invariant that does not hold."""

    PRIMARY_LACKS = "a current primary lacks a settled message"
    TWO_SETTLE = "two members settle in one generation"
    NUMBER_SHRINKS = "the arbiter's number does not grow"
    ELIGIBLE_LACKS = "a member that may be promoted lacks a settled message"
    NONE_ELIGIBLE = "no member may be promoted any more"
    READY_NOT_ELIGIBLE = "a ready replica could not take over"
    LOST = "no member has a settled message any more"
    GOES_ON = "a primary goes on although it has read that another one was made"
    STEPS_DOWN = "a primary steps down for a record of its own"


# Those that say what must never happen, and all: the others see trouble before a promotion
# makes it real, and that messages can be had only by force.
SAFETY = frozenset((Broken.PRIMARY_LACKS, Broken.TWO_SETTLE, Broken.NUMBER_SHRINKS))
ALL = frozenset(Broken)
# What holds although members are promoted by force: that loses what they lack.
FORCED = frozenset((Broken.TWO_SETTLE, Broken.NUMBER_SHRINKS, Broken.GOES_ON, Broken.STEPS_DOWN))
_VERDICTS = {GOES_ON: Broken.GOES_ON, STEPS_DOWN: Broken.STEPS_DOWN}


class Globals(NamedTuple):
    """What belongs to no member.

    :param settlers: who has settled in which generation: (generation, member), sorted.
    :param late: whether a compare-and-set from this record is on its way whose member has given up.
    """

    record: ArbiterRecord
    settled: int = 0
    settlers: tuple[tuple[int, str], ...] = ()
    late: bool = False
    shrank: bool = False
    verdict: str = ""

    def after(self, move: Move, name: str) -> Globals:
        settlers = self.settlers
        if move.settles and move.member.serving is not None:
            settlers = tuple(sorted({*settlers, (move.member.serving.held.generation, name)}))
        late = self.late if move.late is None else move.late
        shrank = move.record is not None and move.record.generation <= self.record.generation
        record, settled = move.record or self.record, self.settled | move.settles
        return Globals(record, settled, settlers, late, shrank, move.verdict)

    def kept(self, generations: frozenset[int]) -> Globals:
        """Without the generations in which nobody can settle any more: the arbiter's only grows."""
        settlers = tuple(each for each in self.settlers if each[0] in generations)
        return self if settlers == self.settlers else self._replace(settlers=settlers)


def of_member(member: Member, record: ArbiterRecord, settled: int) -> tuple[bool, frozenset[Broken]]:
    """Whether a member is an heir, and what it breaks."""
    eligible = may_promote(member.durable, record) is None
    if not eligible or not settled & ~member.stored:
        return eligible, frozenset()
    serving = member.serving
    current = serving is not None and serving.work is None and member.durable.generation == record.generation
    return eligible, frozenset(
        (Broken.ELIGIBLE_LACKS, Broken.PRIMARY_LACKS) if current else (Broken.ELIGIBLE_LACKS,)
    )


def of_globals(world: Globals) -> frozenset[Broken]:
    """What the arbiter and the settling break."""
    broken = set()
    numbers = [number for number, _ in world.settlers]
    if len(set(numbers)) < len(numbers):
        broken.add(Broken.TWO_SETTLE)
    if world.verdict:
        broken.add(_VERDICTS[world.verdict])
    if world.shrank:
        broken.add(Broken.NUMBER_SHRINKS)
    return frozenset(broken)


def of_pair(name: str, primary: Member, replica_name: str, replica: Member, record: ArbiterRecord) -> bool:
    """Whether a replica that its primary counts as ready can take over, when it has done what it was sent.

    A primary that is no heir itself is a stale one, and its replicas may be anything.
    """
    serving = primary.serving
    if serving is None or replica_name not in serving.ready or replica.follows != name:
        return True
    while replica.inbox:
        replica = carried_out(RULES, replica)
    return may_promote(primary.durable, record) is not None or may_promote(replica.durable, record) is None
