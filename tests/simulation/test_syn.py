"""SYNs of clients, computed by hand: their times, and the counts."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import repeat

import pytest

from benchmarks.grid.preset_clients import simulate
from benchmarks.grid.presets import Preset
from haclient.retry.policy import Policy
from haclient.simulation.scenario import Scenario
from haclient.simulation.syn import SYN_GAPS, SynCounter, SynFigures

AT_ONCE = Preset(
    name="at once",
    client="test",
    parameters="",
    source="",
    delays=lambda _: repeat(0.0),
    attempt_timeout=100.0,
)
"""Dials again as soon as a dial has failed."""

PATIENT = Policy(attempt_timeout=200.0, backoff_base=1e-9, backoff_max=1e-9, backoff_strategy="full")
"""Dials again at once as well, but with the real search."""

TWO = Scenario(
    clients=2, setup_rate=1.0, outage=0.0, detection=0.0, backlog=0, retry_after=False, round_trip=0.0
)
"""The first client keeps the primary busy for a second, and the backlog holds no other client."""


def times(kind: str) -> list[float]:
    found, now = [], 0.0
    for gap in SYN_GAPS["linear" if kind == "linear" else "exponential"]:
        now += gap
        found.append(now)
    return found


def test_syns_repeat_as_the_documentation_of_the_kernel_says() -> None:
    """At the last time of each list, ``connect`` fails."""
    assert times("linear") == [1, 2, 3, 4, 5, 7, 11, 19, 35, 67, 131]
    assert times("exponential") == [1, 3, 7, 15, 31, 63, 127]


CLIENTS = pytest.mark.parametrize("client", [AT_ONCE, PATIENT], ids=["preset", "haclient"])


@CLIENTS
@pytest.mark.parametrize(
    ("repeats", "service", "syns", "back"),
    [
        # seconds of one setup; SYNs of the second client, by hand; time at which it is back
        ("linear", 2.0, [0, 1, 2], 4.0),
        ("exponential", 2.0, [0, 1, 3], 5.0),
        ("linear", 6.0, [0, 1, 2, 3, 4, 5, 7], 13.0),
        ("exponential", 6.0, [0, 1, 3, 7], 13.0),
    ],
)
def test_a_client_before_a_full_backlog_sends_one_syn_after_the_other(
    client: Preset | Policy, repeats: str, service: float, syns: list[float], back: float
) -> None:
    scenario = replace(
        TWO, setup_rate=1 / service, syn_repeats="linear" if repeats == "linear" else "exponential"
    )
    result = simulate(scenario, client)
    assert list(result.attempts) == pytest.approx([0.0, *syns], abs=1e-6)
    assert list(result.back) == pytest.approx([service, back], abs=1e-6)
    assert (result.dials, result.attempts_per_client) == (2, (1 + len(syns)) / 2)
    assert result.refused == len(syns) - 1
    assert result.syns.smallest_gap == pytest.approx(1.0, abs=1e-6)


@CLIENTS
def test_a_dead_host_answers_nothing_until_its_address_has_moved(client: Preset | Policy) -> None:
    """SYNs are sent at 0, 1, 2 and 3 s; the last one reaches the new primary."""
    scenario = replace(TWO, clients=1, outage=2.5, dead_host=True)
    result = simulate(scenario, client)
    assert (result.earlier, list(result.attempts), list(result.back)) == (
        3,
        pytest.approx([0.5], abs=1e-6),
        pytest.approx([1.5], abs=1e-6),
    )
    assert result.dials == 0  # the only dial began before


def test_a_dead_port_refuses_at_once() -> None:
    scenario = replace(TWO, clients=1, outage=2.5, round_trip=1.0)
    result = simulate(scenario, AT_ONCE)
    assert (result.earlier, list(result.attempts), list(result.back)) == (3, [0.5], [2.5])
    assert result.syns == SynFigures(most_at_host=1, most_resets=1, most_of_client=1, smallest_gap=1.0)


def test_a_dead_host_is_given_up_when_the_kernel_or_the_client_does() -> None:
    """The dead host is the first of two members: after SYNs at 0 and 1 s, the second one is dialled."""
    preset = replace(AT_ONCE, attempt_timeout=1.5)
    scenario = replace(TWO, clients=1, members=2, dead_host=True, outage=1.0)
    result = simulate(scenario, preset)
    assert (result.earlier, result.elsewhere, list(result.attempts)) == (1, 1, [0.5])
    patient = replace(preset, attempt_timeout=1e3)
    kernel = simulate(replace(scenario, outage=126.5, syn_repeats="exponential"), patient)
    assert (kernel.earlier, kernel.elsewhere, list(kernel.attempts)) == (7, 0, [0.5])


@pytest.mark.parametrize(("passive", "earlier"), [("close", 3), ("refuse", 5)])
def test_passive_members_close_or_refuse(passive: str, earlier: int) -> None:
    """A refusal takes one second, a close three.

    close: SYNs to the dead member at 0 and 4 s, to the passive one at 1 s; the primary at 5 s.
    refuse: SYNs to the dead member at 0, 2 and 4 s, to the passive one at 1 and 3 s; the primary at 5 s.
    """
    scenario = replace(
        TWO,
        clients=1,
        members=2,
        outage=5.0,
        round_trip=1.0,
        handshake_round_trips=3,
        passive="close" if passive == "close" else "refuse",
    )
    result = simulate(scenario, AT_ONCE)
    assert (result.earlier, list(result.attempts), list(result.back)) == (earlier, [0.0], [4.0])


@CLIENTS
def test_round_trips_and_authentication_are_part_of_a_setup(client: Preset | Policy) -> None:
    scenario = replace(TWO, clients=1, round_trip=0.1, handshake_round_trips=5, authentication=2.0)
    assert list(simulate(scenario, client).back) == pytest.approx([3.5], abs=1e-6)


def test_an_authentication_that_takes_longer_than_the_attempt_is_lost_work() -> None:
    preset = replace(AT_ONCE, attempt_timeout=1.5)
    result = simulate(replace(TWO, clients=1, authentication=2.0, horizon=3.5), preset)
    assert (len(result.back), len(result.attempts), result.handshakes) == (0, 3, 3)


def test_the_second_attempt_of_our_client_has_twice_the_time() -> None:
    client = replace(PATIENT, attempt_timeout=1.6)
    result = simulate(replace(TWO, clients=1, authentication=2.0, horizon=30.0), client)
    assert (len(result.attempts), result.handshakes) == (2, 2)
    assert list(result.back) == pytest.approx([1.6 + 1.0 + 2.0])


def test_the_counter_counts_by_address_and_client() -> None:
    counter = SynCounter(clients=2, members=2)
    for client, member, now in [
        (0, 0, 0.0),
        (0, 0, 0.5),
        (1, 0, 0.6),
        (0, 1, 0.7),
        (0, 0, 0.75),
        (0, 0, 1.6),
    ]:
        counter.count(client, member, now, reset=member == 0, served=False)
    counter.count(1, 1, 0.9, reset=False, served=True)
    counter.count(1, 1, 0.91, reset=False, served=True)
    assert counter.figures() == SynFigures(most_at_host=4, most_resets=4, most_of_client=3, smallest_gap=0.25)


def test_without_a_syn_there_is_no_gap() -> None:
    assert SynCounter(1, 1).figures().smallest_gap == math.inf


def test_polls_of_a_fleet_meet_at_one_host() -> None:
    """A thousand clients that dial twice a second cause 2,000 SYNs and resets a second at one host."""
    twice = replace(AT_ONCE, delays=lambda _: repeat(0.5))
    result = simulate(Scenario(clients=1000, outage=10.0, retry_after=False, round_trip=0.0), twice)
    assert result.syns.most_resets == result.syns.most_at_host == pytest.approx(2000, rel=0.11)
    assert (result.syns.most_of_client, result.syns.smallest_gap) == (2, pytest.approx(0.5))
