"""``update`` takes evidence and returns a new topology."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haclient.cluster_url.endpoint import Endpoint, Origin
from haclient.discovery.evidence import (
    AttemptEnded,
    Claimed,
    Evidence,
    Failure,
    FailureReason,
    OnlyStaleServed,
    PrimaryLost,
    Pushed,
    Resolved,
)
from haclient.discovery.topology import SELF_INFLICTED, Generations, Topology, update
from haclient.retry.fleet import NO_FLEET, FleetSize
from haclient.retry.policy import Policy, PushedMembers, Redirects

A, B, C = (Endpoint(f"10.0.0.{n}", 5672) for n in (1, 2, 3))
NAME = Endpoint("broker.example.com", 5672)
V4 = Endpoint("10.1.0.1", 5672, server_name=NAME.host, origin=Origin.RESOLVED)
V6 = Endpoint("fd00::1", 5672, server_name=NAME.host, origin=Origin.RESOLVED)
REFUSED = Failure(kind=FailureReason.REFUSED)


def after(topology: Topology, *evidence: Evidence) -> Topology:
    """Apply the evidence in order."""
    for fact in evidence:
        topology = update(topology, fact)
    return topology


class TestCandidates:
    """The endpoints to dial, and their order."""

    def test_seeds_come_in_the_order_of_the_url(self) -> None:
        """No primary is known yet."""
        assert Topology(seeds=(C, A, B)).candidates() == (C, A, B)

    def test_the_primary_comes_first_and_only_once(self) -> None:
        """The client dials it before the list."""
        topology = after(Topology(seeds=(A, B, C)), Claimed(C, None, None, 0))
        assert topology.candidates() == (C, A, B)

    def test_a_name_without_an_address_is_not_dialled(self) -> None:
        """The client resolves it first."""
        topology = Topology(seeds=(NAME, A))
        assert topology.candidates() == (A,)
        assert topology.names() == (NAME,)

    def test_addresses_take_the_place_of_their_name(self) -> None:
        """They are in the order of the resolver."""
        topology = after(Topology(seeds=(NAME, A)), Resolved(NAME, (V6, V4)))
        assert topology.candidates() == (V6, V4, A)

    @pytest.mark.parametrize("literal", ["127.0.0.1", "::1", "fe80::1%eth0"])
    def test_an_ip_literal_needs_no_resolver(self, literal: str) -> None:
        seed = Endpoint(literal, 5672)
        assert Topology(seeds=(seed,)).candidates() == (seed,)
        assert Topology(seeds=(seed,)).names() == ()

    def test_a_pushed_name_is_dialled_by_name_until_it_is_resolved(self) -> None:
        """The driver resolves it with the seeds, in the next round."""
        topology = after(Topology(seeds=(A,)), Pushed((NAME,), 0))
        assert topology.candidates() == (A, NAME)
        assert topology.names() == (NAME,)
        assert after(topology, Resolved(NAME, (V4,))).candidates() == (A, V4)

    def test_a_pushed_name_that_is_a_seed_adds_nothing(self) -> None:
        """The client resolves the name as a seed in any case."""
        topology = after(Topology(seeds=(NAME, A)), Pushed((NAME, B), 0))
        assert topology.candidates() == (A, B)


class TestResolving:
    """Answers of DNS, and empty answers."""

    def test_an_empty_answer_keeps_the_last_good_one(self) -> None:
        """A failing resolver never empties the list."""
        topology = after(Topology(seeds=(NAME,)), Resolved(NAME, (V4,)), Resolved(NAME, ()))
        assert topology.candidates() == (V4,)

    def test_a_moved_name_is_followed(self) -> None:
        """The new answer replaces the old address."""
        topology = after(Topology(seeds=(NAME,)), Resolved(NAME, (V4,)), Resolved(NAME, (V6,)))
        assert topology.candidates() == (V6,)

    def test_an_answer_for_a_stranger_is_ignored(self) -> None:
        """Only seeds and pushed members are in the list."""
        topology = Topology(seeds=(A,))
        assert update(topology, Resolved(NAME, (V4,))) is topology


class TestPushedMembers:
    """The effects of ``failover-server-list``."""

    @pytest.mark.parametrize(
        ("option", "expected"), [("add", (A, C, B)), ("replace", (A, C)), ("ignore", (A,))]
    )
    def test_the_option_decides_and_the_seed_stays(
        self, option: PushedMembers, expected: tuple[Endpoint, ...]
    ) -> None:
        """B is pushed first, then C."""
        topology = Topology(seeds=(A,), pushed_members=option)
        assert after(topology, Pushed((B,), 0), Pushed((C,), 0)).candidates() == expected

    def test_a_secure_client_does_not_learn_insecure_members(self) -> None:
        """A list does not bypass the rule for redirects."""
        secure = replace(B, tls=True)
        topology = after(Topology(seeds=(replace(A, tls=True),)), Pushed((B, secure), 0))
        assert topology.pushed == (secure,)

    def test_what_a_peer_can_make_a_client_remember_is_bounded(self) -> None:
        """Ten thousand members, a thousand clusters and failures."""
        many = [Endpoint(f"m{n}.example.com", 5672) for n in range(10_000)]
        topology = after(Topology(seeds=(A,)), Pushed(tuple(many), 0))
        for number, member in enumerate(many[:1000]):
            topology = after(topology, AttemptEnded(member, REFUSED, 0), Claimed(A, 1, str(number), 0))
        assert len(topology.pushed) <= 64
        assert len(topology.failures) <= 256
        assert len(topology.generations) <= 16


class TestGenerations:
    """Claims that make a primary stale."""

    @pytest.mark.parametrize(
        ("generation", "cluster", "stale"),
        [
            (4, "x", True),
            (5, "x", False),
            (6, "x", False),
            (4, "y", False),
            (4, None, False),
            (None, "x", True),
            (None, "y", False),
            (None, None, False),
        ],
    )
    def test_a_claim_is_measured_by_the_highest_of_its_cluster(
        self, *, generation: int | None, cluster: str | None, stale: bool
    ) -> None:
        """Generation 5 of cluster x was seen before."""
        topology = after(Topology(seeds=(A, B)), Claimed(A, 5, "x", 0), PrimaryLost(A, 0))
        assert topology.is_stale(generation, cluster) is stale
        claimed = update(topology, Claimed(B, generation, cluster, 1))
        assert claimed.primary == (None if stale else B)

    def test_generations_without_a_cluster_are_compared_with_each_other(self) -> None:
        """Members without a cluster id count as one cluster; they may also announce no generation."""
        topology = after(Topology(seeds=(A,)), Claimed(A, 5, None, 0))
        assert topology.is_stale(4, None)
        assert not topology.is_stale(None, None)

    def test_the_highest_generation_survives_the_loss_of_the_primary(self) -> None:
        """Otherwise the client would believe an old primary that comes back."""
        topology = after(
            Topology(seeds=(A, B)), Claimed(A, 5, "x", 0), PrimaryLost(A, 0), Claimed(B, 4, "x", 1)
        )
        assert (topology.primary, topology.generation, topology.cluster) == (None, 5, "x")

    def test_a_visit_to_another_cluster_does_not_rehabilitate_a_stale_primary(self) -> None:
        """Each cluster keeps its own generation, however often another cluster fails over."""
        many = [Claimed(B, number, "y", 0) for number in range(100)]
        topology = after(Topology(seeds=(A, B)), Claimed(A, 5, "x", 0), *many)
        assert (topology.generation, topology.cluster) == (99, "y")
        assert topology.is_stale(4, "x")

    def test_an_unproven_claim_makes_no_proven_member_stale(self) -> None:
        """Anyone may announce a high generation.  Among members of one kind, the higher one counts."""
        impostor = Claimed(C, 99, "x", 0)
        topology = after(Topology(seeds=(A, B)), Claimed(A, 5, "x", 0, proven=True), impostor)
        assert not topology.is_stale(5, "x", proven=True)
        assert topology.is_stale(4, "x", proven=True)
        assert topology.is_stale(98, "x")
        assert topology.is_stale(None, "x", proven=True)
        again = update(topology, Claimed(A, 5, "x", topology.version, proven=True))
        assert again.primary == A
        assert again.is_stale(98, "x")

    def test_a_proven_claim_makes_an_unproven_member_stale(self) -> None:
        topology = after(Topology(seeds=(A, B)), Claimed(A, 5, "x", 0, proven=True))
        assert topology.is_stale(4, "x")
        assert topology.is_stale(None, "x")
        assert not topology.is_stale(5, "x")

    def test_what_is_known_of_generations_is_forgotten_when_only_stale_members_serve(self) -> None:
        topology = after(
            Topology(seeds=(A, B)),
            Claimed(A, 5, "x", 0, proven=True),
            Claimed(B, 9, "y", 0),
            PrimaryLost(B, 0),
        )
        assert update(topology, OnlyStaleServed(0)) is topology, "it is about what was known before"
        forgotten = update(topology, OnlyStaleServed(1))
        assert not forgotten.is_stale(1, "x", proven=True)
        assert not forgotten.is_stale(1, "y")


class TestFleet:
    """The number of clients that primaries announced."""

    FLEET = FleetSize(2000, 200.0)

    def test_it_survives_the_loss_of_the_primary_that_announced_it(self) -> None:
        """The search after the loss needs it."""
        topology = after(Topology(seeds=(A, B)), Claimed(A, 1, "x", 0, fleet=self.FLEET), PrimaryLost(A, 0))
        assert topology.fleet == self.FLEET

    def test_a_parked_session_and_a_named_successor_announce_nothing(self) -> None:
        """The Open of the first is outdated, and the Open of the second has not arrived yet."""
        topology = after(
            Topology(seeds=(A, B)),
            Claimed(A, 1, "x", 0, fleet=self.FLEET),
            PrimaryLost(A, 0),
            Claimed(B, None, None, 1, usable=False),
        )
        assert topology.fleet == self.FLEET

    def test_a_new_primary_has_seen_few_of_its_clients(self) -> None:
        """Later connections to it do not make the fleet smaller again."""
        few = FleetSize(5, 300.0)
        topology = after(
            Topology(seeds=(A, B)),
            Claimed(A, 1, "x", 0, fleet=self.FLEET),
            PrimaryLost(A, 0),
            Claimed(B, 2, "x", 1, fleet=few),
            Claimed(B, 2, "x", 1, fleet=few),
        )
        assert topology.fleet == FleetSize(1000, 300.0)

    def test_a_primary_that_announces_none_ends_the_spread(self) -> None:
        """Such a primary is an ordinary broker, or names the time of the next dial itself."""
        topology = after(
            Topology(seeds=(A, B)),
            Claimed(A, None, None, 0, fleet=self.FLEET),
            PrimaryLost(A, 0),
            Claimed(B, None, None, 1, fleet=NO_FLEET),
        )
        assert topology.fleet == NO_FLEET

    def test_a_stale_primary_changes_nothing(self) -> None:
        """A stale primary may have thousands of clients of its own."""
        topology = after(Topology(seeds=(A, B)), Claimed(A, 5, "x", 0), PrimaryLost(A, 0))
        assert update(topology, Claimed(B, 4, "x", 1, fleet=self.FLEET)).fleet == NO_FLEET

    def test_the_second_site_has_a_fleet_of_its_own(self) -> None:
        """The site had no clients before."""
        topology = after(
            Topology(seeds=(A,), dr=(B,)),
            Claimed(A, 5, "x", 0, fleet=self.FLEET),
            PrimaryLost(A, 0),
            Claimed(B, 1, "y", 1, fleet=FleetSize(3, 100.0)),
        )
        assert topology.fleet == FleetSize(3, 100.0)


class TestEpochs:
    """Evidence holds for one version of the topology."""

    def test_losing_the_primary_clears_it_and_begins_a_version(self) -> None:
        """The search starts from the list again."""
        topology = after(Topology(seeds=(A, B)), Claimed(B, 1, "x", 0), PrimaryLost(B, 0))
        assert (topology.primary, topology.version) == (None, 1)

    def test_a_late_loss_of_an_old_connection_does_not_clear_the_new_claim(self) -> None:
        """One connection notices the loss at once, another one only when the member is back."""
        topology = after(
            Topology(seeds=(A,)), Claimed(A, 1, "x", 0), PrimaryLost(A, 0), Claimed(A, 2, "x", 1)
        )
        assert update(topology, PrimaryLost(A, 0)) is topology

    def test_losing_another_member_changes_nothing(self) -> None:
        topology = after(Topology(seeds=(A, B)), Claimed(B, 1, "x", 0))
        assert update(topology, PrimaryLost(A, 0)) is topology

    @pytest.mark.parametrize(
        "old",
        [Claimed(B, 9, "x", 0), AttemptEnded(B, REFUSED, 0), Pushed((C,), 0), PrimaryLost(B, 0)],
        ids=repr,
    )
    def test_evidence_of_an_older_version_changes_nothing(self, old: Evidence) -> None:
        topology = after(
            Topology(seeds=(A, B)), Claimed(A, 1, "x", 0), PrimaryLost(A, 0), Claimed(B, 2, "x", 1)
        )
        assert update(topology, old) is topology

    @pytest.mark.parametrize("kind", list(FailureReason))
    def test_a_failure_at_the_primary_clears_it_unless_the_client_caused_it(
        self, kind: FailureReason
    ) -> None:
        """A freed dial, a lost race and a stopped search prove nothing about the member."""
        topology = after(Topology(seeds=(A, B)), Claimed(A, 1, "x", 0))
        failed = update(topology, AttemptEnded(A, Failure(kind=kind, redirect=B), 0))
        if kind in SELF_INFLICTED:
            assert failed is topology
        else:
            assert (failed.primary, failed.version) == (None, 1)
            assert dict(failed.failures)[A] == Failure(kind=kind, redirect=B)

    def test_a_claim_forgets_the_last_failure(self) -> None:
        topology = after(Topology(seeds=(A,)), AttemptEnded(A, REFUSED, 0), Claimed(A, 1, "x", 0))
        assert A not in dict(topology.failures)


class TestMembership:
    """The members of the cluster."""

    def test_members_are_seeds_their_addresses_and_pushed_members(self) -> None:
        """Host and port are compared; the case of a name and TLS do not matter."""
        topology = after(Topology(seeds=(NAME, A)), Resolved(NAME, (V4,)), Pushed((B,), 0))
        assert all(topology.is_member(e) for e in (NAME, A, V4, B, replace(A, tls=True)))
        assert topology.is_member(Endpoint("BROKER.example.com", 5672))
        assert not topology.is_member(C)
        assert not topology.is_member(replace(A, port=5673))


class TestForeignMembers:
    """Only the URL decides which hosts get the credentials, never a member."""

    foreign = (C, Endpoint("evil.com", 5672), Endpoint("localhost", 5672))

    def test_an_announced_member_may_not_be_given_the_credentials_by_a_redirect(self) -> None:
        """Otherwise a member could announce a host first, and then redirect to it."""
        topology = after(Topology(seeds=(NAME, A)), Pushed(self.foreign, 0))
        reasons = [topology.may_follow(A, e, Policy(), credentials=True) for e in self.foreign]
        assert None not in reasons
        resolved = after(topology, Resolved(self.foreign[1], (B,)))
        assert resolved.may_follow(A, B, Policy(), credentials=True) is not None

    def test_it_is_refused_where_credentials_are_sent(self) -> None:
        """Listed members, their addresses and their domain stay."""
        sibling = Endpoint("other.example.com", 5672)
        topology = after(Topology(seeds=(NAME, A), only_trusted=True), Resolved(NAME, (V4,)))
        pushed = after(topology, Pushed((*self.foreign, sibling, V4, A), 0))
        assert pushed.pushed == (sibling, V4, A)
        assert topology.refused_members((*self.foreign, sibling, V4, A)) == self.foreign

    def test_it_is_kept_where_none_are_sent(self) -> None:
        """A foreign member learns no secret."""
        assert after(Topology(seeds=(NAME, A)), Pushed(self.foreign, 0)).pushed == self.foreign

    def test_members_of_a_second_site_are_listed_too(self) -> None:
        """Their addresses count as well."""
        topology = after(Topology(seeds=(A,), dr=(NAME,), only_trusted=True), Resolved(NAME, (V4,)))
        assert after(topology, Pushed((V4, C), 0)).pushed == (V4,)


class TestRedirects:
    """The targets that a redirect may name."""

    seeds = Topology(seeds=(NAME, A))

    @pytest.mark.parametrize(
        ("redirects", "target", "credentials", "allowed"),
        [
            ("members", A, True, True),
            ("members", Endpoint("other.example.com", 5999), True, True),
            ("members", Endpoint("other.EXAMPLE.com", 5999), True, True),
            ("members", Endpoint("evil.com", 5672), True, False),
            ("members", Endpoint("example.com", 5672), True, False),
            ("members", Endpoint("a.evil-example.com", 5672), True, False),
            ("members", Endpoint("10.0.0.9", 5672), True, False),
            ("members", Endpoint("localhost", 5672), True, False),
            ("members", Endpoint("evil.com", 5672), False, True),
            ("any", Endpoint("evil.com", 5672), True, True),
            ("none", A, True, False),
            ("none", A, False, False),
        ],
    )
    def test_the_option_decides_where_credentials_go(
        self, *, redirects: Redirects, target: Endpoint, credentials: bool, allowed: bool
    ) -> None:
        """Without credentials, a foreign target learns no secret."""
        policy = Policy(redirects=redirects)
        reason = self.seeds.may_follow(A, target, policy, credentials=credentials)
        assert (reason is None) is allowed

    @pytest.mark.parametrize("redirects", ["members", "any"])
    @pytest.mark.parametrize("credentials", [True, False])
    def test_a_secure_member_never_redirects_to_an_insecure_endpoint(
        self, *, redirects: Redirects, credentials: bool
    ) -> None:
        """This holds even for a known member."""
        policy = Policy(redirects=redirects)
        secure = replace(B, tls=True)
        assert self.seeds.may_follow(secure, A, policy, credentials=credentials) is not None
        assert self.seeds.may_follow(A, replace(A, tls=True), policy, credentials=credentials) is None
        assert self.seeds.may_follow(secure, replace(A, tls=True), policy, credentials=credentials) is None

    def test_two_names_below_a_top_level_domain_are_strangers(self) -> None:
        """``a.com`` and ``b.com`` have different owners."""
        topology = Topology(seeds=(Endpoint("a.com", 5672),))
        assert topology.may_follow(A, Endpoint("b.com", 5672), Policy(), credentials=True) is not None

    def test_the_name_that_tls_verifies_counts_for_the_domain(self) -> None:
        """A seed may be an address with a ``server_name``."""
        topology = Topology(seeds=(replace(A, server_name="a.example.com"),))
        target = Endpoint("b.example.com", 5672)
        assert topology.may_follow(A, target, Policy(), credentials=True) is None


TARGETS = [replace(each, origin=Origin.REDIRECT) for each in (A, C, V4, Endpoint("far.test", 5672))]
ENDPOINTS = st.sampled_from([A, B, C, NAME, V4, V6, Endpoint("localhost", 5672), *TARGETS])
VERSIONS = st.integers(0, 6)
LISTS = st.lists(ENDPOINTS, max_size=4).map(tuple)
CLAIMS = st.builds(
    Claimed,
    ENDPOINTS,
    st.none() | st.integers(0, 5),
    st.sampled_from([None, "x", "y"]),
    VERSIONS,
    proven=st.booleans(),
)
EVIDENCE = st.one_of(
    CLAIMS,
    st.builds(PrimaryLost, ENDPOINTS, VERSIONS),
    st.builds(
        AttemptEnded,
        ENDPOINTS,
        st.builds(Failure, kind=st.sampled_from(FailureReason), redirect=ENDPOINTS),
        VERSIONS,
    ),
    st.builds(Pushed, LISTS, VERSIONS),
    st.builds(Resolved, ENDPOINTS, LISTS),
)


def assert_generations_only_grow(before: Generations, after: Generations) -> None:
    heights = dict(after)
    assert all(heights[cluster] >= number for cluster, number in before)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(option=st.sampled_from(["add", "replace", "ignore"]), evidence=st.lists(EVIDENCE, max_size=40))
def test_no_evidence_breaks_the_laws_of_the_topology(option: PushedMembers, evidence: list[Evidence]) -> None:
    """Seeds are kept, versions and generations only grow, and stale claims are not believed."""
    topology = Topology(seeds=(A, NAME), pushed_members=option)
    for fact in evidence:
        before, topology = topology, update(topology, fact)
        assert topology.seeds == (A, NAME)
        assert A in topology.candidates()
        assert set(before.addresses(NAME)) == set() or topology.addresses(NAME)
        assert len(set(topology.candidates())) == len(topology.candidates())
        assert set(before.served) - set(topology.served) == set(), "there are few of them"
        assert set(topology.served) <= {C, V4, TARGETS[-1]}, "and none that is listed"
        assert topology.version in {before.version, before.version + 1}
        assert (topology.version == before.version) or topology.primary is None
        assert_generations_only_grow(before.generations, topology.generations)
        assert_generations_only_grow(before.proven, topology.proven)
        if isinstance(fact, Claimed):
            was_stale = before.is_stale(fact.generation, fact.cluster, proven=fact.proven)
            assert topology.primary == before.primary or not was_stale
            assert fact.proven or topology.proven == before.proven
        if not isinstance(fact, Resolved) and fact.topology_version < before.version:
            assert topology is before
