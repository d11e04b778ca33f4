"""Redirect targets that served stay candidates, after all others (rule 10 of ``topology``)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from haclient.cluster_url.endpoint import Endpoint, Origin
from haclient.discovery.decision import Found
from haclient.discovery.evidence import (
    AttemptEnded,
    Claimed,
    Evidence,
    Failure,
    FailureReason,
    PrimaryLost,
    Pushed,
    Resolved,
)
from haclient.discovery.topology import Topology, update
from haclient.retry.policy import Policy, Redirects

from .virtual import E, Factory, Fails, Serves, World, closes, dialled, redirects

ROUTER, A, B, C = (Endpoint(f"10.9.0.{number}", 5672) for number in range(4))
NAME = Endpoint("router.example.com", 5672)
V4, V6 = Endpoint("10.9.0.8", 5672), Endpoint("2001:db8::8", 5672)


def redirected(endpoint: Endpoint) -> Endpoint:
    """Return the endpoint as the target of a redirect."""
    return replace(endpoint, origin=Origin.REDIRECT)


def after(topology: Topology, *facts: Evidence) -> Topology:
    """Return the topology after these facts, in this order."""
    for fact in facts:
        topology = update(topology, fact)
    return topology


def served(topology: Topology, endpoint: Endpoint, **claim: bool) -> Topology:
    """Return the topology after an endpoint served because of a redirect, and was lost."""
    version = topology.version
    claimed = Claimed(redirected(endpoint), None, None, version, **claim)
    return after(topology, claimed, PrimaryLost(endpoint, version))


def test_it_is_the_last_candidate_after_the_loss() -> None:
    """The router may know a better broker."""
    topology = after(served(Topology(seeds=(ROUTER,)), A), Pushed((C,), 1))
    assert topology.candidates() == (ROUTER, C, A)


def test_the_one_that_served_last_is_the_first_of_them() -> None:
    """The last one is the most likely to serve again; each is a candidate once."""
    topology = served(served(served(Topology(seeds=(ROUTER,)), A), B), A)
    assert topology.candidates() == (ROUTER, A, B)


def test_a_target_that_did_not_serve_is_no_candidate() -> None:
    """A target that a lost primary merely named did not serve either."""
    topology = served(Topology(seeds=(ROUTER,)), A, usable=False)
    assert topology.candidates() == (ROUTER,)
    refused = AttemptEnded(redirected(A), Failure(kind=FailureReason.REFUSED), 1)
    assert after(topology, refused).candidates() == (ROUTER,)


@pytest.mark.parametrize(("option", "kept"), [("members", True), ("any", True), ("none", False)])
def test_the_option_redirects_decides(*, option: Redirects, kept: bool) -> None:
    assert (A in served(Topology(seeds=(ROUTER,), redirects=option), A).candidates()) is kept


def test_credentials_go_to_no_address_that_the_url_does_not_allow_any_more() -> None:
    """The name has a new address, and its former address may belong to anyone."""
    target = replace(V4, port=5673)
    topology = Topology(seeds=(NAME,), only_trusted=True)
    topology = served(after(topology, Resolved(NAME, (V4,))), target)
    assert topology.candidates() == (V4, target)
    assert after(topology, Resolved(NAME, (V6,))).candidates() == (V6,)


def test_an_address_of_the_list_is_not_kept_beside_it() -> None:
    """The client follows a name that moves, even if a redirect led to its former address."""
    topology = served(after(Topology(seeds=(NAME,)), Resolved(NAME, (V4,))), V4)
    assert after(topology, Resolved(NAME, (V6,))).candidates() == (V6,)


def test_those_of_a_site_that_is_not_in_use_any_more_are_dropped() -> None:
    topology = served(Topology(seeds=(ROUTER,), dr=(C,)), A)
    moved = after(topology, Claimed(C, None, None, 1))
    assert moved.candidates(other_site=True) == (C, ROUTER)


def test_what_routers_can_make_a_client_remember_is_bounded() -> None:
    """A thousand brokers behind one router."""
    topology = Topology(seeds=(ROUTER,))
    for number in range(1000):
        topology = served(topology, Endpoint(f"10.8.{number // 250}.{number % 250}", 5672))
    assert len(topology.candidates()) <= 9
    assert topology.candidates()[1] == Endpoint("10.8.3.249", 5672)


NOT_READY = closes("amqp:connection:forced")


def test_a_router_that_is_not_ready_does_not_keep_a_client_from_the_broker_it_was_on() -> None:
    """The URL lists only the router, and the broker is back after a second."""
    world: World = {
        E[0]: lambda now: redirects(E[5]) if now < 1.0 else NOT_READY,
        E[5]: lambda now: Serves(drops_after=5.0) if now < 1.0 else Fails() if now < 6.0 else Serves(),
    }
    factory = Factory(world, E[:1], policy=Policy(startup_deadline=None))
    factory.connect()
    factory.run(until=60.0)
    assert len(factory.of_type(Found)) == 2
    assert factory.now < 6.0 + Policy().backoff_max
    assert dialled(factory)[:4] == [0, 5, 0, 5]


def test_a_router_that_is_ready_decides() -> None:
    """The client dials the broker that served again only if the router redirects to it."""
    world: World = {
        E[0]: lambda now: redirects(E[5] if now < 1.0 else E[6]),
        E[5]: lambda now: Serves(drops_after=5.0 if now < 1.0 else None),
        E[6]: Serves(),
    }
    factory = Factory(world, E[:1])
    factory.connect()
    factory.run(until=60.0)
    assert dialled(factory) == [0, 5, 0, 6]
