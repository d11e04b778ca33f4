"""All possible next moves.  ``broker_stub.election.generation`` makes the decisions of a member.

A move changes one member, or a primary and one of its replicas; ``Effect`` has its effect on the others.
Durable writes, sends and the arbiter's compare-and-set are separate moves, so that a crash
(``crash``, always possible) can fall between any two of them.  Commands arrive later, also when the
primary has given up the link or died.  Messages are stored and acknowledged in one move.  The primary
remembers acknowledgements, since it may use them long after the replica has gone.

There is another cluster, to whose primary and arbiter a member may be directed at any time, whatever their
generation is: an operator gave it the wrong list.  That cluster has no moves of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from broker_stub.election import generation
from broker_stub.election.generation import (
    ArbiterRecord,
    BecomeReady,
    Pending,
    PrimaryIdentity,
    Promotion,
    ShrinkInSync,
)
from tests.broker_stub.election.model.clients import Client, is_misled, meets
from tests.broker_stub.election.model.members import NAMES, Link, Member, Order, Serving, renamed
from tests.broker_stub.election.model.rules import DEAD, LATE, LIVE, MADE_BY, OURS, RECORD, THEIRS, Rules


class Effect(NamedTuple):
    """The effect of a move on the other members.

    :param renames: claims that have ended, with their new names.
    :param gone: the member that dies, as far as the links of others are concerned.
    :param orders: the commands, with sender and receiver.
    """

    renames: tuple[tuple[str, str], ...] = ()
    gone: str | None = None
    sender: str | None = None
    replicas: frozenset[str] = frozenset()
    order: Order | None = None

    def on(self, name: str, member: Member) -> Member:
        if self.renames:
            member = renamed(member, dict(self.renames))
        if self.gone is not None and member.follows == self.gone:
            member = member._replace(follows=None)
        if self.order is not None and name in self.replicas and member.follows == self.sender:
            member = member._replace(inbox=(*member.inbox, self.order))
        return member


NOTHING = Effect()
NEW = Member()


class Move(NamedTuple):
    """One possible move.

    :param other: the replica, if the move is one of a pair.
    :param record: the arbiter's, if it changes.
    :param late: a compare-and-set in transit whose member has given up; ``None`` for no change.
    :param settles: the messages that are settled, a bit for each; ``delivers``: that a consumer gets,
        ``accepts``: that it accepts, ``confirms``: whose accept is confirmed.
    :param client: the client, if it changes.
    :param verdict: False if a primary that examines its reading of the arbiter decides wrongly.
    """

    label: str
    member: Member
    other: Member | None = None
    effect: Effect = NOTHING
    record: ArbiterRecord | None = None
    settles: int = 0
    late: bool | None = None
    verdict: str = ""
    delivers: int = 0
    accepts: int = 0
    confirms: int = 0
    client: Client | None = None


GOES_ON, STEPS_DOWN = "goes on", "steps down"


@dataclass(frozen=True, slots=True)
class Moves:
    """The moves under some rules.

    :param generations: the arbiter goes no further.
    :param late: True if a compare-and-set may be executed long after its member has given up.
    :param wipes: True if members may lose their disks.
    :param forces: True if members may be promoted by force, so that primaries read the arbiter again.
    :param asides: True if queues may be set aside.
    :param consumes: True if there are consumers.
    """

    rules: Rules
    members: int
    messages: int
    generations: int
    late: bool = False
    wipes: bool = False
    forces: bool = False
    asides: bool = False
    consumes: bool = False

    # --- One member ---------------------------------------------------------------------------

    def of_one(self, i: int, member: Member, record: ArbiterRecord, settled: int) -> Iterator[Move]:
        """Yield the moves of a member alone, or with the arbiter."""
        name = NAMES[i]
        if member.crashed != member:
            yield self._crash(name, member)
        if member.serving is not None:
            yield from self._serve(name, member, member.serving, settled)
            if self.consumes:
                yield from self._consume(name, member, member.serving)
            if self.forces:
                yield self._reread(name, member, member.serving, record)
            if member.serving.work is not None:
                yield from self._go_alone(name, member, member.serving, member.serving.work, record)
        elif member.promotion is not None:
            yield from self._promote(name, member, member.promotion, record)
        else:
            yield from self._begin_promotion(name, member, record)
            if member.follows is None and member.inbox:
                yield Move(f"{name} carries out a late order", carried_out(self.rules, member))
            if member.follows is None:
                yield from self._follow_others(name, member, record)
        if self.wipes and member.crashed != NEW:
            crash = self._crash(name, member)
            yield crash._replace(label=f"{name} loses its disk and starts with a new one", member=NEW)

    def of_client(self, i: int, member: Member, client: Client | None) -> Iterator[Move]:
        """Yield the client's moves with a member, or with the impostor."""
        if client is None:
            return
        number, serving, name = member.durable.generation, member.serving, NAMES[i]
        met: list[tuple[str, Client]] = []
        if serving is not None and number and serving.held.cluster != THEIRS:
            met += meets(client, self.rules, name, number)
        if i == 0:  # once in a state
            met += is_misled(client, self.rules, self.generations + 1)
        yield from (Move(label, member, client=after) for label, after in met if after != client)

    def _crash(self, name: str, member: Member) -> Move:
        renames = self._ended(name, DEAD) if member.attempts else ()
        effect = Effect(renames, gone=name) if member.serving or renames else NOTHING
        return Move(f"{name} crashes or gives up", self._claims(member.crashed, renames), effect=effect)

    def _begin_promotion(self, name: str, member: Member, record: ArbiterRecord) -> Iterator[Move]:
        if record.generation >= self.generations:
            return
        member = member.crashed if self.rules.leaves_first else member
        own = self.rules.claim(name), MADE_BY + name
        theirs = [ArbiterRecord(g, THEIRS, THEIRS) for g in range(1, self.generations)]
        for read in (record, *theirs):
            promotion = self.rules.begin_promotion(member.durable, read, *own)
            if self.forces and read == record and isinstance(promotion.step, generation.Refused):
                promotion = Promotion.forced(member.durable, read, *own)
            if not isinstance(promotion.step, generation.Refused):
                where = "another cluster's arbiter, " if read.cluster == THEIRS else ""
                label = f"{name} is told to promote, reads {where}{_text(read)}"
                yield Move(label, member._replace(promotion=promotion))

    def _follow_others(self, name: str, member: Member, record: ArbiterRecord) -> Iterator[Move]:
        """Follow another cluster, whose list an operator gave it."""
        for g in range(1, self.generations + 1):
            primary = PrimaryIdentity(g, THEIRS)
            if self.rules.may_follow(member.durable, primary, record, not member.stored) is None:
                erased = Member(self.rules.erase(member.durable, THEIRS))
                label = f"{name} follows another cluster's primary of generation {g}, and discards all"
                yield Move(label, erased)
                handed_over = self.rules.hand_over(erased.durable, ArbiterRecord(g, THEIRS, THEIRS))
                yield Move(f"{label}, and is ready there", Member(handed_over))

    def _reread(self, name: str, member: Member, serving: Serving, record: ArbiterRecord) -> Move:
        """Read the arbiter now, and examine the result later."""
        seen, work = serving.seen, serving.work
        if seen is None:
            after = member._replace(serving=serving._replace(seen=record))
            return Move(f"{name} reads {_text(record)} again", after)
        held = serving.held if work is None else work.held
        asked = None if work is None else work.pending
        own = (seen.generation, seen.claim) in [
            (each.generation, each.claim) for each in (held, asked) if each
        ]
        if self.rules.superseded(held, asked, seen) is not None:
            down = self._crash(name, member)
            label = f"{name} steps down for {_text(seen)}"
            return down._replace(label=label, verdict=STEPS_DOWN if own else "")
        wrong = not own and seen.generation >= held.generation
        after = member._replace(serving=serving._replace(seen=None))
        return Move(f"{name} goes on after {_text(seen)}", after, verdict=GOES_ON if wrong else "")

    def _promote(
        self, name: str, member: Member, promotion: Promotion, record: ArbiterRecord
    ) -> Iterator[Move]:
        match promotion.step:
            case generation.WritePending(state):
                after = member._replace(durable=state, promotion=promotion.finished(promotion.step))
                yield Move(f"{name} writes pending {_text(promotion.wanted)}", after)
            case generation.CompareAndSet(expected, new) if expected.cluster == THEIRS:
                after = member._replace(promotion=promotion.compared(won=True))
                yield Move(f"{name} compares-and-sets {_text(new)} at another cluster's arbiter", after)
            case generation.CompareAndSet(expected, new) if expected == record:
                yield from self._leave_under_way(name, member)
                after = member._replace(promotion=promotion.compared(won=True))
                yield self._won(name, after, new)
            case generation.WriteGeneration(state):
                done = promotion.finished(promotion.step).step
                assert isinstance(done, generation.Done)
                serving = Serving(done.record, (None,) * self.members)
                after = Member(state, member.stored, serving=serving)
                yield Move(f"{name} writes number {state.generation} and is primary", after)
            case _:  # it lost: it gives up, as in a crash
                pass

    def _won(self, name: str, member: Member, record: ArbiterRecord) -> Move:
        over = ((RECORD, DEAD), (LATE, DEAD))
        renames = (*over, *self._ended(name, RECORD)) if self.rules.renames else ()
        new = renamed(record, dict(renames))
        label = f"{name} compares-and-sets {_text(new)}"
        return Move(label, self._claims(member, renames), effect=Effect(renames), record=new, late=False)

    def _leave_under_way(self, name: str, member: Member) -> Iterator[Move]:
        """Give up, or crash; the arbiter gets the request later."""
        if self.late:
            renames = self._ended(name, LATE)
            effect = Effect(renames, gone=name)
            label = f"{name} gives up while its compare-and-set is under way"
            yield Move(label, self._claims(member.crashed, renames), effect=effect, late=True)

    def arrival(self, record: ArbiterRecord) -> tuple[Effect, ArbiterRecord]:
        """Execute the late compare-and-set; after another one it would have no effect."""
        return Effect(((RECORD, DEAD), (LATE, RECORD))), ArbiterRecord(record.generation + 1, RECORD)

    # --- A primary ----------------------------------------------------------------------------

    def _serve(self, name: str, member: Member, serving: Serving, settled: int) -> Iterator[Move]:
        for bit in self._bits():
            if bit & serving.taken:
                if not bit & member.stored:
                    yield Move(f"{name} stores {_bits(bit)}", member._replace(stored=member.stored | bit))
                elif serving.work is None and self._acknowledged(serving, bit):
                    yield Move(f"{name} settles {_bits(bit)}", _settled(member, serving, bit), settles=bit)
            elif bit & ~settled & ~member.stored:
                taken = serving._replace(taken=serving.taken | bit)
                yield Move(f"{name} takes {_bits(bit)}", member._replace(serving=taken))
            elif bit & ~settled and serving.work is None:
                # Its client sends it again after a failover, and the broker knows it by its id.
                yield Move(f"{name} settles {_bits(bit)}, which it had already", member, settles=bit)

    def _consume(self, name: str, member: Member, serving: Serving) -> Iterator[Move]:
        """Deliver settled or inherited messages; accepted ones are removed, here and there in any order."""
        for bit in self._bits():
            if bit & serving.leaving:
                if bit & member.stored:
                    left = member._replace(stored=member.stored & ~bit)
                    yield Move(f"{name} removes {_bits(bit)} from its store", left)
                if self._may_confirm(member, serving, bit):
                    after = member._replace(serving=serving._replace(leaving=serving.leaving & ~bit))
                    yield Move(f"{name} confirms that {_bits(bit)} was accepted", after, confirms=bit)
            elif bit & (member.stored | serving.taken) and self._may_deliver(member, serving, bit):
                yield Move(f"{name} delivers {_bits(bit)}", member, delivers=bit)
                if not bit & serving.taken:
                    links = tuple(link and link._replace(gone=link.gone | bit) for link in serving.links)
                    after = member._replace(
                        serving=serving._replace(leaving=serving.leaving | bit, links=links)
                    )
                    label = f"{name} delivers {_bits(bit)}, which is accepted"
                    yield Move(label, after, delivers=bit, accepts=bit)

    def _may_deliver(self, member: Member, serving: Serving, bit: int) -> bool:
        if not bit & serving.taken or not self.rules.delivers_what_is_settled:
            return True
        complete = bit & member.stored and self._acknowledged(serving, bit)
        return not self.rules.delivers_when_open and bool(complete) and serving.work is not None

    def _may_confirm(self, member: Member, serving: Serving, bit: int) -> bool:
        rules = self.rules
        waited_for = [link for link in serving.links if link and rules.waits(link.becoming)]
        lacking = rules.confirms_what_replicas_have and any(bit & link.gone for link in waited_for)
        stored = rules.confirms_what_is_stored and bit & member.stored
        return not lacking and not stored and (serving.work is None or not rules.confirms_when_open)

    def _acknowledged(self, serving: Serving, bit: int) -> bool:
        waited_for = [link for link in serving.links if link and self.rules.waits(link.becoming)]
        return all(bit & link.acknowledged for link in waited_for)

    def _go_alone(
        self, name: str, member: Member, serving: Serving, work: ShrinkInSync, record: ArbiterRecord
    ) -> Iterator[Move]:
        after, effect = member, NOTHING
        match work.step:
            case generation.NotePending(replicas, pending):
                label = f"{name} sends pending {_text(pending)} to {_names(replicas)}"
                effect = Effect(sender=name, replicas=replicas, order=pending)
            case generation.WritePending(state):
                label, after = f"{name} writes {_text(work.pending)}", member._replace(durable=state)
            case generation.CompareAndSet(expected, new):
                if expected == record and new.generation <= self.generations:
                    yield from self._leave_under_way(name, member)
                    won = serving._replace(work=work.compared(won=True))
                    yield self._won(name, member._replace(serving=won), new)
                return
            case generation.WriteGeneration(state):
                label, after = f"{name} writes number {state.generation}", member._replace(durable=state)
            case generation.HandOver(replicas, held):
                label = f"{name} sends {_text(held)} to {_names(replicas)}"
                effect = Effect(sender=name, replicas=replicas, order=held)
            case _:
                return
        after, renames = self._working(name, after, serving, work.finished(work.step))
        yield Move(label, after, effect=effect._replace(renames=renames))

    def _working(
        self, name: str, member: Member, serving: Serving, work: ShrinkInSync
    ) -> tuple[Member, tuple[tuple[str, str], ...]]:
        """Return the next step; a new round makes its claim, and the last round's has ended."""
        renames: tuple[tuple[str, str], ...] = ()
        if isinstance(work.step, generation.Done):
            serving = serving._replace(held=work.step.record, work=None)
            return member._replace(serving=serving), renames
        if isinstance(work.step, generation.MakeClaim):
            renames = self._ended(name, DEAD)
            member, serving = self._claims(member, renames), renamed(serving, dict(renames))
            work = renamed(work, dict(renames)).with_claim(self.rules.claim(name))
        return member._replace(serving=serving._replace(work=work)), renames

    # --- A primary and a replica -----------------------------------------------------------------

    def of_two(self, i: int, primary: Member, j: int, replica: Member) -> Iterator[Move]:
        """Yield the moves between a member that serves and another."""
        serving = primary.serving
        assert serving is not None
        link, one, two = serving.links[j], NAMES[i], NAMES[j]
        if link is None:
            yield from self._join(one, primary, serving, two, replica)
            return
        yield self._drop(one, primary, serving, two, replica)
        if replica.follows != one:
            return
        yield from self._replicate(primary, serving, link, two, replica)
        yield from self._become_ready(primary, serving, link, two, replica)
        if replica.inbox:
            yield self._execute(one, primary, serving, two, replica)

    def _join(self, one: str, primary: Member, serving: Serving, two: str, replica: Member) -> Iterator[Move]:
        if replica.follows is not None or replica.promotion is not None or replica.serving is not None:
            return
        number = primary.durable.generation
        assert number is not None
        primary_identity = PrimaryIdentity(number, serving.held.cluster)
        # A primary's record comes from the arbiter of its own cluster.
        if self.rules.may_follow(replica.durable, primary_identity, serving.held, not replica.stored) is None:
            erased = Member(self.rules.erase(replica.durable, serving.held.cluster), replica.stored, one)
            linked = _linked(serving, two, Link(BecomeReady(two), 0))
            yield Move(f"{two} erases, follows {one}", primary._replace(serving=linked), erased)

    def _drop(self, one: str, primary: Member, serving: Serving, two: str, replica: Member) -> Move:
        """Drop a replica that has gone, or that takes too long."""
        ready = serving.ready
        if replica.inbox and not self.rules.counts_from_sending:
            ready -= {two}
        serving = _linked(serving, two, None)
        work, renames = serving.work, ()
        if work is not None:
            work = work.dropped(two)
        elif self.rules.must_shrink(ready, two):
            work = self.rules.begin_shrink(primary.durable, serving.held, ready - {two})
        primary = primary._replace(serving=serving)
        if work is not None and work != serving.work:
            primary, renames = self._working(one, primary, serving, work)
        if replica.follows == one:
            replica = replica._replace(follows=None)
        return Move(f"{one} drops {two}", primary, self._claims(replica, renames), Effect(renames))

    def _replicate(
        self, primary: Member, serving: Serving, link: Link, two: str, replica: Member
    ) -> Iterator[Move]:
        content = primary.stored & ~serving.leaving | serving.taken
        if not link.becoming.counts and not link.acknowledged:
            for left, label in ((replica.stored & content, "what the primary lacks"), (0, "all")):
                if left != replica.stored:
                    yield Move(f"{two} discards {label}", primary, replica._replace(stored=left))
        for bit in self._bits():
            news = bit & serving.taken & ~link.acknowledged
            if news or bit & content & ~replica.stored:
                linked = _linked(serving, two, link._replace(acknowledged=link.acknowledged | news))
                stored = replica._replace(stored=replica.stored | bit)
                yield Move(
                    f"{two} stores and acknowledges {_bits(bit)}", primary._replace(serving=linked), stored
                )

        for bit in self._bits():
            if bit & link.gone:
                linked = _linked(serving, two, link._replace(gone=link.gone & ~bit))
                removed = replica._replace(stored=replica.stored & ~bit)
                label = f"{two} removes {_bits(bit)} and acknowledges that"
                yield Move(label, primary._replace(serving=linked), removed)

    def _become_ready(
        self, primary: Member, serving: Serving, link: Link, two: str, replica: Member
    ) -> Iterator[Move]:
        becoming = link.becoming
        match becoming.step:
            case generation.StartWaiting():
                if self.asides:
                    turned = link._replace(aside=not link.aside)
                    label = f"a queue of {two} is {'copied again' if link.aside else 'set aside'}"
                    yield Move(label, primary._replace(serving=_linked(serving, two, turned)), replica)
                if link.aside and self.rules.lacks_what_is_aside:
                    return
                content = primary.stored & ~serving.leaving | serving.taken
                if link.aside or not replica.stored & ~content & ~link.gone:
                    waiting = link._replace(becoming=becoming.finished(becoming.step))
                    after = primary._replace(serving=_linked(serving, two, waiting))
                    yield Move(f"the primary starts to wait for {two}", after, replica)
            case generation.AwaitDrained():
                settled = primary.stored & ~serving.taken & ~serving.leaving
                drained = link.aside or not settled & ~replica.stored or not self.rules.drains
                surplus = replica.stored & ~(primary.stored | serving.taken | serving.leaving)
                if drained and (link.aside or not surplus or not self.rules.drains_dequeues):
                    after = link._replace(becoming=becoming.finished(becoming.step))
                    linked = primary._replace(serving=_linked(serving, two, after))
                    yield Move(f"{two} has acknowledged all that was settled before", linked, replica)
            case generation.AwaitNoShrink() if serving.work is None:
                yield self._hand_over(primary, serving, link, two, replica)

    def _hand_over(self, primary: Member, serving: Serving, link: Link, two: str, replica: Member) -> Move:
        becoming = link.becoming.finished(link.becoming.step, record=serving.held)
        assert isinstance(becoming.step, generation.HandOver)
        held = becoming.step.record
        ready = link._replace(becoming=becoming.finished(becoming.step))
        sent = replica._replace(inbox=(*replica.inbox, held))
        after = primary._replace(serving=_linked(serving, two, ready))
        return Move(f"the primary sends {_text(held)} to {two}", after, sent)

    def _execute(self, one: str, primary: Member, serving: Serving, two: str, replica: Member) -> Move:
        order, work = replica.inbox[0], serving.work
        renames: tuple[tuple[str, str], ...] = ()
        if work is not None and isinstance(order, Pending):
            primary, renames = self._working(one, primary, serving, work.noted(two, order))
        label = f"{two} carries out {'pending ' if isinstance(order, Pending) else ''}{_text(order)}"
        return Move(label, primary, self._claims(carried_out(self.rules, replica), renames), Effect(renames))

    # --- Shared helpers -------------------------------------------------------------------------------

    def _ended(self, name: str, now: str) -> tuple[tuple[str, str], ...]:
        cluster = DEAD if now == DEAD else OURS
        return ((LIVE + name, now), (MADE_BY + name, cluster)) if self.rules.renames else ()

    def _claims(self, member: Member, renames: tuple[tuple[str, str], ...]) -> Member:
        renewed: Member = renamed(member, dict(renames)) if renames else member
        return renewed

    def _bits(self) -> tuple[int, ...]:
        return tuple(1 << n for n in range(self.messages))


def carried_out(rules: Rules, member: Member) -> Member:
    """Return the member after it executes its first command."""
    order = member.inbox[0]
    if isinstance(order, Pending):
        durable = rules.note_pending(member.durable, order)
    else:
        durable = rules.hand_over(member.durable, order)
    return member._replace(durable=durable, inbox=member.inbox[1:])


def _linked(serving: Serving, name: str, link: Link | None) -> Serving:
    j = NAMES.index(name)
    return serving._replace(links=(*serving.links[:j], link, *serving.links[j + 1 :]))


def _settled(member: Member, serving: Serving, bit: int) -> Member:
    links = tuple(link and link._replace(acknowledged=link.acknowledged & ~bit) for link in serving.links)
    return member._replace(serving=serving._replace(taken=serving.taken & ~bit, links=links))


def _text(asked: ArbiterRecord | Pending | None) -> str:
    return "nothing" if asked is None else f"({asked.generation}, {asked.claim or '-'})"


def _names(replicas: frozenset[str]) -> str:
    return ", ".join(sorted(replicas)) or "nobody"


def _bits(bits: int) -> str:
    return "m" + "+m".join(str(n + 1) for n in range(bits.bit_length()) if bits >> n & 1)
