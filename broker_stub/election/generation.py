"""The election of the primary: generations, claims, and the order in which they are written. No I/O.

This module has the rules and the state machines that follow them; ``decisions`` has the decisions. The broker
executes the steps that :class:`Promotion`, :class:`ShrinkInSync` and :class:`BecomeReady` yield. The model
test in ``tests/broker_stub/election/model`` explores the same objects, with a crash between any two steps.

The arbiter holds one record, *(generation, claim, cluster)*, changed only by compare-and-set. A claim is an
id that is never used twice. *cluster* is a UUID that the first promotion makes and that never changes. A
member stores its own *generation* (or none) with its claim and cluster, and at most one *pending*
(generation, claim). A member is *eligible* if its generation, claim and cluster equal the arbiter's, or if
its pending equals the arbiter's generation and claim.

Rules
-----
The rules preserve two properties: every eligible member has every settled message, and there is always an
eligible member.

1. **Promotion.** Only an eligible member may become primary. It first stops following its primary, then
   writes pending = (n+1, fresh claim), compares-and-sets, and writes n+1 as its own generation.

   * *Pending before the compare-and-set*: otherwise, if the member dies right after the compare-and-set, it
     is not eligible, and neither is any other member.
   * *With a claim*: suppose A writes pending n+1 and dies, and B takes n+1 and settles alone. By the
     generation alone A would count as eligible, but it lacks the messages that B settled.
   * *A member that is eligible by its pending writes that generation as its own in the same write*: the new
     pending overwrites the evidence. After a crash before the compare-and-set, no member would be eligible.
   * *Stops following first*: a pending that its primary sends would overwrite its own.

2. **Shrinking the in-sync set.** If **any** ready replica drops, the primary settles nothing until the
   following steps are done with a fresh claim. First every remaining ready replica notes the pending, then
   the primary itself. Then the primary compares-and-sets, starting from the record that it won itself, and
   writes the generation. Finally it hands the generation to the remaining replicas.

   * *Any, not only the last*: of three members, C drops, and A settles with B alone. C still has the
     arbiter's generation, is promoted, and lacks the settled messages.
   * *A fresh claim each round*: B notes a pending and drops; the round is repeated without B and wins. With
     the same claim B would be eligible, but lack all messages settled from then on.
   * *The remaining replicas note it first*: otherwise none is eligible if the primary dies for good.
   * *From the record it won*: a stale primary that reads the record again would succeed the newer primary.
   * *Handed over before the next round*: a second pending overwrites the first one at the replica.
   * *Only to replicas that never dropped*: a replica that has just rejoined is in catch-up, with a partial
     store.

3. **Stepping down.** If the compare-and-set fails, or its outcome is unknown, the primary settles nothing
   more and steps down. Its pending shows later whether it had won.

   * If the arbiter executes a request long after its member gave up, nothing is lost. But if the member has
     overwritten its pending by then, no member may be eligible, and only force helps. So an arbiter should
     cancel a request when its caller gives up.

4. **Becoming ready.** The primary first makes messages wait for the replica's acknowledgements. It hands
   over the generation when everything settled before is acknowledged too, and the in-sync set is not being
   shrunk. The replica counts as ready from the moment of sending. A replica erases its generation **and its
   pending** before it discards anything from its store, and discards before it acknowledges. It follows no
   primary whose generation is lower than its own generation or pending.

   * *Waiting before the generation*: an eligible member would lack the messages settled in between.
   * *Counted from the sending*: the generation may have arrived though its acknowledgement was lost.
   * *Not while shrinking the in-sync set*: it would get a generation that is outdated a moment later.
   * *The pending too*: it may be the arbiter's record, which would make a partial store eligible.
   * *No lower primary*: A takes over from B, which is paused, then settles alone and restarts. B wakes up;
     A would follow B and discard the only copy.

5. **One cluster.** A member follows only a primary of its store's cluster, and asks only an arbiter of that
   cluster. A store without a cluster adopts the primary's before it discards anything, if this member's own
   arbiter has the same cluster. If the store is not empty, its generation must also be the one at which the
   UUID was made (``origin``): only stores of the version without UUIDs are in that state.

   * *Follows*: started with another cluster's list, a member would discard the only copy of its own data.
   * *Asks*: the generations of two clusters are small numbers, and may be equal by chance.
   * *The arbiter's*: the list alone may be wrong.
   * *The claim with the generation*: an arbiter restored from a copy grants the same generation again.

6. **Superseded.** A primary steps down if it reads a record that it neither won nor asked for: another member
   was forced to be primary. Records of other clusters or lower generations do not count. If the arbiter
   cannot be read, nothing changes, since a primary needs it only when a replica drops.
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

    Each event returns a new object; an event that does not fit the current step changes nothing.

    :param state: this member's durable state once the current step is executed.
    """

    state: GenerationState
    record: ArbiterRecord
    wanted: ArbiterRecord
    step: PromotionStep

    @classmethod
    def begin(cls, state: GenerationState, record: ArbiterRecord, claim: str, cluster: str) -> Promotion:
        """Begin a promotion of a member that no longer follows a primary.

        :param record: the arbiter's current record.
        :param claim: an id that was never used.
        :param cluster: a UUID that was never used, for a cluster that has none yet.
        """
        refusal = may_promote(state, record)
        if refusal is not None:
            return cls(state, record, record, Refused(refusal))
        return cls._begin(adopt(state, record), record, propose(record, claim), cluster)

    @classmethod
    def forced(cls, state: GenerationState, record: ArbiterRecord, claim: str, cluster: str) -> Promotion:
        """Begin a forced promotion (``--force-primary``) that skips rule 1.

        Another cluster's arbiter refuses it.

        Messages missing in this store are lost. So are messages that a running primary settles until it reads
        the arbiter again (rule 6); stop that primary first.
        """
        wrong = other_cluster(state, record)
        if wrong is not None:
            return cls(state, record, record, Refused(wrong))
        # Above every generation known here: the arbiter may have been restored from an older copy.
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
        """Continue after a step was executed."""
        if step == self.step and isinstance(step, WritePending):
            return replace(self, step=CompareAndSet(self.record, self.wanted))
        if step == self.step and isinstance(step, WriteGeneration):
            return replace(self, step=Done(self.wanted))
        return self

    def compared(self, *, won: bool) -> Promotion:
        """Continue with the result of the compare-and-set."""
        if not isinstance(self.step, CompareAndSet):
            return self
        if not won:
            return self.unreachable(f"generation {self.wanted.generation} was taken by another member")
        state = claimed(self.wanted)
        return replace(self, state=state, step=WriteGeneration(state))

    def unreachable(self, reason: str) -> Promotion:
        """Refuse, because the arbiter did not answer.

        The next promotion shows whether it granted the request.
        """
        asked = f"this member asked for generation {self.wanted.generation} after {self.record.generation}"
        return replace(self, step=Refused(Refusal(f"{asked}: {reason}")))


@dataclass(frozen=True, slots=True)
class ShrinkInSync:
    """Continuing without a replica that was ready; the guard is suspended from ``begin`` until ``Done``.

    Steps: MakeClaim, NotePending, AwaitNoted, WritePending, CompareAndSet, WriteGeneration, HandOver, then
    Done. If another replica dropped meanwhile, MakeClaim follows instead of Done. On failure: StepDown.

    :param state: this member's durable state once the current step is executed.
    :param held: the record that this primary won last.
    :param remaining: the replicas that are still ready.
    :param again: true if one of them dropped after the arbiter may have been asked: it may be eligible.
    """

    state: GenerationState
    held: ArbiterRecord
    remaining: frozenset[str]
    pending: Pending | None = None
    again: bool = False
    step: ShrinkInSyncStep = field(default_factory=MakeClaim)

    @classmethod
    def begin(cls, state: GenerationState, held: ArbiterRecord, remaining: frozenset[str]) -> ShrinkInSync:
        """Begin after a ready replica dropped, which is not among the remaining."""
        return cls(state, held, remaining)

    def with_claim(self, claim: str) -> ShrinkInSync:
        """Set the claim of this round, an id that was never used."""
        if not isinstance(self.step, MakeClaim):
            return self
        pending = propose(self.held, claim)
        if self.remaining:
            return replace(self, pending=pending, step=NotePending(self.remaining, pending))
        return self._write(pending)

    def noted(self, replica: str, pending: Pending) -> ShrinkInSync:
        """Note that a replica has a pending durably; a pending of an earlier round does not count."""
        if not isinstance(self.step, AwaitNoted) or pending != self.pending:
            return self
        missing = self.step.replicas - {replica}
        return replace(self, step=AwaitNoted(missing)) if missing else self._write(pending)

    def dropped(self, replica: str) -> ShrinkInSync:
        """Handle the drop of a further replica."""
        if replica not in self.remaining or isinstance(self.step, StepDown):
            return self
        remaining = self.remaining - {replica}
        if isinstance(self.step, MakeClaim | NotePending | AwaitNoted | WritePending):
            return replace(self, remaining=remaining, pending=None, step=MakeClaim())
        # If the replica rejoins at once, it is in catch-up: the generation must not reach it on its new link.
        step = HandOver(remaining, self.held) if isinstance(self.step, HandOver) else self.step
        return replace(self, remaining=remaining, again=True, step=step)

    def finished(self, step: object) -> ShrinkInSync:
        """Continue after a step was executed."""
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
        """Continue with the result of the compare-and-set."""
        if not isinstance(self.step, CompareAndSet) or self.pending is None:
            return self
        if not won:
            return self.unreachable(f"generation {self.pending.generation} was taken by another member")
        state = claimed(self._wanted(self.pending))
        return replace(self, state=state, step=WriteGeneration(state))

    def unreachable(self, reason: str) -> ShrinkInSync:
        """Step down: the arbiter did not answer, or a durable write failed."""
        return replace(self, step=StepDown(f"generation {self.held.generation} has ended: {reason}"))

    def _wanted(self, pending: Pending) -> ArbiterRecord:
        return replace(self.held, generation=pending.generation, claim=pending.claim)

    def _write(self, pending: Pending) -> ShrinkInSync:
        state = note_pending(self.state, pending)
        return replace(self, state=state, pending=pending, step=WritePending(state))


@dataclass(frozen=True, slots=True)
class BecomeReady:
    """The steps of a replica in catch-up that becomes ready, from StartWaiting to IsReady."""

    replica: str
    step: BecomeReadyStep = field(default_factory=StartWaiting)

    @property
    def counts(self) -> bool:
        """Return whether nothing is settled without its acknowledgement."""
        return not isinstance(self.step, StartWaiting)

    @property
    def ready(self) -> bool:
        """Return whether rule 2 applies to its drop, which begins just before the generation is sent."""
        return isinstance(self.step, HandOver | IsReady)

    def finished(self, step: object, *, record: ArbiterRecord | None = None) -> BecomeReady:
        """Continue after a step was executed.

        :param record: with ``AwaitNoShrink``: the primary's current record.
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
