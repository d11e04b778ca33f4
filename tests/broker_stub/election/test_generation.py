"""The decisions on generations one by one, and the order of the steps.  ``model/`` combines them."""

from __future__ import annotations

import re

import pytest

from broker_stub.election.generation import (
    ArbiterRecord,
    AwaitDrained,
    AwaitNoShrink,
    AwaitNoted,
    BecomeReady,
    CompareAndSet,
    Done,
    GenerationState,
    HandOver,
    IsReady,
    MakeClaim,
    NotePending,
    Pending,
    PrimaryIdentity,
    Promotion,
    Refused,
    ShrinkInSync,
    StartWaiting,
    StepDown,
    WriteGeneration,
    WritePending,
    erase,
    hand_over,
    may_follow,
    may_promote,
    must_shrink,
    propose,
    superseded,
)

OURS, THEIRS = "the UUID of this cluster", "the UUID of another one"
RECORD = ArbiterRecord(3, "c", OURS)
NEXT = ArbiterRecord(4, "x", OURS)
BOTH = frozenset(("b", "c"))


def has(generation: int | None, pending: Pending | None = None, claim: str = "") -> GenerationState:
    """Make a member of this cluster; the claim of generation 3 is the record's."""
    return GenerationState(generation, pending, claim or ("c" if generation == 3 else ""), OURS)


AFTER = has(4, claim="x")

# --- Decisions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "state",
    [
        has(3),
        has(3, Pending(4, "x")),
        has(2, Pending(3, "c")),
        has(None, Pending(3, "c")),
    ],
)
def test_an_eligible_member_has_the_generation_or_the_whole_record_as_pending(state: GenerationState) -> None:
    assert may_promote(state, RECORD) is None


@pytest.mark.parametrize(
    ("state", "own"),
    [
        (has(2), "generation 2"),
        (has(4), "generation 4"),
        (has(None), "no generation"),
        (has(2, Pending(3, "another")), "generation 2"),
        (has(None, Pending(4, "c")), "no generation"),
    ],
)
def test_anybody_else_is_refused_with_both_generations(state: GenerationState, own: str) -> None:
    refusal = may_promote(state, RECORD)
    assert refusal is not None
    assert "arbiter is at generation 3" in str(refusal)
    assert f"this member has {own}:" in str(refusal)


def test_a_new_member_may_be_the_first_primary_of_a_new_cluster_only() -> None:
    assert may_promote(GenerationState(), ArbiterRecord()) is None
    assert may_promote(GenerationState(), ArbiterRecord(1, "a")) is not None


@pytest.mark.parametrize(
    ("state", "primary", "follows"),
    [
        (has(3), 3, True),
        (has(3), 4, True),
        (has(3), 2, False),
        (has(2, Pending(3, "x")), 2, False),
        (has(2, Pending(3, "x")), 3, True),
        (has(None), 1, True),
        (has(None, Pending(3, "x")), 2, False),
    ],
)
def test_a_member_follows_no_primary_below_what_it_knows(
    state: GenerationState, primary: int, follows: bool
) -> None:
    refusal = may_follow(state, PrimaryIdentity(primary, OURS), arbiter=None, empty=False)
    assert (refusal is None) == follows
    assert refusal is None or f"is of generation {primary} and this member knows of generation 3" in str(
        refusal
    )


def test_any_ready_replica_counts_when_it_drops_and_no_other() -> None:
    assert must_shrink(BOTH, "b")
    assert must_shrink(frozenset("b"), "b")
    assert not must_shrink(BOTH, "d")


def test_what_is_asked_for_is_the_next_generation() -> None:
    assert propose(RECORD, "x") == propose(3, "x") == Pending(4, "x")


def test_a_member_that_erases_is_not_eligible_in_any_way() -> None:
    assert erase(has(3, Pending(4, "x")), OURS) == has(None)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (has(None), AFTER),
        (has(3, Pending(4, "x")), AFTER),
        (has(3, Pending(5, "x")), has(4, Pending(5, "x"), "x")),
        (has(5, claim="y"), has(5, claim="y")),
    ],
)
def test_a_number_that_is_handed_over_never_goes_back(
    before: GenerationState, after: GenerationState
) -> None:
    assert hand_over(before, NEXT) == after


# --- One cluster --------------------------------------------------------------------------------

FORMER = GenerationState(3)
"""A member of the version without cluster UUIDs."""


def follows(
    state: GenerationState,
    *,
    cluster: str = OURS,
    arbiter: ArbiterRecord | None = RECORD,
    empty: bool = False,
) -> str:
    """Return why it does not follow a primary of generation 7, empty if it does."""
    return str(may_follow(state, PrimaryIdentity(7, cluster), arbiter=arbiter, empty=empty) or "")


@pytest.mark.parametrize("empty", [True, False])
@pytest.mark.parametrize("arbiter", [RECORD, ArbiterRecord(7, "t", THEIRS), None])
def test_a_member_of_a_cluster_follows_no_primary_of_another_whatever_its_arbiter_says(
    empty: bool, arbiter: ArbiterRecord | None
) -> None:
    refusal = follows(has(None), cluster=THEIRS, arbiter=arbiter, empty=empty)
    assert OURS in refusal
    assert THEIRS in refusal
    assert "--member" in refusal
    assert follows(has(None), arbiter=arbiter, empty=empty) == ""


@pytest.mark.parametrize("arbiter", [ArbiterRecord(), ArbiterRecord(7, "t", THEIRS), None])
def test_a_store_of_no_cluster_takes_only_what_its_arbiter_confirms(arbiter: ArbiterRecord | None) -> None:
    assert "arbiter" in follows(GenerationState(), arbiter=arbiter, empty=True)
    assert follows(GenerationState(), empty=True) == ""
    assert follows(GenerationState(None), empty=True) == ""


@pytest.mark.parametrize("generation", [None, 2, 4])
def test_a_store_of_the_version_before_joins_from_the_generation_of_the_uuid(generation: int | None) -> None:
    arbiter = ArbiterRecord(6, "c", OURS, origin=3)
    refusal = follows(GenerationState(generation), arbiter=arbiter)
    assert "not 3, at which" in refusal
    assert "move its store away" in refusal
    assert follows(FORMER, arbiter=arbiter) == ""
    assert follows(GenerationState(generation), arbiter=arbiter, empty=True) == ""


@pytest.mark.parametrize(
    ("state", "record", "reason"),
    [
        (has(3), ArbiterRecord(3, "c", THEIRS), THEIRS),
        (has(3), ArbiterRecord(3, "d", OURS), "claimed by another primary"),
        (has(3), ArbiterRecord(3, "d"), "was it replaced"),
        (has(3), ArbiterRecord(2, "b", OURS), "restored from an older copy"),
        (has(3), ArbiterRecord(), "restored from an older copy"),
        (FORMER, RECORD, "belongs to no cluster yet"),
        (GenerationState(), RECORD, "no cluster yet|arbiter is at generation 3"),
    ],
)
def test_the_same_number_makes_no_heir(state: GenerationState, record: ArbiterRecord, reason: str) -> None:
    refusal = str(may_promote(state, record))
    assert re.search(reason, refusal), refusal


def test_the_first_promotion_makes_the_uuid_and_the_record_says_at_which_generation() -> None:
    for state, record in ((GenerationState(), ArbiterRecord()), (FORMER, ArbiterRecord(3, "c"))):
        promotion = Promotion.begin(state, record, "x", "a new UUID")
        promotion = promotion.finished(promotion.step)
        new = ArbiterRecord(record.generation + 1, "x", "a new UUID", record.generation)
        assert promotion.step == CompareAndSet(record, new)
        won = GenerationState(new.generation, None, "x", "a new UUID")
        assert promotion.compared(won=True).step == WriteGeneration(won)


def test_a_member_that_died_right_after_it_won_takes_the_cluster_from_the_record() -> None:
    record = ArbiterRecord(1, "mine", OURS)
    promotion = Promotion.begin(GenerationState(0, Pending(1, "mine")), record, "x", "a new UUID")
    assert promotion.step == WritePending(GenerationState(1, Pending(2, "x"), "mine", OURS))


def test_force_takes_no_arbiter_of_another_cluster_and_no_generation_that_was_there() -> None:
    theirs = ArbiterRecord(9, "t", THEIRS)
    assert isinstance(Promotion.forced(has(3), theirs, "x", "a new UUID").step, Refused)
    for restored in (ArbiterRecord(1, "a", OURS), ArbiterRecord()):
        forced = Promotion.forced(has(3, Pending(4, "y")), restored, "x", "a new UUID")
        forced = forced.finished(forced.step)
        assert forced.step == CompareAndSet(restored, ArbiterRecord(5, "x", OURS))


# --- Superseded ---------------------------------------------------------------------------------


@pytest.mark.parametrize("read", [RECORD, NEXT, ArbiterRecord(2, "b", OURS), ArbiterRecord(9, "t", THEIRS)])
def test_its_own_records_older_ones_and_other_clusters_depose_no_primary(read: ArbiterRecord) -> None:
    assert superseded(RECORD, Pending(4, "x"), read) is None


@pytest.mark.parametrize("read", [ArbiterRecord(4, "y", OURS), ArbiterRecord(3, "d", OURS)])
@pytest.mark.parametrize("asked", [None, Pending(4, "x")])
def test_a_record_that_somebody_else_won_deposes_it(read: ArbiterRecord, asked: Pending | None) -> None:
    assert f"at generation {read.generation}" in str(superseded(RECORD, asked, read))


# --- Promotion ----------------------------------------------------------------------------------


def test_a_promotion_writes_asks_and_writes() -> None:
    promotion = Promotion.begin(has(3), RECORD, "x", "a new UUID")
    assert promotion.step == WritePending(has(3, Pending(4, "x")))
    promotion = promotion.finished(promotion.step)
    assert promotion.step == CompareAndSet(RECORD, NEXT)
    promotion = promotion.compared(won=True)
    assert promotion.step == WriteGeneration(AFTER)
    assert promotion.finished(promotion.step).step == Done(NEXT)


def test_a_member_that_is_eligible_by_its_pending_stays_so_when_it_asks_again() -> None:
    promotion = Promotion.begin(has(2, Pending(3, "c")), RECORD, "x", "a new UUID")
    assert promotion.step == WritePending(has(3, Pending(4, "x")))


def test_a_promotion_that_is_not_allowed_has_no_other_step() -> None:
    promotion = Promotion.begin(has(2), RECORD, "x", "a new UUID")
    assert isinstance(promotion.step, Refused)
    assert promotion.finished(promotion.step) == promotion.compared(won=True) == promotion


@pytest.mark.parametrize("answered", [True, False])
def test_a_promotion_that_was_not_won_is_refused_with_both_generations(answered: bool) -> None:
    promotion = Promotion.begin(has(3), RECORD, "x", "a new UUID")
    promotion = promotion.finished(promotion.step)
    promotion = promotion.compared(won=False) if answered else promotion.unreachable("no answer in 5 s")
    assert isinstance(promotion.step, Refused)
    text = str(promotion.step.refusal)
    assert "asked for generation 4 after 3" in text
    assert ("taken by another member" if answered else "no answer in 5 s") in text


def test_a_forced_promotion_asks_nobody_about_its_store() -> None:
    promotion = Promotion.forced(has(None), RECORD, "x", "a new UUID")
    assert promotion.step == WritePending(has(None, Pending(4, "x")))
    promotion = promotion.finished(promotion.step).compared(won=True)
    assert promotion.step == WriteGeneration(AFTER)


# --- Going alone --------------------------------------------------------------------------------


def going_alone(remaining: frozenset[str], until: type) -> ShrinkInSync:
    """Return a procedure of a primary of generation 3, at the step of that kind."""
    work = ShrinkInSync.begin(has(3), RECORD, remaining).with_claim("x")
    while not isinstance(work.step, until):
        match work.step:
            case AwaitNoted(replicas):
                work = work.noted(min(replicas), Pending(4, "x"))
            case CompareAndSet():
                work = work.compared(won=True)
            case _:
                work = work.finished(work.step)
    return work


def test_going_alone_has_its_steps_in_this_order() -> None:
    pending = Pending(4, "x")
    work = ShrinkInSync.begin(has(3), RECORD, BOTH)
    assert work.step == MakeClaim()
    work = work.with_claim("x")
    assert work.step == NotePending(BOTH, pending)
    work = work.finished(work.step)
    assert work.step == AwaitNoted(BOTH)
    work = work.noted("b", pending)
    assert work.step == AwaitNoted(frozenset("c"))
    work = work.noted("c", pending)
    assert work.step == WritePending(has(3, pending))
    work = work.finished(work.step)
    assert work.step == CompareAndSet(RECORD, NEXT)
    work = work.compared(won=True)
    assert work.step == WriteGeneration(AFTER)
    work = work.finished(work.step)
    assert work.step == HandOver(BOTH, NEXT)
    assert work.finished(work.step).step == Done(NEXT)


def test_the_last_one_asks_nobody_but_the_arbiter() -> None:
    work = ShrinkInSync.begin(has(3), RECORD, frozenset()).with_claim("x")
    assert work.step == WritePending(has(3, Pending(4, "x")))
    assert going_alone(frozenset(), Done).held == NEXT


@pytest.mark.parametrize("step", [NotePending, AwaitNoted, WritePending])
def test_a_drop_before_the_arbiter_is_asked_begins_anew_with_another_claim(step: type) -> None:
    work = going_alone(BOTH, step).dropped("c")
    assert work.step == MakeClaim()
    work = work.with_claim("y")
    assert work.step == NotePending(frozenset("b"), Pending(4, "y"))


@pytest.mark.parametrize("step", [CompareAndSet, WriteGeneration, HandOver])
def test_a_drop_after_that_makes_another_generation_once_this_one_is_handed_over(step: type) -> None:
    """Each dropped replica has noted the pending claim, and may be eligible."""
    work = going_alone(BOTH, step).dropped("c")
    assert isinstance(work.step, step)
    if isinstance(work.step, CompareAndSet):
        work = work.compared(won=True)
    if isinstance(work.step, WriteGeneration):
        work = work.finished(work.step)
    # Not to the dropped one: it may be back already, with half a store.
    assert work.step == HandOver(frozenset("b"), NEXT)
    work = work.finished(work.step)
    assert work.step == MakeClaim()
    assert work.with_claim("y").step == NotePending(frozenset("b"), Pending(5, "y"))


def test_an_acknowledgement_of_an_earlier_round_does_not_count() -> None:
    work = going_alone(BOTH, AwaitNoted).dropped("c").with_claim("y")
    work = work.finished(work.step)
    assert work.noted("b", Pending(4, "x")) == work
    assert isinstance(work.noted("b", Pending(4, "y")).step, WritePending)


def test_a_write_of_an_earlier_round_that_ends_late_changes_nothing() -> None:
    before = going_alone(BOTH, WritePending)
    work = before.dropped("c").with_claim("y")
    assert work.finished(before.step) == work


def test_a_replica_that_is_not_ready_does_not_matter() -> None:
    work = going_alone(BOTH, AwaitNoted)
    assert work.dropped("d") == work


@pytest.mark.parametrize("answered", [True, False])
def test_a_primary_that_does_not_learn_that_it_won_steps_down(answered: bool) -> None:
    work = going_alone(BOTH, CompareAndSet)
    work = work.compared(won=False) if answered else work.unreachable("no answer in 5 s")
    assert isinstance(work.step, StepDown)
    assert "generation 3 has ended" in work.step.reason
    assert work.dropped("b") == work.finished(work.step) == work


def test_what_comes_after_the_end_changes_nothing() -> None:
    """For example the arbiter's late answer must not let this member settle again."""
    work = going_alone(BOTH, CompareAndSet).unreachable("no answer in 5 s")
    assert work.compared(won=True) == work.with_claim("y") == work.noted("b", Pending(4, "x")) == work


# --- Becoming ready -----------------------------------------------------------------------------


def test_a_replica_becomes_ready_in_this_order() -> None:
    becoming = BecomeReady("b")
    assert (becoming.step, becoming.counts, becoming.ready) == (StartWaiting(), False, False)
    becoming = becoming.finished(becoming.step)
    assert (becoming.step, becoming.counts, becoming.ready) == (AwaitDrained(), True, False)
    becoming = becoming.finished(becoming.step)
    assert (becoming.step, becoming.ready) == (AwaitNoShrink(), False)
    becoming = becoming.finished(becoming.step, record=NEXT)
    assert (becoming.step, becoming.ready) == (HandOver(frozenset("b"), NEXT), True)
    becoming = becoming.finished(becoming.step)
    assert (becoming.step, becoming.counts, becoming.ready) == (IsReady(), True, True)


def test_a_step_that_is_not_the_current_one_changes_nothing() -> None:
    becoming = BecomeReady("b").finished(StartWaiting())
    assert becoming.finished(StartWaiting()) == becoming
    assert becoming.finished(AwaitNoShrink(), record=NEXT) == becoming
