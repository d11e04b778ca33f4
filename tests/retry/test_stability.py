"""The start of a new series of delays after a loss: scripted sessions in virtual time."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable

import pytest

from haclient.retry.backoff import Backoff
from haclient.retry.policy import Policy
from haclient.retry.stability import Stability

POLICY = Policy()


def ceilings(sessions: Iterable[tuple[Hashable, float]], search: float = 0.1) -> list[float]:
    """Return the ceiling of the first delay after each session.

    :param sessions: the member of each session, and the seconds for which it was usable.
    :param search: seconds from a loss to the next session.
    """
    stability, backoff = Stability(POLICY.stable_after), Backoff(POLICY, random.Random(1))
    now, found = 1000.0, []
    for member, lived in sessions:
        stability.usable(member, now)
        now += lived
        if stability.begins_anew(now):
            backoff.reset()
        found.append(backoff.next().base)
        now += search
    return found


@pytest.mark.parametrize("lived", [4.0, 2.5001])
def test_a_failover_every_few_seconds_has_the_delays_of_the_first(lived: float) -> None:
    """Two members without generations take turns; each failover is a new incident."""
    members = ["a", "b"] * 20
    assert set(ceilings((member, lived) for member in members)) == {0.1}


def test_so_it_is_behind_one_address_with_generations() -> None:
    """With one virtual address, each generation is a new primary."""
    assert set(ceilings((("x", number), 4.0) for number in range(40))) == {0.1}


def test_a_member_that_drops_its_connections_is_backed_off_from() -> None:
    """The member is always the same, so there was no failover."""
    assert ceilings([("a", 0.1)] * 5) == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6])


def test_two_that_drop_them_in_turn_are_as_well() -> None:
    """The client meets each member twice within ``stable_after``."""
    assert ceilings([("a", 0.1), ("b", 0.1)] * 3)[-3:] == pytest.approx([0.4, 0.8, 1.6])


def test_a_peer_that_invents_generations_gains_little() -> None:
    """The peer drops each connection and claims a newer generation: a series begins once a second at most."""
    found = ceilings(((("x", number), 0.0) for number in range(100)), search=0.1)
    assert found.count(0.1) <= 1 + 100 * 0.1 / 1.0


def test_a_stable_connection_begins_anew() -> None:
    """A session of five seconds is stable, so the next loss is a new incident."""
    assert ceilings([("a", 5.0)] * 3) == [0.1] * 3


def test_members_without_number_are_forgotten() -> None:
    """A peer may announce a new identity each time."""
    stability = Stability(5.0)
    for number in range(1000):
        stability.usable(number, float(number))
    assert len(stability._seen) == 16
