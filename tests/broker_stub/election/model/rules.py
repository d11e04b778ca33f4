"""The decisions that the model uses.  ``RULES`` are the broker's; a mutant replaces one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from broker_stub.election import generation
from broker_stub.election.generation import (
    ArbiterRecord,
    BecomeReady,
    GenerationState,
    Pending,
    PrimaryIdentity,
    Promotion,
    Refusal,
)
from haclient.discovery import topology
from haclient.discovery.evidence import Claimed, Evidence, OnlyStaleServed
from haclient.discovery.topology import Topology

LIVE, DEAD, RECORD, LATE = "claim of ", "dead", "record", "late"
# UUIDs of clusters: one that a member may make, the one that was made, and another cluster's.
MADE_BY, OURS, THEIRS = "cluster of ", "ours", "theirs"


def fresh(member: str) -> str:
    """Return an unused claim.

    A claim matters only by being equal to the arbiter's, or to one that a member may still request.
    So the model names it after the requesting member, and renames it when the request has ended: ``record``
    once the arbiter has it, ``dead`` when it never will.  That keeps the states finite and loses none.
    """
    return LIVE + member


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of the model.

    :param claim: the claim of a member's next attempt.
    :param renames: True to rename claims as ``fresh`` says; False if claims can recur.
    :param waits: True if a primary waits for the acknowledgements of a replica.
    :param drains: True if earlier settlements must be acknowledged before the number is sent.
    :param lacks_what_is_aside: True if a replica stays in catch-up while one of its queues is set aside.
    :param delivers_what_is_settled: True if consumers get settled or inherited messages, and no others.
    :param delivers_when_open: True if messages completed while the in-sync set shrinks are delivered later.
    :param drains_dequeues: True if a replica has the dequeues of its catch-up before the number is sent.
    :param confirms_what_is_stored: True if an accept is confirmed when the own store has the dequeue;
        ``confirms_what_replicas_have``: when the required replicas have it;
        ``confirms_when_open``: not while the in-sync set shrinks.
    :param leaves_first: True if a promoted backup leaves its primary first.
    :param superseded: why a primary that read a record of the arbiter steps down.
    :param counts_from_sending: True if a replica is ready when the number is sent, False when it has it.
    :param learn: the client's conclusion from a member that serves.
    """

    may_promote: Callable[[GenerationState, ArbiterRecord], Refusal | None] = generation.may_promote
    may_follow: Callable[[GenerationState, PrimaryIdentity, ArbiterRecord, bool], Refusal | None] = (
        lambda state, primary, arbiter, empty: generation.may_follow(
            state, primary, arbiter=arbiter, empty=empty
        )
    )
    must_shrink: Callable[[frozenset[str], str], bool] = generation.must_shrink
    erase: Callable[[GenerationState, str], GenerationState] = generation.erase
    hand_over: Callable[[GenerationState, ArbiterRecord], GenerationState] = generation.hand_over
    note_pending: Callable[[GenerationState, generation.Pending], GenerationState] = generation.note_pending
    begin_promotion: Callable[[GenerationState, ArbiterRecord, str, str], Promotion] = Promotion.begin
    superseded: Callable[[ArbiterRecord, Pending | None, ArbiterRecord], str | None] = generation.superseded
    begin_shrink: Callable[[GenerationState, ArbiterRecord, frozenset[str]], generation.ShrinkInSync] = (
        generation.ShrinkInSync.begin
    )
    claim: Callable[[str], str] = fresh
    renames: bool = True
    waits: Callable[[BecomeReady], bool] = lambda becoming: becoming.counts
    drains: bool = True
    lacks_what_is_aside: bool = True
    delivers_what_is_settled: bool = True
    delivers_when_open: bool = True
    drains_dequeues: bool = True
    confirms_what_is_stored: bool = True
    confirms_what_replicas_have: bool = True
    confirms_when_open: bool = True
    leaves_first: bool = True
    counts_from_sending: bool = True
    learn: Callable[[Topology, Evidence], Topology] = topology.update


RULES = Rules()

# Three rules that are easily left out.
WITHOUT_CLAIM = replace(RULES, claim=lambda _: "", renames=False)
CLAIMS_REUSED = replace(RULES, claim=lambda member: LIVE + member, renames=False)
ONLY_THE_LAST = replace(RULES, must_shrink=lambda ready, dropped: ready == {dropped})


def _promotion_without_adopting(
    state: GenerationState, record: ArbiterRecord, claim: str, cluster: str
) -> Promotion:
    if generation.may_promote(state, record) is not None:
        return Promotion.begin(state, record, claim, cluster)
    return Promotion.forced(state, record, claim, cluster)


def _promotion_by_any_arbiter(
    state: GenerationState, record: ArbiterRecord, claim: str, cluster: str
) -> Promotion:
    if state.generation == record.generation:
        state = replace(state, claim=record.claim, cluster=record.cluster)
    return Promotion.begin(state, record, claim, cluster)


def _followed_by_number_alone(
    state: GenerationState, primary: PrimaryIdentity, arbiter: ArbiterRecord, empty: bool
) -> Refusal | None:
    state, arbiter = replace(state, cluster=primary.cluster), replace(arbiter, cluster=primary.cluster)
    return generation.may_follow(state, primary, arbiter=arbiter, empty=empty)


def _followed_without_the_arbiters_word(
    state: GenerationState, primary: PrimaryIdentity, arbiter: ArbiterRecord, empty: bool
) -> Refusal | None:
    arbiter = replace(arbiter, cluster=primary.cluster)
    return generation.may_follow(state, primary, arbiter=arbiter, empty=empty)


def _followed_though_it_is_lower(
    state: GenerationState, primary: PrimaryIdentity, arbiter: ArbiterRecord, empty: bool
) -> Refusal | None:
    known = replace(state, generation=None, pending=None)
    return generation.may_follow(known, primary, arbiter=arbiter, empty=empty)


def _superseded_by_its_own_claim(
    held: ArbiterRecord, _asked: Pending | None, read: ArbiterRecord
) -> str | None:
    return generation.superseded(held, None, read)


# The rest of the rules, one left out at a time.
ANYBODY_PROMOTED = replace(RULES, may_promote=lambda _state, _record: None, begin_promotion=Promotion.forced)
PENDING_NOT_ADOPTED = replace(RULES, begin_promotion=_promotion_without_adopting)
PENDING_NOT_ERASED = replace(
    RULES, erase=lambda state, cluster: replace(state, generation=None, claim="", cluster=cluster)
)
NUMBER_NOT_ERASED = replace(RULES, erase=lambda state, cluster: replace(state, cluster=cluster))
ANY_PRIMARY_FOLLOWED = replace(RULES, may_follow=_followed_though_it_is_lower)
ANY_CLUSTER_FOLLOWED = replace(RULES, may_follow=_followed_by_number_alone)
ARBITER_NOT_COMPARED = replace(RULES, may_follow=_followed_without_the_arbiters_word)
ANY_ARBITER_ASKED = replace(RULES, begin_promotion=_promotion_by_any_arbiter)
ARBITER_NEVER_REREAD = replace(RULES, superseded=lambda _held, _asked, _read: None)
SUPERSEDED_BY_ITSELF = replace(RULES, superseded=_superseded_by_its_own_claim)
NEVER_ALONE = replace(RULES, must_shrink=lambda _ready, _dropped: False)
WAITING_TOO_LATE = replace(RULES, waits=lambda becoming: becoming.ready)
READY_WHEN_IT_HAS_THE_NUMBER = replace(RULES, counts_from_sending=False)
PROMOTED_WHILE_FOLLOWING = replace(RULES, leaves_first=False)
HANDED_OVER_UNDRAINED = replace(RULES, drains=False)
READY_WITH_ONE_ASIDE = replace(RULES, lacks_what_is_aside=False)
DELIVERED_UNSETTLED = replace(RULES, delivers_what_is_settled=False)
DELIVERED_WHILE_SHRINKING = replace(RULES, delivers_when_open=False)
DEQUEUES_NOT_DRAINED = replace(RULES, drains_dequeues=False)
CONFIRMED_UNSTORED = replace(RULES, confirms_what_is_stored=False)
CONFIRMED_UNREPLICATED = replace(RULES, confirms_what_replicas_have=False)
CONFIRMED_WHILE_SHRINKING = replace(RULES, confirms_when_open=False)
TRUST_IGNORED = replace(
    RULES,
    learn=lambda known, fact: topology.update(
        known, replace(fact, proven=False) if isinstance(fact, Claimed) else fact
    ),
)
ANY_GENERATION_USED = replace(
    RULES, learn=lambda known, fact: topology.update(replace(known, generations=(), proven=()), fact)
)
NEVER_FORGOTTEN = replace(
    RULES,
    learn=lambda known, fact: known if isinstance(fact, OnlyStaleServed) else topology.update(known, fact),
)
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
    "ready-with-one-aside": READY_WITH_ONE_ASIDE,
    "delivered-unsettled": DELIVERED_UNSETTLED,
    "delivered-while-shrinking": DELIVERED_WHILE_SHRINKING,
    "dequeues-not-drained": DEQUEUES_NOT_DRAINED,
    "confirmed-unstored": CONFIRMED_UNSTORED,
    "confirmed-unreplicated": CONFIRMED_UNREPLICATED,
    "confirmed-while-shrinking": CONFIRMED_WHILE_SHRINKING,
    "replicas-note-nothing": REPLICAS_NOTE_NOTHING,
    "any-cluster-followed": ANY_CLUSTER_FOLLOWED,
    "arbiter-not-compared": ARBITER_NOT_COMPARED,
    "any-arbiter-asked": ANY_ARBITER_ASKED,
    "arbiter-never-reread": ARBITER_NEVER_REREAD,
    "superseded-by-itself": SUPERSEDED_BY_ITSELF,
    "trust-ignored": TRUST_IGNORED,
    "any-generation-used": ANY_GENERATION_USED,
    "never-forgotten": NEVER_FORGOTTEN,
}
