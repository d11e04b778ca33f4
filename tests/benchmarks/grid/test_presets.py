"""The presets behave as their projects publish: the series, its bounds, and the distribution of each draw."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from proton import _reactor

from benchmarks.grid.presets import JITTERS, PRESETS, Preset, redis_delay
from tests.benchmarks.grid import kolmogorov

SAMPLES = 4000


def draws(name: str, place: int) -> list[float]:
    """Return the delays of many clients at this place of the series."""
    rng = random.Random(f"{name}/{place}")
    return [next(islice(PRESETS[name].delays(rng), place, None)) for _ in range(SAMPLES)]


def series(name: str, count: int, seed: int = 1) -> list[float]:
    return list(islice(PRESETS[name].delays(random.Random(seed)), count))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("proton", [0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]),
        ("qpid-jms", [0, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 30, 30]),
        ("rhea", [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60, 60]),
        ("mongodb", [0, 0.5, 0.5, 0.5]),
    ],
)
def test_a_preset_without_jitter_is_this_series(name: str, expected: list[float]) -> None:
    assert series(name, len(expected)) == pytest.approx(expected)


EVEN = [
    ("nats", 0, 2.0, 2.1),
    ("nats", 7, 2.0, 2.1),
    ("grpc", 1, 0.8, 1.2),
    ("grpc", 2, 1.6 * 0.8, 1.6 * 1.2),
    ("grpc", 5, 1.6**4 * 0.8, 1.6**4 * 1.2),
    ("grpc", 30, 120 * 0.8, 120 * 1.2),
    ("kafka", 0, 0.04, 0.06),
    ("kafka", 3, 0.32, 0.48),
    ("redis-py", 0, 0, 0.02),  # first retry of the command
    ("redis-py", 1, 0, 0.02),  # first retry within its connect
    ("redis-py", 6, 0, 0.64),
    ("redis-py", 11, 0, 0.04),  # second retry of the command
    ("redis-py", 12, 0, 0.02),
    ("redis-py", 111, 0, 0.02),  # second call of the application, after 10 retries with 10 each
    ("aws-full", 0, 0, 0.01),
    ("aws-full", 4, 0, 0.16),
    ("aws-full", 12, 0, 2),
    ("aws-equal", 0, 0.005, 0.01),
    ("aws-equal", 12, 1, 2),
    ("aws-decorrelated", 0, 0.005, 0.015),
]


@pytest.mark.parametrize(("name", "place", "low", "high"), EVEN)
def test_a_draw_is_even_within_its_bounds(name: str, place: int, low: float, high: float) -> None:
    sample = draws(name, place)
    assert low <= min(sample)
    assert max(sample) <= high
    assert kolmogorov.distance(sample, kolmogorov.uniform(low, high)) < kolmogorov.limit(SAMPLES)


@pytest.mark.parametrize("preset", JITTERS, ids=lambda preset: preset.name)
def test_a_jitter_grows_to_its_cap_and_is_even_below(preset: Preset) -> None:
    name, cap = preset.name.removesuffix(" s").split(" jitter, ")
    share = 0.5 if name == "equal" else 0.0
    for place, ceiling in ((3, 0.08), (20, float(cap))):
        rng = random.Random(place)
        sample = [next(islice(preset.delays(rng), place, None)) for _ in range(SAMPLES)]
        even = kolmogorov.uniform(share * ceiling, ceiling)
        assert kolmogorov.distance(sample, even) < kolmogorov.limit(SAMPLES)


@pytest.mark.parametrize("place", [1, 2, 4])
def test_decorrelated_draws_between_the_base_and_three_times_the_last_one(place: int) -> None:
    rng = random.Random(place)
    shares = []
    for _ in range(SAMPLES):
        before, delay = islice(PRESETS["aws-decorrelated"].delays(rng), place - 1, place + 1)
        shares.append((delay - 0.005) / (3 * before - 0.005))
    assert kolmogorov.distance(shares, kolmogorov.uniform(0, 1)) < kolmogorov.limit(SAMPLES)


def test_grpc_counts_its_delays_from_the_start_of_an_attempt() -> None:
    """The first delay is drawn too: 40 channels of grpcio 1.85.1 dialled again after 0.80 to 1.20 s."""
    assert series("grpc", 1) == [0.0]
    assert PRESETS["grpc"].from_start


def test_proton_waits_as_its_own_iterator_says() -> None:
    expected = list(islice(_reactor.delay_iter(), 40))
    assert series("proton", 40) == pytest.approx(expected)


def test_proton_uses_each_delay_once_for_every_address() -> None:
    """proton's Container makes the same generator of delays and addresses."""
    expected = list(
        islice(((delay, place) for delay in _reactor.delay_iter() for place in range(3)), 30),
    )
    delays = islice(PRESETS["proton"].series(random.Random(1), 3), 30)
    assert [delay for delay, _ in expected] == pytest.approx(list(delays))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qpid-jms", [0, 0, 0, 0.01, 0, 0, 0.02, 0, 0]),
        ("nats", [0, 0, 2.0, 0, 0, 2.0]),
        ("rhea", [0.1, 0.2, 0.4]),
        ("mongodb", [0, 0.5, 0.5]),
    ],
)
def test_with_three_members_delays_come_where_the_client_puts_them(name: str, expected: list[float]) -> None:
    delays = islice(PRESETS[name].series(random.Random(1), 3), len(expected))
    assert list(delays) == pytest.approx(expected, abs=0.1 if name == "nats" else 1e-9)


class Given(random.Random):
    """A random source that returns the given values."""

    def __init__(self, *values: float) -> None:
        super().__init__()
        self._values = list(values)

    def random(self) -> float:
        return self._values.pop(0)


def test_redis_py_delays_are_those_of_its_own_test() -> None:
    """The values are from ``test_exponential_with_jitter_backoff`` in redis-py 8.1.0."""
    draws = Given(0.25, 0.5, 0.75, 1.0, 0.9)
    delays = [redis_delay(draws, failures, base=1, cap=5) for failures in range(5)]
    assert delays == [0.25, 1.0, 3.0, 5.0, 5.0]


def test_redis_py_tries_a_hundred_and_eleven_times_before_its_application_hears_of_it() -> None:
    delays = series("redis-py", 1000)
    assert [place for place, delay in enumerate(delays) if delay == 0.0][:3] == [110, 121, 132]


@pytest.mark.parametrize("failures", range(8))
def test_kafka_delays_are_within_the_tolerance_of_its_own_test(failures: int) -> None:
    """Kafka 4.0, ClusterConnectionStatesTest and ExponentialBackoffTest: within 20 % of the ceiling."""
    ceiling = min(1.0, 0.05 * 2**failures)
    assert all(abs(delay - ceiling) <= 0.2 * ceiling for delay in draws("kafka", failures))
    assert max(draws("kafka", failures)) <= 1.0


def test_kafka_gives_each_attempt_longer() -> None:
    timeouts = list(islice(PRESETS["kafka"].timeouts(random.Random(1)), 20))
    assert 8 <= timeouts[0] <= 12
    assert 16 <= timeouts[1] <= 24
    assert max(timeouts) == 30
    assert min(timeouts[2:]) >= 24


def test_half_of_kafkas_long_delays_are_exactly_the_longest() -> None:
    at_cap = draws("kafka", 10).count(1.0) / SAMPLES
    assert at_cap == pytest.approx(0.5, abs=0.04)


def test_decorrelated_as_aws_published_it_piles_up_at_the_cap() -> None:
    at_cap = draws("aws-decorrelated", 30).count(2.0) / SAMPLES
    assert at_cap > 0.2


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
def test_only_those_that_say_so_cut_their_draws(preset: Preset) -> None:
    """Many clients with the same delay form a herd; ``clips`` marks presets with a herd at the cap."""
    sample = draws(preset.name, 40)
    common = max(sample.count(value) for value in set(sample)) / SAMPLES
    jittered = len(set(sample)) > 1
    assert (jittered and common > 0.01) == preset.clips


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
def test_every_series_is_endless_and_never_negative(preset: Preset) -> None:
    assert min(series(preset.name, 2000)) >= 0


def test_every_preset_says_whose_it_is_and_where_it_is_published() -> None:
    expected = {"proton", "qpid-jms", "rhea", "nats", "grpc", "kafka", "redis-py", "mongodb"}
    assert expected | {"aws-full", "aws-equal", "aws-decorrelated"} == set(PRESETS)
    assert all(preset.source and preset.parameters and preset.client for preset in PRESETS.values())
