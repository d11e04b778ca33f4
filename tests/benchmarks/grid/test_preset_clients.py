"""The dials of one client of a preset, compared with a trace that was worked out by hand."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, repeat

import pytest

from benchmarks.grid.preset_clients import simulate
from benchmarks.grid.presets import PRESETS, Order, Preset
from haclient.simulation.scenario import Scenario
from haclient.simulation.world import Role, World

ROUND_TRIP = 0.0001
# The lost member refuses.  The second closes until it serves, after 1 s.  The third always closes.
THREE = Scenario(
    clients=1,
    members=3,
    outage=1.0,
    detection=0.0,
    setup_rate=1000.0,
    round_trip=ROUND_TRIP,
)

Trace = list[tuple[int, float]]


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch) -> Trace:
    """Record the member and the time of each SYN."""
    found: Trace = []

    class Tracing(World):
        def count(
            self,
            client: int,
            member: int,
            role: Role,
            now: float,
            *,
            repeated: int = 0,
            accepted: bool = False,
        ) -> None:
            found.append((member, round(now, 2)))
            super().count(client, member, role, now, repeated=repeated, accepted=accepted)

    monkeypatch.setattr("haclient.simulation.fleet.World", Tracing)
    return found


def preset(order: Order, *delays: float, after_lost: bool = False, timeout: float = 10.0) -> Preset:
    def series(_: random.Random) -> Iterator[float]:
        return chain(delays, repeat(delays[-1]))

    return Preset(
        name="one",
        client="",
        parameters="",
        source="",
        delays=series,
        order=order,
        after_lost=after_lost,
        attempt_timeout=timeout,
    )


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        (preset("next", 0, 0.4), [(0, 0), (1, 0.4), (2, 0.8), (0, 1.2), (1, 1.6)]),
        (
            preset("each", 0, 0.4),
            [(0, 0), (1, 0), (2, 0), (0, 0.4), (1, 0.8), (2, 1.2), (0, 1.6), (1, 2.0)],
        ),
        (
            preset("delay-first", 0, 0.7),
            [(0, 0), (1, 0), (2, 0), (0, 0.7), (1, 0.7), (2, 0.7), (0, 1.4), (1, 1.4)],
        ),
        (
            preset("delay-last", 0.7, after_lost=True),
            [(1, 0), (2, 0), (0, 0.7), (1, 0.7), (2, 0.7), (0, 1.4), (1, 1.4)],
        ),
        (
            preset("apart", 0, 0.6),
            [(0, 0), (1, 0), (2, 0), (0, 0.6), (1, 0.6), (2, 0.6), (0, 1.2), (2, 1.2), (1, 1.2)],
        ),
        (
            preset("ready", 0.1, 0.6),
            [(1, 0), (2, 0), (0, 0.1), (1, 0.1), (2, 0.1), (0, 0.7), (1, 0.7), (2, 0.7), (0, 1.3), (1, 1.3)],
        ),
    ],
    ids=["next", "each", "delay-first", "delay-last", "apart", "ready"],
)
def test_a_client_goes_through_three_members_in_its_own_order(
    trace: Trace, client: Preset, expected: Trace
) -> None:
    result = simulate(THREE, client)
    assert result.not_back == 0
    by_time = sorted(trace, key=lambda syn: syn[::-1])
    assert by_time == sorted(expected, key=lambda syn: syn[::-1])


def test_a_host_that_is_gone_holds_up_a_client_that_makes_one_attempt_at_a_time(trace: Trace) -> None:
    scenario = replace(THREE, dead_host=True)
    simulate(scenario, preset("ready", 0.1, 0.6, timeout=2.5))
    assert trace == [(1, 0), (2, 0), (0, 0.1), (0, 1.1), (0, 2.1), (1, 2.6)]


def test_a_host_that_is_gone_does_not_hold_up_one_with_attempts_beside_each_other(trace: Trace) -> None:
    scenario = replace(THREE, dead_host=True)
    result = simulate(scenario, preset("apart", 0, 0.6, timeout=2.5))
    assert result.last < 0.25
    assert [syn for syn in trace if syn[0] == 0] == [(0, 0), (0, 1.0)]


def test_only_the_kernel_ends_an_attempt_without_a_timeout(trace: Trace) -> None:
    scenario = replace(THREE, dead_host=True, outage=200.0)
    simulate(scenario, preset("next", 0, 0.4, timeout=float("inf")))
    assert trace[:12] == [*((0, at) for at in (0, 1, 2, 3, 4, 5, 7, 11, 19, 35, 67)), (1, 131.4)]


def test_with_delays_from_its_start_an_attempt_has_the_whole_delay(trace: Trace) -> None:
    """In gRPC's specification: ``Max(current_deadline, now() + MIN_CONNECT_TIMEOUT)``."""
    scenario = replace(THREE, members=1, dead_host=True, outage=39.5)
    client = replace(preset("next", 0, 1, 40, timeout=20.0), from_start=True)
    simulate(scenario, client)
    first, second = ([(0, at + start) for at in (0, 1, 2, 3, 4, 5, 7, 11, 19)] for start in (0, 20))
    assert trace == [*first, *second, (0, 55.0)]


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("dead_host", [False, True])
@pytest.mark.parametrize("client", PRESETS.values(), ids=lambda client: client.name)
def test_every_client_of_every_preset_is_back(client: Preset, members: int, dead_host: bool) -> None:
    scenario = Scenario(
        clients=50, setup_rate=100, outage=1.0, members=members, dead_host=dead_host, when_full="silent"
    )
    result = simulate(scenario, client)
    assert result.not_back == 0
