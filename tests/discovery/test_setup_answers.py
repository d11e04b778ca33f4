"""An attempt continues while its peer answers older attempts, and no longer."""

from __future__ import annotations

import math
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haclient.discovery.decision import Abandon, Dial, StartRound, Wait
from haclient.discovery.evidence import FailureReason
from haclient.discovery.pending_attempts import PendingAttempts
from haclient.discovery.polling import setup_answers
from haclient.discovery.polling.setup_answers import SetupAnswers
from haclient.discovery.topology import Topology

from .virtual import E, search

LIMIT = 10.0
TIMES = st.floats(0, 100, allow_nan=False)


@given(st.lists(st.tuples(TIMES, TIMES), max_size=200), TIMES, TIMES)
def test_the_last_answer_to_one_that_is_not_younger_counts(
    noted: list[tuple[float, float]], dialled_at: float, now: float
) -> None:
    answers = SetupAnswers()
    in_order = sorted(noted, key=lambda pair: pair[1])
    for dialled, answered in in_order:
        answers.note(E[0], dialled, answered)
        answers.note(E[1], 0.0, 100.0)
    kept = in_order[-setup_answers._LATEST :]
    expected = max((at for dialled, at in kept if dialled <= dialled_at and at <= now), default=-math.inf)
    assert answers.last(E[0], dialled_at, now) == expected
    assert answers.last(E[2], dialled_at, now) == -math.inf


def test_of_many_endpoints_the_latest_are_kept() -> None:
    answers = SetupAnswers()
    endpoints = [E[0].__class__("h", port) for port in range(1, 1000)]
    for endpoint in endpoints:
        answers.note(endpoint, 0.0, 1.0)
    assert [each for each in endpoints if answers.last(each, 0.0, 1.0) > 0] == endpoints[-256:]


def test_threads_may_note_and_ask_at_once() -> None:
    answers, failed = SetupAnswers(), list[BaseException]()
    endpoints = [E[0].__class__("h", port) for port in range(1, 600)]

    def work(start: int) -> None:
        try:
            for number in range(20_000):
                answers.note(endpoints[(start + number) % len(endpoints)], 0.0, 1.0)
                answers.last(endpoints[number % len(endpoints)], 0.0, 1.0)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 100, 200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert sum(answers.last(each, 0.0, 1.0) > 0 for each in endpoints) <= 256


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(0, 60)), max_size=30), st.booleans())
def test_its_time_ends_so_long_after_the_last_answer_that_counts(
    noted: list[tuple[float, float]], is_connected: bool
) -> None:
    """The times of the checks do not matter, and without TCP no answer counts."""
    answers = SetupAnswers()
    pending = PendingAttempts(answers)
    attempt = pending.launch(E[0], (), 0.0)
    if is_connected:
        pending.connected(attempt.attempt, 0.0)
    end, now = LIMIT, 0.0
    for dialled, answered in sorted(noted, key=lambda pair: pair[1]):
        if answered >= end:
            break
        answers.note(E[0], dialled, answered)
        if dialled <= 0 and is_connected:
            end = max(end, answered + LIMIT)
    while (overdue := pending.overdue(LIMIT, now)) is None:
        now = min(time for time in pending.times(LIMIT, math.inf, math.inf) if time > now)
    assert overdue == (attempt, LIMIT)
    assert now == pytest.approx(end)


def test_a_search_waits_for_the_new_end_and_abandons_then() -> None:
    answers = SetupAnswers()
    searching = search(answers=answers)
    topology = Topology(seeds=(E[0],))
    assert isinstance(searching.next(0.0, topology), StartRound)
    dial = searching.next(0.0, topology)
    assert isinstance(dial, Dial)
    searching.tcp_connected(dial.attempt, 0.1)
    answers.note(E[0], -1.0, 7.0)
    assert searching.next(10.0, topology) == Wait(17.0)
    decision = searching.next(17.0, topology)
    assert isinstance(decision, Abandon)
    assert decision.failure.kind is FailureReason.TIMED_OUT
