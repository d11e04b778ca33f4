"""The presets do what their projects publish: the series, its bounds, the distribution of every draw."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from haclient.simulation.presets import PRESETS, Preset
from tests.simulation import kolmogorov

SAMPLES = 4000


def draws(name: str, place: int) -> list[float]:
    """Many clients' delay at this place of the series."""
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
    ("grpc", 2, 1.6 * 0.8, 1.6 * 1.2),
    ("grpc", 5, 1.6**4 * 0.8, 1.6**4 * 1.2),
    ("grpc", 30, 120 * 0.8, 120 * 1.2),
    ("kafka", 0, 0.04, 0.06),
    ("kafka", 3, 0.32, 0.48),
    ("redis-py", 0, 0, 2),
    ("redis-py", 2, 0, 8),
    ("redis-py", 4, 0, 2),
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


@pytest.mark.parametrize("place", [1, 2, 4])
def test_decorrelated_draws_between_the_base_and_three_times_the_last_one(place: int) -> None:
    rng = random.Random(place)
    shares = []
    for _ in range(SAMPLES):
        before, delay = islice(PRESETS["aws-decorrelated"].delays(rng), place - 1, place + 1)
        shares.append((delay - 0.005) / (3 * before - 0.005))
    assert kolmogorov.distance(shares, kolmogorov.uniform(0, 1)) < kolmogorov.limit(SAMPLES)


def test_grpc_waits_exactly_a_second_after_the_first_failure() -> None:
    assert series("grpc", 2) == [0.0, 1.0]
    assert PRESETS["grpc"].from_start


def test_half_of_kafkas_long_delays_are_exactly_the_longest() -> None:
    at_cap = draws("kafka", 10).count(1.0) / SAMPLES
    assert at_cap == pytest.approx(0.5, abs=0.04)


def test_decorrelated_as_aws_published_it_piles_up_at_the_cap() -> None:
    at_cap = draws("aws-decorrelated", 30).count(2.0) / SAMPLES
    assert at_cap > 0.2


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
def test_only_those_that_say_so_cut_their_draws(preset: Preset) -> None:
    """A delay that many clients have in common is a herd; where it is the cap, it is said."""
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
