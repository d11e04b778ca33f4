"""Rule 10 of discovery: the members of a second site, and the time from which they are candidates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from haclient.cluster_url.endpoint import Endpoint
from haclient.cluster_url.errors import ClusterURLError
from haclient.cluster_url.url import ClusterURL, second_site
from haclient.discovery.evidence import Claimed, Pushed, Resolved
from haclient.discovery.topology import Topology, update
from haclient.retry.policy import Policy

from .virtual import BlackHole, E, Factory, Fails, Serves, World, redirects

HERE, THERE = (E[0], E[1]), (E[10], E[11])
POLICY = Policy(dr=("b1", "b2"), dr_after=20.0, startup_deadline=None, backoff_max=2.0)
GONE = BlackHole()


def factory(world: World, policy: Policy = POLICY) -> Factory:
    made = Factory(world, HERE, policy=policy)
    made.topology = replace(made.topology, dr=THERE)
    return made


def first_there(made: Factory) -> float:
    return min(when for when, where in made.dials() if where in THERE)


def test_the_second_site_is_left_alone_while_the_first_has_a_primary() -> None:
    made = factory({E[0]: GONE, E[1]: Serves(after=5.0), E[10]: Serves()})
    made.connect()
    made.run()
    assert {where for _, where in made.dials()} == set(HERE)
    assert not made.topology.dr_active


@pytest.mark.parametrize("here", [GONE, Fails()], ids=["silent", "refusing"])
def test_a_first_site_that_is_gone_is_left_after_the_configured_time(here: BlackHole | Fails) -> None:
    made = factory({E[0]: here, E[1]: here, E[10]: Fails(), E[11]: Serves()})
    made.connect()
    made.run()
    assert 20.0 <= first_there(made) <= 20.0 + POLICY.backoff_max + POLICY.attempt_timeout
    assert made.topology.primary == E[11]
    assert made.topology.dr_active


def test_a_redirect_to_the_second_site_is_followed_at_once() -> None:
    made = factory({E[0]: GONE, E[1]: redirects(E[11]), E[11]: Serves()})
    made.connect()
    made.run()
    assert first_there(made) < 1.0
    assert made.topology.primary == E[11]


def test_after_a_loss_there_the_other_member_there_comes_first() -> None:
    died = {E[10]: lambda now: Serves(drops_after=100.0) if now < 60 else Fails(), E[11]: Serves()}
    made = factory({E[0]: GONE, E[1]: GONE, **died})
    made.connect()
    made.run()
    lost = next(when for when, where in made.dials() if where == E[11] and when > 60)
    assert [where for when, where in made.dials() if when >= 60 and when <= lost] == [E[10], E[11]]


def test_back_home_as_it_went_there() -> None:
    there = {member: lambda now: Serves(drops_after=100.0) if now < 60 else Fails() for member in THERE}
    home = {member: lambda now: GONE if now < 60 else Serves() for member in HERE}
    made = factory({**there, **home})
    made.connect()
    made.run()
    assert made.topology.primary in HERE
    assert not made.topology.dr_active


def test_without_the_option_nothing_is_different() -> None:
    made = factory({E[0]: GONE, E[1]: GONE, E[10]: Serves()}, replace(POLICY, dr=None))
    made.connect()
    made.run(until=200.0)
    assert {where for _, where in made.dials()} == set(HERE)


def test_what_a_site_has_pushed_is_forgotten_with_it() -> None:
    topology = Topology(seeds=HERE, dr=THERE)
    topology = update(topology, Pushed((E[2], E[11]), 0))
    assert topology.candidates() == (*HERE, E[2])
    assert topology.candidates(other_site=True) == (*HERE, E[2], *THERE)
    at_dr = update(topology, Claimed(E[10], None, None, 0))
    assert at_dr.candidates() == (E[10], E[11])
    assert at_dr.candidates(other_site=True) == (E[10], E[11], *HERE)


def test_names_of_the_second_site_are_looked_up_and_are_members() -> None:
    name = Endpoint("b.example.com", 5672)
    topology = Topology(seeds=(E[0],), dr=(name,))
    assert topology.names() == (name,)
    found = update(topology, Resolved(name, (E[10],)))
    assert found.candidates(other_site=True) == (E[0], E[10])
    assert found.is_member(E[10])
    assert update(found, Claimed(E[10], None, None, 0)).dr_active


def test_the_url_names_the_second_site() -> None:
    url = ClusterURL.parse("amqps://app:secret@a1,a2:5673/?dr=b1,b2:5674&dr_after=90s")
    assert url.options.policy().dr == ("b1", "b2:5674")
    assert url.options.policy().dr_after == 90.0
    assert second_site(url.options.dr, tls=True) == (
        Endpoint("b1", 5671, True),
        Endpoint("b2", 5674, True),
    )
    assert ClusterURL.parse(str(url)).options == url.options


@pytest.mark.parametrize("text", ["b1,,b2", "b1:x", "b1:70000", ""])
def test_a_member_that_is_none_is_refused_by_the_name_of_the_option(text: str) -> None:
    with pytest.raises(ClusterURLError, match="dr") as refused:
        ClusterURL.parse(f"amqp://a/?dr={text}")
    assert refused.value.option == "dr"
