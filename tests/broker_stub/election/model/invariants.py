"""The invariants of every reachable state."""

from __future__ import annotations

import enum
from typing import NamedTuple

from broker_stub.election.generation import ArbiterRecord, may_promote
from tests.broker_stub.election.model.clients import Client
from tests.broker_stub.election.model.members import Member
from tests.broker_stub.election.model.moves import GOES_ON, STEPS_DOWN, Move, carried_out
from tests.broker_stub.election.model.rules import RULES, Rules


class Broken(enum.StrEnum):
    """An invariant that does not hold."""

    PRIMARY_LACKS = "a current primary lacks a settled message"
    TWO_SETTLE = "two members settle in one generation"
    NUMBER_SHRINKS = "the arbiter's number does not grow"
    ELIGIBLE_LACKS = "a member that may be promoted lacks a settled message"
    NONE_ELIGIBLE = "no member may be promoted any more"
    READY_NOT_ELIGIBLE = "a ready replica could not take over"
    LOST = "no member has a settled message any more"
    PRIMARY_LACKS_DELIVERED = "a current primary lacks what a consumer was given"
    ELIGIBLE_LACKS_DELIVERED = "a member that may be promoted lacks what a consumer was given"
    CONFIRMED_AGAIN = "a current primary has a message whose accept was confirmed"
    ELIGIBLE_HAS_CONFIRMED = "a member that may be promoted has a message whose accept was confirmed"
    GOES_ON = "a primary goes on although it has read that another one was made"
    STEPS_DOWN = "a primary steps down for a record of its own"
    WENT_BACK = "a client goes back to an older primary"
    LOCKED_OUT = "a client refuses the current primary"
    STAYS_LOCKED_OUT = "a client refuses the current primary for ever"


# Invariants about events that must never happen, and all: the others detect trouble before a promotion
# makes it real, and messages that only a forced promotion could reach.
SAFETY = frozenset(
    (
        Broken.PRIMARY_LACKS,
        Broken.PRIMARY_LACKS_DELIVERED,
        Broken.CONFIRMED_AGAIN,
        Broken.TWO_SETTLE,
        Broken.NUMBER_SHRINKS,
    )
)
ALL = frozenset(Broken)
# Invariants that hold although members are promoted by force: that loses messages they lack.
FORCED = frozenset((Broken.TWO_SETTLE, Broken.NUMBER_SHRINKS, Broken.GOES_ON, Broken.STEPS_DOWN))
# A client's guarantees, whoever is among the members; and if members prove their identity.
CLIENTS = frozenset((Broken.WENT_BACK, Broken.STAYS_LOCKED_OUT))
PROVEN_CLIENTS = CLIENTS | {Broken.LOCKED_OUT}
_VERDICTS = {GOES_ON: Broken.GOES_ON, STEPS_DOWN: Broken.STEPS_DOWN}


class Globals(NamedTuple):
    """The state that belongs to no member.

    :param settlers: the members that have settled: (generation, member), sorted.
    :param delivered: messages given to a consumer; ``accepted``: that it accepted; ``confirmed``: confirmed
        to it.
    :param client: the client, if there is one.
    :param late: the record of a compare-and-set in transit whose member has given up.
    """

    record: ArbiterRecord
    settled: int = 0
    settlers: tuple[tuple[int, str], ...] = ()
    late: bool = False
    shrank: bool = False
    verdict: str = ""
    delivered: int = 0
    accepted: int = 0
    confirmed: int = 0
    client: Client | None = None

    @property
    def expected(self) -> int:
        """Return the messages that must exist: a consumer may have accepted the rest."""
        return self.settled & ~self.accepted

    def after(self, move: Move, name: str) -> Globals:
        settlers = self.settlers
        if move.settles and move.member.serving is not None:
            settlers = tuple(sorted({*settlers, (move.member.serving.held.generation, name)}))
        late = self.late if move.late is None else move.late
        shrank = move.record is not None and move.record.generation <= self.record.generation
        record, settled = move.record or self.record, self.settled | move.settles
        return Globals(
            record,
            settled,
            settlers,
            late,
            shrank,
            move.verdict,
            self.delivered | move.delivers,
            self.accepted | move.accepts,
            self.confirmed | move.confirms,
            move.client or self.client,
        )

    def kept(self, generations: frozenset[int]) -> Globals:
        """Remove generations in which no member can settle any more: the arbiter's only grows."""
        settlers = tuple(each for each in self.settlers if each[0] in generations)
        return self if settlers == self.settlers else self._replace(settlers=settlers)


def of_member(member: Member, world: Globals) -> tuple[bool, frozenset[Broken]]:
    """Return whether a member is eligible, and the invariants that it breaks."""
    eligible = may_promote(member.durable, world.record) is None
    if not eligible:
        return eligible, frozenset()
    serving = member.serving
    current = (
        serving is not None and serving.work is None and member.durable.generation == world.record.generation
    )
    broken: set[Broken] = set()
    for wrong, found, found_in_primary in (
        (world.expected & ~member.stored, Broken.ELIGIBLE_LACKS, Broken.PRIMARY_LACKS),
        (
            world.delivered & ~world.accepted & ~member.stored,
            Broken.ELIGIBLE_LACKS_DELIVERED,
            Broken.PRIMARY_LACKS_DELIVERED,
        ),
        (world.confirmed & member.stored, Broken.ELIGIBLE_HAS_CONFIRMED, Broken.CONFIRMED_AGAIN),
    ):
        if wrong:
            broken |= {found, found_in_primary} if current else {found}
    return eligible, frozenset(broken)


def of_client(member: Member, world: Globals, rules: Rules) -> frozenset[Broken]:
    """Return the invariants that a member breaks for the client, if it is the current primary."""
    number, serving, client = member.durable.generation, member.serving, world.client
    is_current = serving is not None and serving.work is None and number == world.record.generation
    if client is None or not number or not is_current:
        return frozenset()
    if client.met(rules, number, member=True) is not None:
        return frozenset()
    for_ever = client.forgetful(rules).met(rules, number, member=True) is None
    return frozenset({Broken.LOCKED_OUT, Broken.STAYS_LOCKED_OUT} if for_ever else {Broken.LOCKED_OUT})


def of_globals(world: Globals) -> frozenset[Broken]:
    """Return the invariants that the arbiter and the settlements break."""
    broken = set()
    numbers = [number for number, _ in world.settlers]
    if len(set(numbers)) < len(numbers):
        broken.add(Broken.TWO_SETTLE)
    if world.verdict:
        broken.add(_VERDICTS[world.verdict])
    if world.client is not None and world.client.went_back:
        broken.add(Broken.WENT_BACK)
    if world.shrank:
        broken.add(Broken.NUMBER_SHRINKS)
    return frozenset(broken)


def of_pair(name: str, primary: Member, replica_name: str, replica: Member, record: ArbiterRecord) -> bool:
    """Return whether a replica that its primary counts as ready can take over once it executes its commands.

    A primary that is not eligible itself is a stale one, and its replicas may be anything.
    """
    serving = primary.serving
    if serving is None or replica_name not in serving.ready or replica.follows != name:
        return True
    while replica.inbox:
        replica = carried_out(RULES, replica)
    return may_promote(primary.durable, record) is not None or may_promote(replica.durable, record) is None
