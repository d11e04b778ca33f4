"""The state table of a search: every row is needed, and no other move is allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from haclient.discovery import states
from haclient.discovery.decision import BackOff, Decision, Dial, Found, GiveUp, Wait
from haclient.discovery.evidence import RESOURCE_LIMIT, Claimed, Failure, FailureReason
from haclient.discovery.search import Search
from haclient.discovery.states import MOVES, IllegalMove, SearchState, Trigger, after
from haclient.discovery.topology import Topology, update
from haclient.retry.policy import Policy

from .virtual import REFUSED, E, search

KNOWN = Topology(seeds=(E[0], E[1], E[2]))
PRIMARY = update(KNOWN, Claimed(E[0], None, None, 0))
RESERVED = Failure(kind=FailureReason.CLOSED, condition=RESOURCE_LIMIT, retry_after=0.5)
LATER = Failure(kind=FailureReason.CLOSED, retry_after=0.0)

Row = tuple[SearchState, Trigger]


def decide(looking: Search, now: float, topology: Topology = KNOWN, *, owner: bool = True) -> list[Decision]:
    """Return all decisions of the search at this time, up to a wait or the end."""
    decisions = [looking.next(now, topology, search_owner=owner)]
    while not isinstance(decisions[-1], Wait | Found | GiveUp):
        decisions.append(looking.next(now, topology, search_owner=owner))
    return decisions


def hanging(policy: Policy | None = None) -> Search:
    """Return a search at 0.5 s, in its first round, whose attempts 1 to 3 hang."""
    looking = search(policy)
    for now in (0.0, 0.25, 0.5):
        decide(looking, now)
    return looking


def backing_off(policy: Policy | None = None) -> Search:
    """Return such a search after its third attempt was refused; attempts 1 and 2 hang."""
    looking = hanging(policy)
    looking.attempt_ended(3, 0.5, REFUSED)
    decide(looking, 0.5)
    return looking


def delayed() -> Search:
    """Return a search that waits for a reservation, with pending attempts 2 and 3."""
    looking = hanging()
    looking.attempt_ended(1, 0.5, RESERVED)
    decide(looking, 0.5)
    return looking


def a_round_starts() -> None:
    decide(search(), 0.0)


def a_loss_delays() -> None:
    decide(search(first=False), 0.0)


def a_follower_has_used_up_what_it_may_honor() -> None:
    looking = backing_off(Policy(max_retry_after=0.3))
    looking.attempt_ended(1, 0.5, LATER)
    looking.attempt_ended(2, 0.5, RESERVED)
    decide(looking, 0.5, owner=False)
    wait, *_ = (each for each in decide(looking, 2.0, owner=False) if isinstance(each, BackOff))
    assert (wait.round, wait.delay.retry_after) == (1, None)


def a_follower_finds_the_primary() -> None:
    looking = search()
    assert Dial(1, E[0]) in decide(looking, 0.0, PRIMARY, owner=False)
    looking.usable(1, 0.1)
    assert decide(looking, 0.1, PRIMARY, owner=False) == [Found(1)]


def a_follower_gives_up() -> None:
    decide(search(Policy(startup_deadline=1)), 1.0, owner=False)


def every_member_refuses() -> None:
    backing_off()


def a_member_asks_for_a_delay() -> None:
    looking = hanging()
    for attempt in (1, 2, 3):
        looking.attempt_ended(attempt, 0.5, LATER)
    decide(looking, 0.5)


def a_member_serves() -> None:
    looking = hanging()
    looking.usable(2, 0.6)
    decide(looking, 0.6)


def the_deadline_passes_in_a_round() -> None:
    decide(hanging(Policy(startup_deadline=1)), 1.0)


def the_backoff_ends() -> None:
    decide(backing_off(), 5.0)


def a_reservation_arrives_late() -> None:
    looking = backing_off()
    looking.attempt_ended(1, 0.5, RESERVED)
    decide(looking, 0.5)


def a_hanging_attempt_is_usable_late() -> None:
    looking = backing_off()
    looking.usable(2, 0.5)
    decide(looking, 0.5)


def the_deadline_passes_in_the_backoff() -> None:
    decide(backing_off(Policy(startup_deadline=1)), 1.0)


def the_delay_ends() -> None:
    decide(delayed(), 5.0)


def a_second_reservation_arrives() -> None:
    looking = delayed()
    looking.attempt_ended(2, 0.5, RESERVED)
    decide(looking, 0.5)


def an_attempt_is_usable_in_the_delay() -> None:
    looking = delayed()
    looking.usable(3, 0.6)
    decide(looking, 0.6)


def the_deadline_passes_in_the_delay() -> None:
    looking = search(Policy(deadline=0.0001), first=False)
    decide(looking, 0.001)


SCENARIOS: Mapping[Row, Callable[[], None]] = {
    (SearchState.IDLE, Trigger.ROUND_STARTS): a_round_starts,
    (SearchState.IDLE, Trigger.DELAY_IMPOSED): a_loss_delays,
    (SearchState.IDLE, Trigger.ROUND_FAILED): a_follower_has_used_up_what_it_may_honor,
    (SearchState.IDLE, Trigger.USABLE): a_follower_finds_the_primary,
    (SearchState.IDLE, Trigger.LIMIT_REACHED): a_follower_gives_up,
    (SearchState.IN_ROUND, Trigger.ROUND_FAILED): every_member_refuses,
    (SearchState.IN_ROUND, Trigger.DELAY_IMPOSED): a_member_asks_for_a_delay,
    (SearchState.IN_ROUND, Trigger.USABLE): a_member_serves,
    (SearchState.IN_ROUND, Trigger.LIMIT_REACHED): the_deadline_passes_in_a_round,
    (SearchState.BACKING_OFF, Trigger.WAIT_ENDED): the_backoff_ends,
    (SearchState.BACKING_OFF, Trigger.DELAY_IMPOSED): a_reservation_arrives_late,
    (SearchState.BACKING_OFF, Trigger.USABLE): a_hanging_attempt_is_usable_late,
    (SearchState.BACKING_OFF, Trigger.LIMIT_REACHED): the_deadline_passes_in_the_backoff,
    (SearchState.DELAYED, Trigger.WAIT_ENDED): the_delay_ends,
    (SearchState.DELAYED, Trigger.DELAY_IMPOSED): a_second_reservation_arrives,
    (SearchState.DELAYED, Trigger.USABLE): an_attempt_is_usable_in_the_delay,
    (SearchState.DELAYED, Trigger.LIMIT_REACHED): the_deadline_passes_in_the_delay,
}


def test_every_row_has_a_scenario() -> None:
    """A new row needs a scenario that shows its reason."""
    assert set(SCENARIOS) == set(MOVES)


@pytest.mark.parametrize("row", MOVES, ids=lambda row: f"{row[0].value}-{row[1].value}")
def test_no_row_can_be_deleted(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scenario works with the whole table, and fails without its row."""
    SCENARIOS[row]()
    monkeypatch.setattr(states, "MOVES", {key: to for key, to in MOVES.items() if key != row})
    with pytest.raises(IllegalMove, match=row[1].value):
        SCENARIOS[row]()


@pytest.mark.parametrize("state", SearchState)
@pytest.mark.parametrize("trigger", Trigger)
def test_a_move_without_a_row_is_an_error(state: SearchState, trigger: Trigger) -> None:
    """A move with a row leads to the state in the table."""
    if (state, trigger) in MOVES:
        assert after(state, trigger) is MOVES[state, trigger]
    else:
        with pytest.raises(IllegalMove, match=f"{state.value} has no move for '{trigger.value}'"):
            after(state, trigger)


def test_the_end_is_the_end() -> None:
    """No row begins at a final state."""
    assert {SearchState.FOUND, SearchState.GAVE_UP}.isdisjoint(state for state, _ in MOVES)


def test_a_round_follows_a_delay() -> None:
    """A round starts in one state only, and only the two waits lead to that state."""
    assert {state for (state, _), to in MOVES.items() if to is SearchState.IN_ROUND} == {SearchState.IDLE}
    before = {state for (state, _), to in MOVES.items() if to is SearchState.IDLE}
    assert before == {SearchState.DELAYED, SearchState.BACKING_OFF}
