"""Refused credentials and wrong certificates after a loss, which the primary did not refuse (rule 6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from haclient.discovery.decision import Found, GiveUp, GiveUpReason, StartRound
from haclient.discovery.evidence import Failure
from haclient.retry.policy import Policy

from .virtual import (
    REFUSED,
    WRONG_CERTIFICATE,
    WRONG_PASSWORD,
    BlackHole,
    E,
    Factory,
    Fails,
    Parks,
    Serves,
    World,
    closes,
    dialled,
    verdict,
)

A_ROUND = Policy().backoff_max + 1.0
WRONG = [(WRONG_PASSWORD, GiveUpReason.AUTHENTICATION), (WRONG_CERTIFICATE, GiveUpReason.TLS_VERIFICATION)]
wrong = pytest.mark.parametrize(("failure", "reason"), WRONG, ids=["password", "certificate"])


def lost(world: World, members: int = 2, *, until: float = 400.0, **options: object) -> Factory:
    """Run one connection that was just lost, in this world, without a deadline."""
    factory = Factory(world, E[:members], policy=Policy(**options))  # type: ignore[arg-type]
    factory.connect(first=False)
    factory.run(until)
    return factory


@wrong
@pytest.mark.parametrize(
    "away", [Fails(REFUSED), closes("amqp:connection:forced"), BlackHole()], ids=["down", "passive", "hangs"]
)
@pytest.mark.parametrize("seconds", [0.5, 45.0])
def test_a_primary_that_starts_again_is_waited_for(
    failure: Failure, reason: GiveUpReason, away: Fails | BlackHole, seconds: float
) -> None:
    """The other member has refused this client for weeks, unnoticed."""
    world: World = {E[0]: Fails(failure), E[1]: lambda now: away if now < seconds else Serves()}
    factory = lost(world)
    assert factory.of_type(Found)
    assert dialled(factory).count(0) == 1, "asking again would lock the account"


@wrong
def test_every_member_that_refuses_is_the_answer_at_once(failure: Failure, reason: GiveUpReason) -> None:
    """The password was changed."""
    factory = lost({E[n]: Fails(failure) for n in range(3)}, 3)
    assert verdict(factory).reason is reason
    assert sorted(dialled(factory)) == [0, 1, 2]
    assert len(factory.of_type(StartRound)) == 1


@wrong
@pytest.mark.parametrize("seconds", [0.0, 5.0, 60.0])
def test_the_answer_is_final_when_the_others_do_not_serve_for_so_long(
    failure: Failure, reason: GiveUpReason, seconds: float
) -> None:
    """The password was changed, and the other member never comes back."""
    factory = lost({E[0]: Fails(failure), E[1]: Fails(REFUSED)}, refusal_timeout=seconds)
    end = verdict(factory)
    assert end.reason is reason
    assert end.detail == f"{E[0]}: {failure.detail}"
    assert seconds <= factory.now <= seconds + A_ROUND
    assert dialled(factory).count(0) == 1


def test_without_a_refusal_timeout_the_deadline_ends_it_and_says_why() -> None:
    """The text of the error has the reason; its list of attempts is complete."""
    world: World = {E[0]: Fails(WRONG_PASSWORD), E[1]: Fails(REFUSED)}
    assert not lost(world, refusal_timeout=None).of_type(GiveUp)
    factory = lost(world, refusal_timeout=None, deadline=90)
    assert (verdict(factory).reason, factory.now) == (GiveUpReason.DEADLINE, 90)
    assert verdict(factory).detail.endswith(f"; {E[0]}: {WRONG_PASSWORD.detail}")


def test_the_members_of_the_second_site_still_get_their_turn() -> None:
    """The second site may have other users."""
    policy = Policy(dr=("b",), dr_after=30.0)
    made = Factory({E[0]: Fails(WRONG_PASSWORD), E[10]: Serves()}, E[:1], policy=policy)
    made.topology = replace(made.topology, dr=(E[10],))
    made.connect(first=False)
    made.run()
    assert made.topology.primary == E[10]


def test_the_first_connect_ends_with_the_round() -> None:
    """A user probably watches the first connect, and a wrong password is the most likely reason."""
    factory = Factory({E[0]: Fails(WRONG_PASSWORD), E[1]: Fails(REFUSED)}, E[:2])
    factory.connect()
    factory.run()
    assert verdict(factory).reason is GiveUpReason.AUTHENTICATION
    assert factory.now < 0.1


def test_the_connections_of_a_factory_give_up_together() -> None:
    """Each connection tries the member once, and they do not wait a minute one after the other."""
    factory = Factory({E[0]: Fails(WRONG_PASSWORD), E[1]: Fails(REFUSED)}, E[:2])
    for number in range(10):
        factory.connect(str(number), first=False)
    factory.run(until=2000)
    assert [end.reason for end in factory.of_type(GiveUp)] == [GiveUpReason.AUTHENTICATION] * 10
    assert 60 <= factory.now <= 60 + 2 * A_ROUND
    assert dialled(factory).count(0) == 10


UNCHANGED = replace(WRONG_PASSWORD, may_change=True)
PASSIVE = closes("amqp:connection:forced")
backups = pytest.mark.parametrize("other", [PASSIVE, Parks(PASSIVE)], ids=["refuses", "parks"])


@pytest.mark.parametrize(
    "other",
    [closes("amqp:connection:forced"), Parks(closes("amqp:connection:forced"))],
    ids=["refuses", "parks"],
)
def test_a_password_that_a_function_returns_later_is_tried(other: Fails | Parks) -> None:
    """The new primary has the new password before the function returns it; the other member is passive."""
    world: World = {E[0]: lambda now: Fails(UNCHANGED) if now < 20.0 else Serves(), E[1]: other}
    factory = lost(world)
    assert factory.of_type(Found)
    assert 20.0 <= factory.now <= 20.0 + A_ROUND


@pytest.mark.parametrize(
    "other",
    [closes("amqp:connection:forced"), Parks(closes("amqp:connection:forced"))],
    ids=["refuses", "parks"],
)
def test_a_password_that_stays_wrong_is_final_after_that_time(other: Fails | Parks) -> None:
    factory = lost({E[0]: Fails(UNCHANGED), E[1]: other}, refusal_timeout=30.0)
    assert verdict(factory).reason is GiveUpReason.AUTHENTICATION
    assert 30.0 <= factory.now <= 30.0 + A_ROUND


def test_at_the_first_connect_it_is_final_at_once() -> None:
    factory = Factory({E[0]: Fails(UNCHANGED), E[1]: Fails(REFUSED)}, E[:2])
    factory.connect()
    factory.run()
    assert verdict(factory).reason is GiveUpReason.AUTHENTICATION
    assert factory.now < 0.1
