"""The delays between rounds."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haclient.retry.backoff import Backoff, Delay, FixedDelays
from haclient.retry.policy import Policy


class Extremes(random.Random):
    """A random source that always draws the upper end."""

    def uniform(self, a: float, b: float) -> float:
        """Return the upper end."""
        return max(a, b)


def test_the_ceiling_doubles_from_the_base_up_to_the_cap() -> None:
    """The first ceiling is ``backoff_base``, the largest ``backoff_max``."""
    backoff = Backoff(Policy(), random.Random(1))
    bases = [backoff.next().base for _ in range(10)]
    assert bases == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 10])


def test_jitter_is_drawn_after_the_cap() -> None:
    """At the cap the delays still spread from 0 to the cap instead of piling up on it."""
    backoff = Backoff(Policy(), random.Random(1))
    delays = [backoff.next().delay for _ in range(2000)][10:]
    assert max(delays) < 10
    assert sum(delays) / len(delays) == pytest.approx(5, rel=0.05)
    assert sum(delay < 1 for delay in delays) == pytest.approx(200, rel=0.25)


def test_reset_starts_again_at_the_first_ceiling() -> None:
    """After a stable connection, earlier failures no longer count."""
    backoff = Backoff(Policy(), random.Random(1))
    for _ in range(5):
        backoff.next()
    assert backoff.failures == 5
    backoff.reset()
    assert backoff.failures == 0
    assert backoff.next().base == pytest.approx(0.1)


def test_the_same_seed_gives_the_same_delays() -> None:
    """No draw uses the process-wide random source."""
    one, other = (Backoff(Policy(), random.Random(7)) for _ in range(2))
    random.seed(1)
    delays = [one.next().delay for _ in range(20)]
    random.seed(2)
    assert delays == [other.next().delay for _ in range(20)]


@pytest.mark.parametrize(
    ("retry_after", "lowest", "highest"),
    [
        (0.0, 0.0, 0.1),
        (3, 3.0, 3.1),
        (59.95, 59.9, 60.0),
        (60.0, 59.9, 60.0),
        (1e9, 59.9, 60.0),
        (math.inf, 59.9, 60.0),
    ],
)
def test_a_retry_after_is_honored_with_jitter_and_never_beyond_the_maximum(
    retry_after: float, lowest: float, highest: float
) -> None:
    """The jitter is added to ``retry_after``; too long a value is cut so that the jitter fits."""
    rng = random.Random(1)
    delays = [Backoff(Policy(), rng).next(retry_after) for _ in range(100)]
    assert all(
        lowest <= d.delay <= highest and d.delay <= d.base and d.retry_after == retry_after for d in delays
    )
    assert len({d.delay for d in delays}) > 90


def test_all_hinted_waits_together_never_exceed_the_maximum() -> None:
    """If a server asks for delays for ever, its client returns to its own backoff."""
    for retry_after in (0.0, 3.0, 59.95, 3600.0, math.inf):
        backoff = Backoff(Policy(), random.Random(1))
        delays = [backoff.next(retry_after) for _ in range(3000)]
        honored = [each for each in delays if each.retry_after is not None]
        assert 59.8 <= sum(each.delay for each in honored) <= 60
        assert not backoff.honors_retry_after
        assert {each.base for each in delays[-100:]} == {10.0}


def test_a_retry_after_that_does_not_fit_is_cut_to_what_is_left() -> None:
    """The jitter is not cut."""
    backoff = Backoff(Policy(), random.Random(1))
    first = backoff.next(40.0)
    second = backoff.next(40.0)
    assert second.retry_after == 40.0
    assert 60 - 0.1 - first.delay <= second.delay <= second.base == pytest.approx(60 - first.delay)


def test_a_stable_connection_restores_the_whole_maximum() -> None:
    """The next loss is a new incident."""
    backoff = Backoff(Policy(), random.Random(1))
    backoff.next(3600.0)
    assert not backoff.honors_retry_after
    backoff.reset()
    assert backoff.next(5.0).retry_after == 5.0


def test_a_maximum_of_zero_means_that_no_retry_after_is_honored() -> None:
    """Honoring even a ``retry_after`` of zero would be a hot loop."""
    backoff = Backoff(Policy(max_retry_after=0.0), random.Random(1))
    assert not backoff.honors_retry_after
    assert [backoff.next(0.0).retry_after for _ in range(3)] == [None] * 3


@pytest.mark.parametrize("retry_after", [-1, -0.001, math.nan, -math.inf, "3", None, True, b"1", object()])
def test_what_is_no_retry_after_is_ignored(retry_after: object) -> None:
    """A peer cannot break the backoff with a meaningless delay."""
    expected = Backoff(Policy(), random.Random(1)).next()
    assert Backoff(Policy(), random.Random(1)).next(retry_after) == expected  # type: ignore[arg-type]
    assert expected.retry_after is None


def test_a_retry_after_counts_as_a_failure() -> None:
    """When a server stops sending ``retry_after``, its clients do not start at their first ceiling."""
    backoff = Backoff(Policy(), random.Random(1))
    backoff.next(1.0)
    assert backoff.failures == 1
    assert backoff.next().base == pytest.approx(0.2)


def test_the_upper_end_of_the_draw_is_the_base() -> None:
    """Telemetry relies on this to judge the jitter by ``delay / base``."""
    backoff = Backoff(Policy(), Extremes())
    assert backoff.next() == Delay(base=0.1, delay=0.1, floor=0.0)
    assert backoff.next(2.0) == Delay(base=2.1, delay=2.1, retry_after=2.0, floor=2.0)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    values=st.lists(st.none() | st.floats(), max_size=20),
    maximum=st.floats(0.01, 100),
    base=st.floats(0.001, 10),
)
def test_no_delay_is_negative_or_beyond_its_bounds(
    values: list[float | None], maximum: float, base: float
) -> None:
    """For any policy and any ``retry_after`` of the server."""
    policy = Policy(max_retry_after=maximum, backoff_base=base, backoff_max=20.0)
    backoff = Backoff(policy, random.Random(1))
    honored = 0.0
    for retry_after in values:
        delay = backoff.next(retry_after)
        assert 0 <= delay.delay <= delay.base
        assert delay.base <= (20.0 if delay.retry_after is None else maximum)
        honored += 0.0 if delay.retry_after is None else delay.delay
    assert honored <= maximum * (1 + 1e-9)


def test_fixed_delays_are_taken_as_they_are() -> None:
    """The first connect starts without a delay, and the last delay repeats."""
    backoff = Backoff(Policy(), random.Random(1), FixedDelays((0.0, 0.5, 3.0), rounds=3))
    assert (backoff.spacing, backoff.rounds) == (0.0, 3)
    assert [backoff.next() for _ in range(4)] == [
        Delay(each, each, floor=each) for each in (0.5, 3.0, 3.0, 3.0)
    ]
    assert backoff.spacing == 3.0
    backoff.reset()
    assert [backoff.next().delay for _ in range(3)] == [0.0, 0.5, 3.0]


def test_one_fixed_delay_repeats() -> None:
    backoff = Backoff(Policy(), random.Random(1), FixedDelays((2.0,)))
    assert (backoff.spacing, backoff.rounds) == (2.0, math.inf)
    assert [backoff.next().delay for _ in range(3)] == [2.0, 2.0, 2.0]


def test_a_server_may_ask_for_a_wait_beside_fixed_delays() -> None:
    """The wait uses up one of the fixed delays."""
    backoff = Backoff(Policy(), Extremes(), FixedDelays((0.0, 0.5, 3.0)))
    assert backoff.next(7.0).retry_after == 7.0
    assert backoff.next().delay == 3.0


def test_without_fixed_delays_nothing_is_kept_apart() -> None:
    backoff = Backoff(Policy(), random.Random(1))
    backoff.next()
    assert (backoff.spacing, backoff.rounds) == (0.0, math.inf)
