"""Who may be primary: generations, claims, and the order in which they are written.  No I/O.

The rules, and the machines that keep them; the decisions that they take are in ``decisions``.  The broker
executes the steps that :class:`Promotion`, :class:`ShrinkInSync` and :class:`BecomeReady` yield, and the
model test in ``tests/broker_stub/election/model`` explores the same objects with a crash between any two
steps.

The arbiter holds one record, *(generation, claim, cluster)*, changed only by compare-and-set.  A claim is an
id that is never used twice; *cluster* is a UUID that the first promotion makes and that never changes.  A
member keeps its own *generation* (or none) with its claim and its cluster, and at most one *pending*
(generation, claim).  A member is *eligible* while its generation, claim and cluster equal the arbiter's, or
its pending equals the arbiter's generation and claim.

Rules
-----
They keep two things true: every eligible member has every settled message, and there is always one.

1. **Promotion.**  Only an eligible member may become primary.  It leaves the primary it follows, writes
   pending = (n+1, fresh claim), compares-and-sets, then writes n+1 as its own generation.

   * *Pending before the compare-and-set*: a member that dies right after it
     would otherwise not be eligible, and no member is.
   * *With a claim*: A writes pending n+1 and dies; B takes n+1 and settles alone.  By the generation alone
     A would pass for eligible, and lacks what B settled.
   * *A member that is eligible by its pending writes that generation as its own in the same write*: the
     new pending overwrites the evidence, and a crash before the compare-and-set would leave none eligible.
   * *Leaving first*: a pending that its primary sends would overwrite its own.

2. **Shrinking the in-sync set.**  When **any** ready replica drops, the primary settles nothing until, with
   a fresh claim: every replica that remains ready has noted the pending, then itself; it has
   compared-and-set, from the record that it won itself; it has written the generation.  Then it hands the
   generation to them.

   * *Any, not the last*: of three, C drops and A settles with B alone.  C still has the arbiter's
     generation, is promoted, and lacks what was settled.
   * *A fresh claim each round*: B notes a pending and drops, the round is made anew without B and wins;
     with the same claim B would be eligible, and lacks what is settled from then on.
   * *The remaining ones note it first*: else they are not eligible if the primary dies for good after it.
   * *From the record it won*: a stale primary that reads the record anew would succeed the newer one.
   * *Handed over before the next round*: a second pending overwrites the first one at the replica.
   * *Only to those that never dropped*: one that is back at once is in catch-up, and has half a store.

3. **Stepping down.**  If the compare-and-set fails, or its outcome is not known, the primary settles
   nothing more and steps down.  Its pending shows later whether it had won.

   * A request that the arbiter executes long after its member gave up loses nothing.  But if the member has
     overwritten its pending by then, there may be no eligible member, and only force helps.  So an arbiter
     should give up what its caller gave up.

4. **Becoming ready.**  The primary first waits for the replica's acknowledgements, and when all that was
   settled before is acknowledged too, and the in-sync set is not being shrunk, it hands over the
   generation.  From the moment of sending the replica counts as ready.  A replica erases its
   generation **and its pending**
   before anything is discarded from its store, discards before it acknowledges, and follows no primary whose
   generation is lower than its own generation or pending.

   * *Waiting before the generation*: what is settled in between would be missing at an eligible member.
   * *Counted from the sending*: the generation may have arrived though its acknowledgement was lost.
   * *Not while shrinking the in-sync set*: it would get a generation that is the old one a moment later.
   * *The pending too*: it may be the arbiter's record, and its holder an eligible member with half a store.
   * *No lower primary*: A takes over from B, which is paused, and settles alone, and restarts.  B wakes
     up; A would follow B and discard the only copy.

5. **One cluster.**  A member follows only a primary of its store's cluster, and asks only an arbiter of that
   cluster.  A store without a cluster takes the primary's, before it discards anything, if this member's own
   arbiter holds the same one; and if the store is not empty, only if its generation is the one at which the
   UUID was made (``origin``): only stores of the version that had no UUID are like that.

   * *Follows*: started with the list of another cluster, a member would discard the only copy of its own.
   * *Asks*: the generations of two clusters are small numbers, and are equal by chance.
   * *The arbiter's*: the list alone may be wrong.
   * *The claim with the generation*: an arbiter that is restored from a copy gives the same generation again.

6. **Superseded.**  A primary that reads a record of its cluster that is neither the one it won nor the one
   that it asks for, and not of a lower generation, steps down: somebody forced another member.  An arbiter
   that cannot be read changes nothing, for a primary needs it only when a replica drops.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from broker_stub.election.decisions import (
    adopt,
    claimed,
    erase,
    hand_over,
    known_generation,
    may_follow,
    may_promote,
    must_shrink,
    note_pending,
    other_cluster,
    propose,
    superseded,
)
from broker_stub.election.generation_steps import (
    ArbiterRecord,
    AwaitDrained,
    AwaitNoShrink,
    AwaitNoted,
    BecomeReadyStep,
    CompareAndSet,
    Done,
    GenerationState,
    HandOver,
    IsReady,
    MakeClaim,
    NotePending,
    Pending,
    PrimaryIdentity,
    PromotionStep,
    Refusal,
    Refused,
    ShrinkInSyncStep,
    StartWaiting,
    StepDown,
    WriteGeneration,
    WritePending,
)

__all__ = [
    "ArbiterRecord",
    "AwaitDrained",
    "AwaitNoShrink",
    "AwaitNoted",
    "BecomeReady",
    "CompareAndSet",
    "Done",
    "GenerationState",
    "HandOver",
    "IsReady",
    "MakeClaim",
    "NotePending",
    "Pending",
    "PrimaryIdentity",
    "Promotion",
    "Refusal",
    "Refused",
    "ShrinkInSync",
    "StartWaiting",
    "StepDown",
    "WriteGeneration",
    "WritePending",
    "adopt",
    "claimed",
    "erase",
    "hand_over",
    "known_generation",
    "may_follow",
    "may_promote",
    "must_shrink",
    "note_pending",
    "other_cluster",
    "propose",
    "superseded",
]

# --- Machines: each has its ``step``, and gets the step's result ----------------------------------


@dataclass(frozen=True, slots=True)
class Promotion:
    """Becoming primary: WritePending, CompareAndSet, WriteGeneration, then Done; or Refused.

    Each event returns a new one; an event that does not fit the current step changes nothing.

    :param state: what this member has durably once the current step is executed.
    """

    state: GenerationState
    record: ArbiterRecord
    wanted: ArbiterRecord
    step: PromotionStep

    @classmethod
    def begin(cls, state: GenerationState, record: ArbiterRecord, claim: str, cluster: str) -> Promotion:
        """What a member does on a promote command, when it follows no primary any more.

        :param record: what the arbiter holds now.
        :param claim: an id that was never used.
        :param cluster: a UUID that was never used, for a cluster that has none yet.
        """
        refusal = may_promote(state, record)
        if refusal is not None:
            return cls(state, record, record, Refused(refusal))
        return cls._begin(adopt(state, record), record, propose(record, claim), cluster)

    @classmethod
    def forced(cls, state: GenerationState, record: ArbiterRecord, claim: str, cluster: str) -> Promotion:
        """``--force-primary``: the same without asking rule 1; another cluster's arbiter still refuses.

        What this store lacks is lost, and so is what a primary that still runs settles until it reads the
        arbiter again (rule 6).  It should be stopped first.
        """
        wrong = other_cluster(state, record)
        if wrong is not None:
            return cls(state, record, record, Refused(wrong))
        # Above all that this member knows of: the arbiter may have been restored from an older copy.
        pending = propose(max(record.generation, known_generation(state)), claim)
        return cls._begin(state, record, pending, cluster)

    @classmethod
    def _begin(
        cls, state: GenerationState, record: ArbiterRecord, pending: Pending, cluster: str
    ) -> Promotion:
        name = record.cluster or state.cluster
        origin = record.origin if name else record.generation
        wanted = ArbiterRecord(pending.generation, pending.claim, name or cluster, origin)
        state = note_pending(state, pending)
        return cls(state, record, wanted, WritePending(state))

    def finished(self, step: object) -> Promotion:
        """A step was executed."""
        if step == self.step and isinstance(step, WritePending):
            return replace(self, step=CompareAndSet(self.record, self.wanted))
        if step == self.step and isinstance(step, WriteGeneration):
            return replace(self, step=Done(self.wanted))
        return self

    def compared(self, *, won: bool) -> Promotion:
        """The arbiter answered."""
        if not isinstance(self.step, CompareAndSet):
            return self
        if not won:
            return self.unreachable(f"generation {self.wanted.generation} was taken by another member")
        state = claimed(self.wanted)
        return replace(self, state=state, step=WriteGeneration(state))

    def unreachable(self, reason: str) -> Promotion:
        """The arbiter did not answer.  Whether it did as asked shows at the next promotion."""
        asked = f"this member asked for generation {self.wanted.generation} after {self.record.generation}"
        return replace(self, step=Refused(Refusal(f"{asked}: {reason}")))


@dataclass(frozen=True, slots=True)
class ShrinkInSync:
    """Going on without a replica that was ready.  The guard is suspended from ``begin`` until ``Done``.

    MakeClaim, NotePending, AwaitNoted, WritePending, CompareAndSet, WriteGeneration, HandOver, then Done, or
    MakeClaim again if a replica dropped meanwhile; or StepDown.

    :param state: what this member has durably once the current step is executed.
    :param held: the record that this primary won last.
    :param remaining: the replicas that are still ready.
    :param again: one of them dropped when the arbiter may already have been asked: it may be eligible.
    """

    state: GenerationState
    held: ArbiterRecord
    remaining: frozenset[str]
    pending: Pending | None = None
    again: bool = False
    step: ShrinkInSyncStep = field(default_factory=MakeClaim)

    @classmethod
    def begin(cls, state: GenerationState, held: ArbiterRecord, remaining: frozenset[str]) -> ShrinkInSync:
        """A ready replica dropped, and is not among the remaining."""
        return cls(state, held, remaining)

    def with_claim(self, claim: str) -> ShrinkInSync:
        """The claim of this round: an id that was never used."""
        if not isinstance(self.step, MakeClaim):
            return self
        pending = propose(self.held, claim)
        if self.remaining:
            return replace(self, pending=pending, step=NotePending(self.remaining, pending))
        return self._write(pending)

    def noted(self, replica: str, pending: Pending) -> ShrinkInSync:
        """A replica has a pending durably; one of an earlier round does not count."""
        if not isinstance(self.step, AwaitNoted) or pending != self.pending:
            return self
        missing = self.step.replicas - {replica}
        return replace(self, step=AwaitNoted(missing)) if missing else self._write(pending)

    def dropped(self, replica: str) -> ShrinkInSync:
        """One of the remaining dropped too."""
        if replica not in self.remaining or isinstance(self.step, StepDown):
            return self
        remaining = self.remaining - {replica}
        if isinstance(self.step, MakeClaim | NotePending | AwaitNoted | WritePending):
            return replace(self, remaining=remaining, pending=None, step=MakeClaim())
        # Should it come back at once, it is in catch-up: the generation must not reach it on its new link.
        step = HandOver(remaining, self.held) if isinstance(self.step, HandOver) else self.step
        return replace(self, remaining=remaining, again=True, step=step)

    def finished(self, step: object) -> ShrinkInSync:
        """A step was executed."""
        if step != self.step or self.pending is None:
            return self
        match self.step:
            case NotePending(replicas):
                return replace(self, step=AwaitNoted(replicas))
            case WritePending():
                return replace(self, step=CompareAndSet(self.held, self._wanted(self.pending)))
            case WriteGeneration():
                held = self._wanted(self.pending)
                return replace(self, held=held, step=HandOver(self.remaining, held))
            case HandOver() if self.again:
                return ShrinkInSync.begin(self.state, self.held, self.remaining)
            case HandOver():
                return replace(self, step=Done(self.held))
        return self

    def compared(self, *, won: bool) -> ShrinkInSync:
        """The arbiter answered."""
        if not isinstance(self.step, CompareAndSet) or self.pending is None:
            return self
        if not won:
            return self.unreachable(f"generation {self.pending.generation} was taken by another member")
        state = claimed(self._wanted(self.pending))
        return replace(self, state=state, step=WriteGeneration(state))

    def unreachable(self, reason: str) -> ShrinkInSync:
        """The arbiter did not answer, or a durable write failed: settle nothing more."""
        return replace(self, step=StepDown(f"generation {self.held.generation} has ended: {reason}"))

    def _wanted(self, pending: Pending) -> ArbiterRecord:
        return replace(self.held, generation=pending.generation, claim=pending.claim)

    def _write(self, pending: Pending) -> ShrinkInSync:
        state = note_pending(self.state, pending)
        return replace(self, state=state, pending=pending, step=WritePending(state))


@dataclass(frozen=True, slots=True)
class BecomeReady:
    """A replica in catch-up becomes ready: its steps from StartWaiting to IsReady, in order."""

    replica: str
    step: BecomeReadyStep = field(default_factory=StartWaiting)

    @property
    def counts(self) -> bool:
        """Whether nothing is settled without its acknowledgement."""
        return not isinstance(self.step, StartWaiting)

    @property
    def ready(self) -> bool:
        """Whether rule 2 applies when it drops: from the moment before the generation is sent."""
        return isinstance(self.step, HandOver | IsReady)

    def finished(self, step: object, *, record: ArbiterRecord | None = None) -> BecomeReady:
        """A step was executed.

        :param record: with ``AwaitNoShrink``: the record of the primary now.
        """
        if step != self.step:
            return self
        match self.step:
            case StartWaiting():
                return replace(self, step=AwaitDrained())
            case AwaitDrained():
                return replace(self, step=AwaitNoShrink())
            case AwaitNoShrink() if record is not None:
                return replace(self, step=HandOver(frozenset((self.replica,)), record))
            case HandOver():
                return replace(self, step=IsReady())
        return self
