"""The decisions that the model asks for.  ``RULES`` are the broker's; a mutant replaces one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from broker_stub.election import generation
from broker_stub.election.generation import ArbiterRecord, BecomeReady, GenerationState, Promotion, Refusal

LIVE, DEAD, RECORD, LATE = "claim of ", "dead", "record", "late"


def fresh(member: str) -> str:
    """A claim that was never used.

    A claim matters only by being equal to the arbiter's, or to one that somebody may still ask for.
    So the model calls it after the member that asks, and renames it when that has ended: ``record``
    once the arbiter has it, ``dead`` when it never will.  That keeps the states finite and loses none.
    """
    return LIVE + member


@dataclass(frozen=True, slots=True)
class Rules:
    """What the model asks.

    :param claim: the claim of a member's next attempt.
    :param renames: whether claims are renamed as ``fresh`` says; not if they can come again.
    :param waits: whether a primary waits for the acknowledgements of a replica.
    :param drains: whether what was settled before that must be acknowledged before the number is sent.
    :param leaves_first: whether who is promoted first leaves its primary.
    :param counts_from_sending: whether a replica is ready when the number is sent, or when it has it.
    """

    may_promote: Callable[[GenerationState, ArbiterRecord], Refusal | None] = generation.may_promote
    may_follow: Callable[[GenerationState, int], Refusal | None] = generation.may_follow
    must_shrink: Callable[[frozenset[str], str], bool] = generation.must_shrink
    erase: Callable[[GenerationState], GenerationState] = generation.erase
    hand_over: Callable[[GenerationState, int], GenerationState] = generation.hand_over
    note_pending: Callable[[GenerationState, generation.Pending], GenerationState] = generation.note_pending
    begin_promotion: Callable[[GenerationState, ArbiterRecord, str], Promotion] = Promotion.begin
    begin_shrink: Callable[[GenerationState, ArbiterRecord, frozenset[str]], generation.ShrinkInSync] = (
        generation.ShrinkInSync.begin
    )
    claim: Callable[[str], str] = fresh
    renames: bool = True
    waits: Callable[[BecomeReady], bool] = lambda becoming: becoming.counts
    drains: bool = True
    leaves_first: bool = True
    counts_from_sending: bool = True


RULES = Rules()

# The three that issue 3 names.
WITHOUT_CLAIM = replace(RULES, claim=lambda _: "", renames=False)
CLAIMS_REUSED = replace(RULES, claim=lambda member: LIVE + member, renames=False)
ONLY_THE_LAST = replace(RULES, must_shrink=lambda ready, dropped: ready == {dropped})


def _promotion_without_adopting(state: GenerationState, record: ArbiterRecord, claim: str) -> Promotion:
    if generation.may_promote(state, record) is not None:
        return Promotion.begin(state, record, claim)
    return Promotion.forced(state, record, claim)


# The rest of the rules, one left out at a time.
ANYBODY_PROMOTED = replace(RULES, may_promote=lambda _state, _record: None, begin_promotion=Promotion.forced)
PENDING_NOT_ADOPTED = replace(RULES, begin_promotion=_promotion_without_adopting)
PENDING_NOT_ERASED = replace(RULES, erase=lambda state: replace(state, generation=None))
NUMBER_NOT_ERASED = replace(RULES, erase=lambda state: state)
ANY_PRIMARY_FOLLOWED = replace(RULES, may_follow=lambda _state, _primary: None)
NEVER_ALONE = replace(RULES, must_shrink=lambda _ready, _dropped: False)
WAITING_TOO_LATE = replace(RULES, waits=lambda becoming: becoming.ready)
READY_WHEN_IT_HAS_THE_NUMBER = replace(RULES, counts_from_sending=False)
PROMOTED_WHILE_FOLLOWING = replace(RULES, leaves_first=False)
HANDED_OVER_UNDRAINED = replace(RULES, drains=False)
REPLICAS_NOTE_NOTHING = replace(RULES, note_pending=lambda state, _pending: state)

MUTANTS = {
    "without-claim": WITHOUT_CLAIM,
    "claims-reused": CLAIMS_REUSED,
    "only-the-last": ONLY_THE_LAST,
    "anybody-promoted": ANYBODY_PROMOTED,
    "pending-not-adopted": PENDING_NOT_ADOPTED,
    "pending-not-erased": PENDING_NOT_ERASED,
    "number-not-erased": NUMBER_NOT_ERASED,
    "any-primary-followed": ANY_PRIMARY_FOLLOWED,
    "never-alone": NEVER_ALONE,
    "waiting-too-late": WAITING_TOO_LATE,
    "ready-when-it-has-the-number": READY_WHEN_IT_HAS_THE_NUMBER,
    "promoted-while-following": PROMOTED_WHILE_FOLLOWING,
    "handed-over-undrained": HANDED_OVER_UNDRAINED,
    "replicas-note-nothing": REPLICAS_NOTE_NOTHING,
}
