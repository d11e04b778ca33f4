"""The time limits of attempts: they grow while a member accepts connections and does not answer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import Failure, FailureReason
from haclient.discovery.pending_attempts import HISTORY, LONGEST, PendingAttempts

from .virtual import E


def _ran_out_of_time(pending: PendingAttempts, endpoint: Endpoint, limit: float, now: float) -> float:
    """Dial, connect, and say nothing: return the time at which the attempt is over."""
    attempt = pending.launch(endpoint, (), now)
    pending.connected(attempt.attempt, now)
    ends = min(time for time in pending.times(limit, 1e9, 1e9) if time > now)
    assert pending.overdue(limit, ends - 1e-6) is None
    assert pending.overdue(limit, ends) == (attempt, ends - now)
    pending.end(attempt.attempt, ends, Failure(kind=FailureReason.TIMED_OUT))
    return ends


@given(st.sampled_from([0.25, 1.0, 10.0, 64.0, 100.0]), st.integers(1, 80))
def test_each_attempt_in_a_row_has_twice_the_time(limit: float, count: int) -> None:
    pending, now, before = PendingAttempts(), 0.0, 0.0
    for number in range(count):
        ends = _ran_out_of_time(pending, E[0], limit, now)
        allowed = ends - now
        assert allowed == (limit if number == 0 else min(2 * before, max(limit, LONGEST)))
        now, before = ends, allowed


@given(st.sampled_from(sorted(FailureReason, key=lambda each: each.value)), st.booleans())
def test_another_end_begins_anew_and_a_search_that_stops_an_attempt_does_not(
    kind: FailureReason, connected: bool
) -> None:
    pending, limit = PendingAttempts(), 10.0
    now = _ran_out_of_time(pending, E[0], limit, 0.0)
    now = _ran_out_of_time(pending, E[0], limit, now)
    attempt = pending.launch(E[0], (), now)
    if connected:
        pending.connected(attempt.attempt, now)
    pending.end(attempt.attempt, now, Failure(kind=kind))
    slow = connected and kind is FailureReason.TIMED_OUT
    expected = LONGEST if slow else 40.0 if kind is FailureReason.STOPPED else limit
    assert _ran_out_of_time(pending, E[0], limit, now) - now == expected


def test_each_endpoint_has_a_limit_of_its_own_and_few_are_kept() -> None:
    pending, now = PendingAttempts(), 0.0
    for port in range(1, HISTORY + 100):
        ends = _ran_out_of_time(pending, Endpoint("host", port), 1.0, now)
        assert ends - now == 1.0
        now = ends
    assert _ran_out_of_time(pending, Endpoint("host", 1), 1.0, now) - now == 1.0
    assert _ran_out_of_time(pending, Endpoint("host", HISTORY), 1.0, now) - now == 2.0


def test_a_syn_without_an_answer_has_no_more_time() -> None:
    pending = PendingAttempts()
    now = _ran_out_of_time(pending, E[0], 10.0, 0.0)
    attempt = pending.launch(E[0], (), now)
    assert pending.overdue(10.0, now + 10.0) == (attempt, 10.0)
