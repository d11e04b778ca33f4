"""Detection of a cluster in which only stale primaries have served for long."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from haclient.discovery.evidence import Claimed
from haclient.discovery.refusals import ROUNDS
from haclient.discovery.stale_primaries import StalePrimaries
from haclient.retry.policy import Policy
from tests.discovery.virtual import E

POLICY = Policy(refusal_timeout=60.0, backoff_max=10.0, attempt_timeout=5.0)
NEWER = Claimed(E[0], 7, "x", 0)


def served(watch: StalePrimaries, *times: float) -> list[bool]:
    return [watch.served(time) for time in times]


def test_one_round_of_stale_members_is_not_enough_and_a_minute_of_them_is() -> None:
    watch = StalePrimaries(POLICY)
    assert served(watch, *range(0, 61, 10)) == [False] * 6 + [True]


def test_a_primary_that_is_accepted_begins_the_count_anew() -> None:
    watch = StalePrimaries(POLICY)
    served(watch, *range(0, 60, 10))
    watch.accepted(NEWER)
    assert served(watch, *range(60, 121, 10)) == [False] * 6 + [True]


def test_while_a_connection_is_up_at_the_newer_primary_nothing_is_forgotten() -> None:
    """A connection that meets only old primaries cannot reach the newer one."""
    watch = StalePrimaries(POLICY)
    watch.connected(1)
    watch.connected(2)
    assert not any(served(watch, *range(0, 600, 10)))
    watch.disconnected(1)
    assert served(watch, 600) == [False]
    watch.disconnected(2)
    watch.disconnected(3)
    assert served(watch, *range(610, 671, 10)) == [False] * 6 + [True]


def test_a_session_without_a_generation_says_nothing() -> None:
    """A parked session gets its generation later, and only then counts."""
    watch = StalePrimaries(POLICY)
    served(watch, *range(0, 60, 10))
    watch.accepted(Claimed(E[0], None, "x", 0))
    assert served(watch, 60) == [True]


def test_the_time_that_a_process_stood_still_does_not_count() -> None:
    watch = StalePrimaries(POLICY)
    assert served(watch, 0.0, 1.0, 2.0, 3600.0, 3601.0) == [False] * 5


def test_it_ends_without_a_refusal_timeout_too() -> None:
    watch = StalePrimaries(Policy(refusal_timeout=None, backoff_max=10.0))
    assert served(watch, *range(0, 61, 10))[-1]


def test_the_shortest_refusal_timeout_is_three_answers() -> None:
    assert served(StalePrimaries(Policy(refusal_timeout=0.0)), 0.0, 0.0, 0.0) == [False, False, True]


@settings(max_examples=100, deadline=None)
@given(gaps=st.lists(st.floats(0.0, 100.0), max_size=40), seconds=st.floats(0.0, 120.0))
def test_it_is_never_said_before_the_time_has_passed(gaps: list[float], seconds: float) -> None:
    watch, now = StalePrimaries(Policy(refusal_timeout=seconds)), 1000.0
    watch.served(now)
    for count, gap in enumerate(gaps, start=2):
        now += gap
        if watch.served(now):
            assert count >= ROUNDS
            assert now - 1000.0 >= seconds - 1e-6
