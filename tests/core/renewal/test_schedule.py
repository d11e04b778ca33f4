"""When a token is renewed, and what happens when the application's function or the broker fails."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haclient.cluster_url.endpoint import Endpoint
from haclient.core.attempt import ConnectParams
from haclient.core.renewal.schedule import Renewal
from haclient.discovery.evidence import Failure, FailureReason
from haclient.engine.settings import Settings
from haclient.testing.virtual_clock import VirtualTime, virtual_time

HERE = Endpoint("127.0.0.1", 5672)
PATIENCE = 10.0
FOREVER = 1e9


def token(value: str, seconds: float | None, *, fresh: bool = True) -> ConnectParams:
    """Return what a function supplies that returns this token."""
    expires_at = None if seconds is None else time.time() + seconds
    return ConnectParams(Settings(container_id="c", password=value), fresh=fresh, expires_at=expires_at)


async def no_answer() -> ConnectParams:
    await asyncio.sleep(FOREVER)
    raise AssertionError


async def cancelled() -> ConnectParams:
    raise asyncio.CancelledError


async def failing() -> ConnectParams:
    failure = Failure(kind=FailureReason.AUTHENTICATION_TEMPORARY)
    return ConnectParams(Settings(container_id="c"), refusal=failure, error=OSError("the provider restarts"))


Supply = Callable[[], Awaitable[ConnectParams]]


class Story:
    """A session with a token of ``life`` seconds, and what its renewal does in virtual time."""

    def __init__(self, clock: VirtualTime, *, seed: int = 0) -> None:
        self.clock = clock
        self.asked: list[float] = []
        self.renewed: list[tuple[float, str, float]] = []
        self.rng = random.Random(seed)

    def run(
        self,
        first: ConnectParams,
        supplies: list[Supply],
        refusals: list[str] | None = None,
        until: float = 1e5,
    ) -> None:
        """Let the function supply these one after the other, then nothing; and the broker refuse these."""
        answers, refused = iter(supplies), iter(refusals or [])

        async def supply(_: Endpoint) -> ConnectParams:
            self.asked.append(self.clock.elapsed)
            return await next(answers, no_answer)()

        async def renew(params: ConnectParams, seconds: float) -> str:
            self.renewed.append((self.clock.elapsed, params.settings.password or "", seconds))
            return next(refused, "")

        async def main() -> None:
            options = SimpleNamespace(attempt_timeout=PATIENCE)
            shared: Any = SimpleNamespace(options=options, rng=self.rng, params_provider=supply)
            renewal = Renewal(shared, renew, "c")
            renewal.start(HERE, first)
            await asyncio.sleep(until)
            renewal.stop()

        self.clock.run(main())


def supplying(value: str, seconds: float | None) -> Supply:
    async def supply() -> ConnectParams:
        return token(value, seconds)

    return supply


LIVES = st.floats(10, 1e5)


@given(LIVES, st.integers(0, 2**32))
def test_a_token_is_renewed_after_60_to_80_percent_of_its_life(life: float, seed: int) -> None:
    with virtual_time() as clock:
        story = Story(clock, seed=seed)
        story.run(token("a", life), [supplying("b", None)], until=2e5)
    ((at, value, seconds),) = story.renewed
    assert value == "b"
    assert 0.6 * life - 0.01 <= at <= 0.8 * life + 0.01
    assert seconds == pytest.approx(min(PATIENCE, 0.75 * (life - at)), abs=0.01)


@pytest.mark.slow
@given(st.integers(0, 2**32))
def test_a_fleet_with_one_token_does_not_come_at_once(seed: int) -> None:
    """Spread over a fifth of the life, as evenly as chance has it."""
    rng, times = random.Random(seed), []
    for _ in range(100):
        with virtual_time() as clock:
            story = Story(clock, seed=rng.getrandbits(32))
            story.run(token("a", 1000), [supplying("b", None)], until=1000)
        times.append(story.renewed[0][0])
    tenths = [sum(600 + 20 * each <= at < 620 + 20 * each for at in times) for each in range(10)]
    assert sum(tenths) == 100
    assert max(tenths) <= 30  # more by chance: once in 10^7 runs


@given(st.lists(LIVES, min_size=2, max_size=6))
def test_each_token_is_renewed_by_its_own_life(lives: list[float]) -> None:
    with virtual_time() as clock:
        story = Story(clock)
        later = [supplying(f"t{number}", life) for number, life in enumerate(lives)]
        story.run(token("first", 100), later, until=1e6)
    times = [0.0, *(at for at, _, _ in story.renewed)]
    assert [value for _, value, _ in story.renewed] == [f"t{number}" for number in range(len(lives))]
    for life, (before, after) in zip([100.0, *lives], itertools.pairwise(times), strict=False):
        assert 0.6 * life - 0.01 <= after - before <= 0.8 * life + 0.01


PROBLEMS: dict[str, Supply] = {
    "hangs": no_answer,
    "is cancelled": cancelled,
    "raises": failing,
    "returns the same token": supplying("a", 500),
}


@pytest.mark.parametrize("problem", PROBLEMS)
@given(st.integers(1, 6), st.integers(0, 2**32))
def test_a_function_that_fails_is_asked_again_in_time(problem: str, times: int, seed: int) -> None:
    with virtual_time() as clock:
        story = Story(clock, seed=seed)
        story.run(token("a", 1e5), [PROBLEMS[problem]] * times + [supplying("b", None)], until=1e5)
    ((at, value, _),) = story.renewed
    assert (value, len(story.asked)) == ("b", times + 1)
    assert at < 1e5


@given(st.integers(1, 6), st.integers(0, 2**32))
def test_after_a_refusal_the_function_is_asked_again(times: int, seed: int) -> None:
    with virtual_time() as clock:
        story = Story(clock, seed=seed)
        supplies = [supplying(f"t{number}", 1e9) for number in range(times + 1)]
        story.run(token("a", 1e5), supplies, ["401 revoked"] * times, until=1e5)
    assert [value for _, value, _ in story.renewed] == [f"t{number}" for number in range(times + 1)]
    assert len(story.asked) == times + 1


@given(st.floats(1, 3600), st.sampled_from(sorted(PROBLEMS)), st.integers(0, 2**32))
def test_the_function_is_asked_a_bounded_number_of_times(life: float, problem: str, seed: int) -> None:
    """Each pause takes most of the time that is left, and none is below a second."""
    with virtual_time() as clock:
        story = Story(clock, seed=seed)
        story.run(token("a", life), [PROBLEMS[problem]] * 100, until=10 * life + 100)
    assert not story.renewed
    assert 1 <= len(story.asked) <= 12
    assert all(after - before > 0.99 for before, after in itertools.pairwise(story.asked))


@given(st.floats(0, 1e6))
def test_a_token_that_has_expired_by_this_clock_is_not_renewed(ago: float) -> None:
    """A clock that is hours ahead of the broker's renews nothing in a loop: the broker decides."""
    with virtual_time() as clock:
        story = Story(clock)
        story.run(token("a", -ago), [supplying("b", -ago)] * 100)
    assert (story.asked, story.renewed) == ([], [])


@pytest.mark.parametrize(
    ("seconds", "fresh"), [(None, True), (100, False)], ids=["no expiry", "not by a function"]
)
def test_what_cannot_be_renewed_is_left_alone(seconds: float | None, fresh: bool) -> None:
    with virtual_time() as clock:
        story = Story(clock)
        story.run(token("a", seconds, fresh=fresh), [])
    assert (story.asked, story.renewed) == ([], [])


def test_a_session_that_ends_ends_its_renewal() -> None:
    with virtual_time() as clock:
        story = Story(clock)
        story.run(token("a", 100), [supplying("b", 100)], until=50)
    assert story.asked == []


def test_each_problem_is_logged_once_and_names_no_token(caplog: pytest.LogCaptureFixture) -> None:
    with virtual_time() as clock, caplog.at_level(logging.WARNING, "haclient"):
        story = Story(clock)
        supplies = [failing, no_answer, supplying("secret-2", 100), supplying("secret-3", None)]
        story.run(token("secret-1", 1e5), supplies, ["401 revoked"])
    assert [record.getMessage() for record in caplog.records] == [
        "c: the application's callable supplied no token (OSError); the client calls it again",
        "c: the application's callable supplied no token (no answer); the client calls it again",
        "c: its new token was refused: 401 revoked",
    ]


def test_a_token_that_expires_without_another_one_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with virtual_time() as clock, caplog.at_level(logging.WARNING, "haclient"):
        Story(clock).run(token("a", 100), [supplying("a", 100)] * 20)
    assert caplog.records[-1].getMessage() == "c: its token has expired by the clock here"
