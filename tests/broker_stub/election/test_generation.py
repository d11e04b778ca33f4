"""The decisions on generations one by one, and the order of the steps.  ``model/`` has them all together."""

from __future__ import annotations

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
)

RECORD = ArbiterRecord(3, "c")
BOTH = frozenset(("b", "c"))

# --- Decisions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "state",
    [
        GenerationState(3),
        GenerationState(3, Pending(4, "x")),
        GenerationState(2, Pending(3, "c")),
        GenerationState(None, Pending(3, "c")),
    ],
)
def test_an_eligible_member_has_the_generation_or_the_whole_record_as_pending(state: GenerationState) -> None:
    assert may_promote(state, RECORD) is None


@pytest.mark.parametrize(
    ("state", "own"),
    [
        (GenerationState(2), "generation 2"),
        (GenerationState(4), "generation 4"),
        (GenerationState(None), "no generation"),
        (GenerationState(2, Pending(3, "another")), "generation 2"),
        (GenerationState(None, Pending(4, "c")), "no generation"),
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
        (GenerationState(3), 3, True),
        (GenerationState(3), 4, True),
        (GenerationState(3), 2, False),
        (GenerationState(2, Pending(3, "x")), 2, False),
        (GenerationState(2, Pending(3, "x")), 3, True),
        (GenerationState(None), 1, True),
        (GenerationState(None, Pending(3, "x")), 2, False),
    ],
)
def test_a_member_follows_no_primary_below_what_it_knows(
    state: GenerationState, primary: int, follows: bool
) -> None:
    refusal = may_follow(state, primary)
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
    assert erase(GenerationState(3, Pending(4, "x"))) == GenerationState(None, None)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (GenerationState(None), GenerationState(4)),
        (GenerationState(3, Pending(4, "x")), GenerationState(4)),
        (GenerationState(3, Pending(5, "x")), GenerationState(4, Pending(5, "x"))),
        (GenerationState(5), GenerationState(5)),
    ],
)
def test_a_number_that_is_handed_over_never_goes_back(
    before: GenerationState, after: GenerationState
) -> None:
    assert hand_over(before, 4) == after


# --- Promotion ----------------------------------------------------------------------------------


def test_a_promotion_writes_asks_and_writes() -> None:
    promotion = Promotion.begin(GenerationState(3), RECORD, "x")
    assert promotion.step == WritePending(GenerationState(3, Pending(4, "x")))
    promotion = promotion.finished(promotion.step)
    assert promotion.step == CompareAndSet(RECORD, ArbiterRecord(4, "x"))
    promotion = promotion.compared(won=True)
    assert promotion.step == WriteGeneration(GenerationState(4))
    assert promotion.finished(promotion.step).step == Done(ArbiterRecord(4, "x"))


def test_a_member_that_is_eligible_by_its_pending_stays_so_when_it_asks_again() -> None:
    promotion = Promotion.begin(GenerationState(2, Pending(3, "c")), RECORD, "x")
    assert promotion.step == WritePending(GenerationState(3, Pending(4, "x")))


def test_a_promotion_that_is_not_allowed_has_no_other_step() -> None:
    promotion = Promotion.begin(GenerationState(2), RECORD, "x")
    assert isinstance(promotion.step, Refused)
    assert promotion.finished(promotion.step) == promotion.compared(won=True) == promotion


@pytest.mark.parametrize("answered", [True, False])
def test_a_promotion_that_was_not_won_is_refused_with_both_generations(answered: bool) -> None:
    promotion = Promotion.begin(GenerationState(3), RECORD, "x")
    promotion = promotion.finished(promotion.step)
    promotion = promotion.compared(won=False) if answered else promotion.unreachable("no answer in 5 s")
    assert isinstance(promotion.step, Refused)
    text = str(promotion.step.refusal)
    assert "asked for generation 4 after 3" in text
    assert ("taken by another member" if answered else "no answer in 5 s") in text


def test_a_forced_promotion_asks_nobody_about_its_store() -> None:
    promotion = Promotion.forced(GenerationState(None), RECORD, "x")
    assert promotion.step == WritePending(GenerationState(None, Pending(4, "x")))
    promotion = promotion.finished(promotion.step).compared(won=True)
    assert promotion.step == WriteGeneration(GenerationState(4))


# --- Going alone --------------------------------------------------------------------------------


def going_alone(remaining: frozenset[str], until: type) -> ShrinkInSync:
    """A procedure of a primary of generation 3, at the step of that kind."""
    work = ShrinkInSync.begin(GenerationState(3), RECORD, remaining).with_claim("x")
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
    work = ShrinkInSync.begin(GenerationState(3), RECORD, BOTH)
    assert work.step == MakeClaim()
    work = work.with_claim("x")
    assert work.step == NotePending(BOTH, pending)
    work = work.finished(work.step)
    assert work.step == AwaitNoted(BOTH)
    work = work.noted("b", pending)
    assert work.step == AwaitNoted(frozenset("c"))
    work = work.noted("c", pending)
    assert work.step == WritePending(GenerationState(3, pending))
    work = work.finished(work.step)
    assert work.step == CompareAndSet(RECORD, ArbiterRecord(4, "x"))
    work = work.compared(won=True)
    assert work.step == WriteGeneration(GenerationState(4))
    work = work.finished(work.step)
    assert work.step == HandOver(BOTH, 4)
    assert work.finished(work.step).step == Done(ArbiterRecord(4, "x"))


def test_the_last_one_asks_nobody_but_the_arbiter() -> None:
    work = ShrinkInSync.begin(GenerationState(3), RECORD, frozenset()).with_claim("x")
    assert work.step == WritePending(GenerationState(3, Pending(4, "x")))
    assert going_alone(frozenset(), Done).held == ArbiterRecord(4, "x")


@pytest.mark.parametrize("step", [NotePending, AwaitNoted, WritePending])
def test_a_drop_before_the_arbiter_is_asked_begins_anew_with_another_claim(step: type) -> None:
    work = going_alone(BOTH, step).dropped("c")
    assert work.step == MakeClaim()
    work = work.with_claim("y")
    assert work.step == NotePending(frozenset("b"), Pending(4, "y"))


@pytest.mark.parametrize("step", [CompareAndSet, WriteGeneration, HandOver])
def test_a_drop_after_that_makes_another_generation_once_this_one_is_handed_over(step: type) -> None:
    """Whoever dropped has noted the pending, and may be an heir."""
    work = going_alone(BOTH, step).dropped("c")
    assert isinstance(work.step, step)
    if isinstance(work.step, CompareAndSet):
        work = work.compared(won=True)
    if isinstance(work.step, WriteGeneration):
        work = work.finished(work.step)
    # Not to the one that dropped: it may be back already, with half a store.
    assert work.step == HandOver(frozenset("b"), 4)
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
    """The arbiter's late answer, for one, must not let this member settle again."""
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
    becoming = becoming.finished(becoming.step, generation=4)
    assert (becoming.step, becoming.ready) == (HandOver(frozenset("b"), 4), True)
    becoming = becoming.finished(becoming.step)
    assert (becoming.step, becoming.counts, becoming.ready) == (IsReady(), True, True)


def test_a_step_that_is_not_the_current_one_changes_nothing() -> None:
    becoming = BecomeReady("b").finished(StartWaiting())
    assert becoming.finished(StartWaiting()) == becoming
    assert becoming.finished(AwaitNoShrink(), generation=4) == becoming
