"""The rules of ``broker_stub.election.generation`` hold in every reachable state, and each is needed."""

from __future__ import annotations

import sys

import pytest

from tests.broker_stub.election.model.clients import Client
from tests.broker_stub.election.model.invariants import (
    ALL,
    CLIENTS,
    FORCED,
    PROVEN_CLIENTS,
    SAFETY,
    Broken,
)
from tests.broker_stub.election.model.report import counter_example
from tests.broker_stub.election.model.rules import MUTANTS
from tests.broker_stub.election.model.search import Outcome, explore

ELIGIBLE = SAFETY | {Broken.ELIGIBLE_LACKS}


def assert_holds(outcome: Outcome) -> None:
    assert not outcome.broken, f"{outcome.broken} after\n{counter_example(outcome)}"


@pytest.mark.slow
@pytest.mark.parametrize(("messages", "generations"), [(1, 5), (2, 3)])
def test_two_members_lose_nothing_in_any_state(messages: int, generations: int) -> None:
    outcome = explore(members=2, messages=messages, generations=generations)
    assert_holds(outcome)
    assert outcome.complete


@pytest.mark.slow
def test_three_members_lose_nothing_in_any_state_of_two_generations() -> None:
    """`make model` goes further."""
    outcome = explore(members=3, generations=2)
    assert_holds(outcome)
    assert outcome.complete


@pytest.mark.slow
@pytest.mark.timeout(600)  # s; 7 s of computing
def test_three_members_lose_nothing_in_the_first_states_of_more_generations() -> None:
    assert_holds(explore(members=3, messages=2, generations=4, most_states=150_000))


@pytest.mark.slow
@pytest.mark.parametrize("members", [2, 3])
def test_a_compare_and_set_that_comes_late_loses_nothing(members: int) -> None:
    """A late one may leave no eligible member: arbiters should drop a request when its caller gave up."""
    assert_holds(explore(members=members, generations=4, watch=ELIGIBLE, late=True, most_states=100_000))
    assert explore(members=2, late=True).broken == {Broken.NONE_ELIGIBLE}


@pytest.mark.slow
@pytest.mark.parametrize("members", [2, 3])
def test_a_member_with_a_new_disk_never_takes_over(members: int) -> None:
    assert_holds(explore(members=members, generations=4, watch=ELIGIBLE, wipes=True, most_states=100_000))


@pytest.mark.slow
@pytest.mark.parametrize("members", [2, 3])
def test_a_primary_that_reads_the_arbiter_again_steps_down_for_others_and_never_for_itself(
    members: int,
) -> None:
    """Members are promoted by force while it lives; it examines its reading at any time after."""
    assert_holds(explore(members=members, generations=4, watch=FORCED, forces=True, most_states=60_000))


@pytest.mark.slow
@pytest.mark.parametrize("members", [2, 3])
def test_a_replica_with_a_queue_set_aside_never_lacks_what_an_heir_has(members: int) -> None:
    assert_holds(explore(members=members, generations=4, asides=True, most_states=60_000))


def test_what_two_members_deliver_survives_and_what_they_confirm_is_gone() -> None:
    """`make model` goes further."""
    outcome = explore(members=2, generations=3, consumes=True)
    assert_holds(outcome)
    assert outcome.complete


@pytest.mark.slow
def test_what_three_members_deliver_survives_in_the_first_states() -> None:
    assert_holds(explore(members=3, generations=3, consumes=True, most_states=30_000))


@pytest.mark.slow
@pytest.mark.parametrize(("members", "generations"), [(2, 3), (2, 5), (3, 2)])
def test_no_impostor_locks_a_client_out_of_members_that_prove_who_they_are(
    members: int, generations: int
) -> None:
    """The client also never returns to an older primary, unless only such have served for long."""
    pair = {"members": members, "messages": 0, "generations": generations, "most_states": 30_000}
    assert_holds(explore(**pair, client=Client(proves=True), watch=SAFETY | PROVEN_CLIENTS))


def test_where_nobody_proves_anything_no_impostor_locks_a_client_out_for_ever() -> None:
    """The lock-out ends when it forgets: among equals the higher generation counts, which fences old
    primaries.
    """
    anonymous = Client(proves=False)
    assert_holds(explore(members=2, messages=0, generations=4, client=anonymous, watch=SAFETY | CLIENTS))
    locked_out = explore(members=2, messages=0, client=anonymous, watch=frozenset({Broken.LOCKED_OUT}))
    assert locked_out.broken == {Broken.LOCKED_OUT}


# The claim left out, claims reused, a bump at the last replica only; then each other rule left out, with the
# invariants that show its purpose.
SHOWN = [
    ("without-claim", 2, SAFETY),
    ("claims-reused", 3, SAFETY),
    ("only-the-last", 3, SAFETY),
    ("anybody-promoted", 2, SAFETY),
    ("number-not-erased", 2, SAFETY),
    ("never-alone", 2, SAFETY),
    ("waiting-too-late", 2, SAFETY),
    ("ready-when-it-has-the-number", 2, SAFETY),
    ("handed-over-undrained", 2, SAFETY),
    ("ready-with-one-aside", 2, SAFETY),
    ("pending-not-erased", 3, ALL),
    ("promoted-while-following", 3, ALL),
    ("pending-not-adopted", 2, ALL),
    ("any-primary-followed", 2, ALL),
    ("replicas-note-nothing", 3, ALL),
    # The wrong list: the only copy is discarded.
    ("any-cluster-followed", 2, frozenset({Broken.LOST})),
    ("arbiter-not-compared", 2, ALL),
    ("any-arbiter-asked", 2, SAFETY),
    ("arbiter-never-reread", 2, FORCED),
    ("superseded-by-itself", 2, FORCED),
    ("delivered-unsettled", 2, SAFETY),
    ("delivered-while-shrinking", 2, SAFETY),
    ("dequeues-not-drained", 2, SAFETY),
    ("confirmed-unstored", 2, SAFETY),
    ("confirmed-unreplicated", 2, SAFETY),
    ("confirmed-while-shrinking", 2, SAFETY),
    ("trust-ignored", 2, PROVEN_CLIENTS),
    ("any-generation-used", 2, CLIENTS),
    ("never-forgotten", 2, CLIENTS),
]
CONSUMING = ("delivered-", "dequeues-", "confirmed-")


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "members", "watch"), SHOWN, ids=[name for name, _, _ in SHOWN])
def test_every_rule_is_needed(mutant: str, members: int, watch: frozenset[Broken]) -> None:
    outcome = explore(
        members=members,
        generations=3,
        rules=MUTANTS[mutant],
        watch=watch,
        forces=watch == FORCED,
        asides=mutant == "ready-with-one-aside",
        consumes=mutant.startswith(CONSUMING),
        client=Client(proves=watch == PROVEN_CLIENTS)
        if watch & CLIENTS and watch <= PROVEN_CLIENTS
        else None,
    )
    assert outcome.broken, f"{mutant}: no violation in {outcome.states} states"
    # Shown by `pytest -rP`.
    sys.stdout.write(f"{mutant}: {'; '.join(outcome.broken)} after {outcome.states} states\n")
    sys.stdout.write(counter_example(outcome))


def test_every_mutant_is_tried() -> None:
    assert {name for name, _, _ in SHOWN} == set(MUTANTS)
