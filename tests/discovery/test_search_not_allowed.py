"""``not-allowed`` from every member: a limit, a virtual host or a second client (rule 2 of ``refusals``)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from haclient.discovery.decision import Found, GiveUp, GiveUpReason, StartRound
from haclient.retry.policy import Policy

from .virtual import BlackHole, E, Factory, Fails, Serves, World, closes, redirects, verdict

NOT_ALLOWED = closes("amqp:not-allowed")
NOT_FOUND = closes("amqp:not-found")
FORCED = closes("amqp:connection:forced")
THREE = {E[n]: NOT_ALLOWED for n in range(3)}
A_ROUND = Policy().backoff_max + 1.0


def searched(
    world: World, members: int = 3, *, first: bool, until: float = 300.0, **options: object
) -> Factory:
    """Run one connection that searches in this world."""
    factory = Factory(world, E[:members], policy=Policy(**options))  # type: ignore[arg-type]
    factory.connect(first=first)
    factory.run(until)
    return factory


@pytest.mark.parametrize("members", [1, 3])
def test_one_unanimous_round_is_the_answer_at_the_first_connect(members: int) -> None:
    """Another round would get the same answer."""
    factory = searched(THREE, members, first=True)
    assert verdict(factory).reason is GiveUpReason.NOT_ALLOWED
    assert verdict(factory).detail == f"{E[0]}: amqp:not-allowed"
    assert len(factory.of_type(StartRound)) == 1
    assert len(factory.dials()) == members


def test_the_target_of_a_redirect_speaks_for_the_one_that_redirects() -> None:
    factory = searched({E[0]: redirects(E[9]), E[9]: NOT_ALLOWED}, 1, first=True)
    assert verdict(factory).reason is GiveUpReason.NOT_ALLOWED
    assert len(factory.of_type(StartRound)) == 1


@pytest.mark.parametrize(
    "other",
    [FORCED, Fails(), BlackHole(), closes("amqp:not-allowed", 1.0)],
    ids=["forced", "refused", "no TCP", "retry-after"],
)
def test_one_member_that_answers_something_else_is_asked_again(other: Fails | BlackHole) -> None:
    """The other member may become the primary."""
    world: World = {E[0]: NOT_ALLOWED, E[1]: lambda now: other if now < 20.0 else Serves()}
    factory = searched(world, 2, first=True)
    assert factory.of_type(Found)


def test_beside_another_refusal_it_takes_as_long_as_that() -> None:
    """A group that is electing its primary may give both answers."""
    factory = searched({E[0]: NOT_ALLOWED, E[1]: NOT_FOUND}, 2, first=True)
    assert verdict(factory).reason is GiveUpReason.NOT_FOUND
    assert len(factory.of_type(StartRound)) >= 3
    assert factory.now >= 3


@pytest.mark.parametrize("seconds", [0.07, 5.0, 59.0])
def test_after_a_loss_the_members_have_time_to_allow_it_again(seconds: float) -> None:
    """The members count the former connection of this client until they notice its end."""
    world: World = {E[0]: lambda now: NOT_ALLOWED if now < seconds else Serves(), E[1]: NOT_ALLOWED}
    factory = searched(world, 2, first=False)
    assert factory.of_type(Found)
    assert factory.now <= seconds + A_ROUND


@pytest.mark.slow
def test_after_a_loss_it_is_final_when_it_lasts() -> None:
    """Final after ``refusal_timeout``, without any deadline; never if it is ``None``."""
    factory = searched(THREE, first=False, refusal_timeout=30.0)
    assert verdict(factory).reason is GiveUpReason.NOT_ALLOWED
    assert 30.0 <= factory.now <= 30.0 + A_ROUND
    assert not searched(THREE, first=False, refusal_timeout=None, until=3000).of_type(GiveUp)


def test_the_members_of_the_second_site_are_asked_as_well() -> None:
    """This client may be allowed there."""
    made = Factory({**THREE, E[10]: Serves()}, E[:3], policy=Policy(dr=("b",), dr_after=20.0))
    made.topology = replace(made.topology, dr=(E[10],))
    made.connect()
    made.run()
    assert made.topology.primary == E[10]


def test_every_connection_of_a_factory_is_answered() -> None:
    """Each connection needs a round of its own, and two rounds a second are possible."""
    factory = Factory(THREE, E[:3])
    for number in range(5):
        factory.connect(str(number))
    factory.run()
    assert [end.reason for end in factory.of_type(GiveUp)] == [GiveUpReason.NOT_ALLOWED] * 5
    assert factory.now < 2.5
