"""Rules 4 to 6 of discovery: redirects, passive members, and failures that a retry cannot repair."""

from __future__ import annotations

from dataclasses import replace

import pytest

from haclient.cluster_url.endpoint import Endpoint, Origin
from haclient.discovery.decision import (
    Abandon,
    BackOff,
    Dial,
    Found,
    GiveUp,
    GiveUpReason,
    StartRound,
    Wait,
)
from haclient.discovery.evidence import Failure, FailureReason
from haclient.discovery.topology import Topology
from haclient.retry.policy import Policy

from .virtual import (
    REFUSED,
    WRONG_CERTIFICATE,
    WRONG_PASSWORD,
    BlackHole,
    E,
    Factory,
    Fails,
    Serves,
    World,
    closes,
    dialled,
    endpoint,
    ran,
    redirects,
    search,
    verdict,
)


class TestRule4Redirects:
    """Redirects are followed at once, ahead of the list, but never for ever."""

    def test_a_redirect_goes_ahead_of_the_list(self) -> None:
        """The search does not wait for the stagger."""
        factory = ran({E[0]: redirects(E[3]), E[3]: Serves()}, 4)
        assert [(when, where) for when, where in factory.dials()] == [(0.0, E[0]), (0.001, E[3])]
        dial = factory.of_type(Dial)[1]
        assert (dial.hops, dial.endpoint.origin) == (1, Origin.REDIRECT)

    def test_two_members_that_redirect_to_each_other_do_not_hide_the_primary(self) -> None:
        """The search refuses the loop and continues with the list."""
        factory = ran({E[0]: redirects(E[1]), E[1]: redirects(E[0]), E[2]: Serves()}, 3)
        assert dialled(factory) == [0, 1, 2]
        assert isinstance(factory.trace[-1].decision, Found)

    def test_a_loop_ends_in_backoff_and_not_in_a_spin(self) -> None:
        """Two dials a round if there is no primary."""
        factory = ran({E[0]: redirects(E[1]), E[1]: redirects(E[0])}, 2, Policy(startup_deadline=30))
        rounds = len(factory.of_type(StartRound))
        assert len(factory.dials()) == 2 * rounds
        refused = [r for r in verdict(factory).attempts if r.failure.kind is FailureReason.REDIRECT_REFUSED]
        assert len(refused) == rounds
        assert "loop" in refused[0].failure.detail

    def test_a_member_that_redirects_to_itself_is_a_loop(self) -> None:
        """One dial a round."""
        factory = ran({E[0]: redirects(E[0])}, 1, until=0.05)
        assert dialled(factory)[:1] == [0]
        assert len(factory.dials()) == len(factory.of_type(StartRound))

    def test_a_chain_of_eight_is_cut_and_the_listed_primary_found(self) -> None:
        """The search follows five hops, but not the sixth."""
        world: World = {E[n]: redirects(E[n + 1]) for n in range(10, 18)} | {E[1]: Serves()}
        factory = Factory(world, [E[10], E[1]])
        connection = factory.connect()
        looking = connection.search
        factory.run()
        assert dialled(factory) == [10, 11, 12, 13, 14, 15, 1]
        assert looking is not None
        assert looking.history[-1].failure.kind is FailureReason.REDIRECT_REFUSED
        assert "chain longer than 5" in looking.history[-1].failure.detail

    def test_a_redirect_by_name_reaches_the_known_address(self) -> None:
        """The list has the member by address: a redirect to its name does not cause a second dial."""
        name = Endpoint("broker.example.com", 5672)
        factory = Factory(
            {E[0]: redirects(name), E[1]: Serves()}, [name, E[0]], names={name: (0.0005, (E[1],))}
        )
        factory.connect()
        factory.run()
        assert dialled(factory) == [0, 1]
        assert factory.of_type(Dial)[1].endpoint.tls_name == name.host

    def test_a_target_in_flight_is_not_dialled_twice(self) -> None:
        """The primary answers slowly; meanwhile the passive member redirects to it."""
        factory = ran({E[0]: Serves(after=1.0), E[1]: redirects(E[0])}, 2)
        assert dialled(factory).count(0) == 1
        assert factory.of_type(Found) == [Found(1)]

    def test_a_redirect_is_newer_than_a_failure_but_only_once_a_round(self) -> None:
        """The primary has just refused, and two members redirect to it."""
        factory = ran({E[0]: Fails(), E[1]: redirects(E[0]), E[2]: redirects(E[0])}, 3, until=0.5)
        assert dialled(factory) == [0, 1, 2, 0]
        assert factory.dials()[-1][0] == pytest.approx(0.4), "as soon as two dials may follow each other"

    def test_a_redirect_does_not_override_a_retry_after(self) -> None:
        """The primary made a reservation; redirects of other members to it change nothing."""
        factory = ran({E[0]: closes(retry_after=3.0), E[1]: redirects(E[0])}, 2, until=2.0)
        assert dialled(factory) == [0, 1]
        assert factory.of_type(BackOff)[0].delay.retry_after == 3.0

    @pytest.mark.parametrize(("credentials", "expected"), [(True, [0, 1]), (False, [0, 9])])
    def test_credentials_do_not_go_to_a_foreign_target(
        self, *, credentials: bool, expected: list[int]
    ) -> None:
        """Without credentials, the redirect is harmless."""
        world: World = {E[0]: redirects(E[9]), E[9]: Serves(), E[1]: Serves()}
        assert dialled(ran(world, 2, credentials=credentials)) == expected

    def test_a_redirect_without_tls_is_refused_by_a_secure_connection(self) -> None:
        """This holds even without credentials."""
        secure = replace(E[0], tls=True)
        factory = Factory(
            {secure: redirects(E[1]), E[1]: Serves()}, [secure], policy=Policy(startup_deadline=1)
        )
        factory.connect()
        factory.run()
        assert E[1] not in [where for _, where in factory.dials()]
        assert verdict(factory).attempts[0].failure.kind is FailureReason.REDIRECT_REFUSED

    def test_a_redirect_makes_room_at_the_cap_of_the_factory(self) -> None:
        """Another search has taken the dial that became free when the member redirected."""
        crowded = search()
        topology = Topology(seeds=(E[0], E[1], E[2]))
        crowded.next(0.0, topology)
        assert crowded.next(0.0, topology) == Dial(1, E[0])
        assert crowded.next(0.25, topology) == Dial(2, E[1])
        crowded.attempt_ended(2, 0.3, Failure(kind=FailureReason.REDIRECTED, redirect=E[5]))
        gone = crowded.next(0.3, topology, free_dials=0)
        assert isinstance(gone, Abandon)
        assert (gone.attempt, gone.kind) == (1, FailureReason.DISPLACED)
        assert crowded.next(0.3, topology, free_dials=1) == Dial(3, E[5], hops=1)

    def test_a_redirect_that_waits_for_room_keeps_the_round_open(self) -> None:
        """The search dials the target when a dial is free, before any delay."""
        crowded = search()
        topology = Topology(seeds=(E[0],))
        crowded.next(0.0, topology)
        crowded.next(0.0, topology)
        crowded.attempt_ended(1, 0.1, Failure(kind=FailureReason.REDIRECTED, redirect=E[5]))
        assert crowded.next(0.1, topology, free_dials=0) == Wait(60.0)
        assert crowded.next(0.7, topology, free_dials=1) == Dial(2, E[5], hops=1)

    def test_a_peer_that_keeps_pushing_new_members_cannot_prolong_a_round_for_ever(self) -> None:
        """Each member announces two new ones."""
        policy = Policy(pushed_members="replace", startup_deadline=20)
        world = {endpoint(n): Fails(pushes=(endpoint(2 * n + 1), endpoint(2 * n + 2))) for n in range(30_000)}
        factory = Factory(world, E[:1], policy=policy)
        factory.connect()
        factory.run(until=2.0)
        assert len(factory.of_type(BackOff)) >= 3
        assert len(factory.dials()) <= 8 * len(factory.of_type(StartRound))


class TestRule5PassiveMembers:
    """Real passive members behave like this: the search dials the next member."""

    @pytest.mark.parametrize(
        "behaviour",
        [
            Fails(),
            Fails(Failure(kind=FailureReason.UNREACHABLE)),
            Fails(Failure(kind=FailureReason.ENDED, detail="EOF after SASL")),
            Fails(Failure(kind=FailureReason.NOT_AMQP)),
            Fails(Failure(kind=FailureReason.TLS_FAILED)),
            Fails(Failure(kind=FailureReason.AUTHENTICATION_TEMPORARY)),
            Fails(Failure(kind=FailureReason.REDIRECTED)),
            closes("amqp:connection:forced"),
            closes("amqp:resource-limit-exceeded"),
            closes("amqp:internal-error"),
            closes("amqp:not-found"),
            closes(),
            BlackHole(),
            BlackHole(tcp=0.01),
        ],
        ids=repr,
    )
    def test_the_primary_behind_it_is_found_and_it_is_asked_again_later(self, behaviour: Fails) -> None:
        """The primary is found in the first round; a lone member is retried."""
        assert ran({E[0]: behaviour, E[1]: Serves()}, 2).of_type(Found)
        later: World = {E[0]: lambda now: behaviour if now < 1 else Serves(), E[1]: Fails()}
        assert ran(later, 2).of_type(Found)


class TestRule6Fatal:
    """Failures that a retry cannot repair."""

    @pytest.mark.parametrize(
        ("failure", "reason"),
        [
            (WRONG_PASSWORD, GiveUpReason.AUTHENTICATION),
            (WRONG_CERTIFICATE, GiveUpReason.TLS_VERIFICATION),
        ],
    )
    def test_one_attempt_per_member_and_then_the_reason(self, failure: Failure, reason: GiveUpReason) -> None:
        """More attempts would lock the account."""
        factory = ran({E[n]: Fails(failure) for n in range(3)}, 3)
        assert dialled(factory) == [0, 1, 2]
        assert verdict(factory).reason is reason
        assert verdict(factory).detail == f"{E[0]}: {failure.detail}"
        assert [record.number for record in verdict(factory).attempts] == [1, 2, 3]

    def test_the_other_members_still_get_their_turn(self) -> None:
        """Only one member has the wrong user database."""
        assert ran({E[0]: Fails(WRONG_PASSWORD), E[1]: Serves()}, 2).of_type(Found)

    def test_a_redirect_does_not_lead_back_to_a_member_that_refused_the_password(self) -> None:
        """A second attempt would send the wrong password again."""
        factory = ran({E[0]: Fails(WRONG_PASSWORD), E[1]: redirects(E[0])}, 2)
        assert dialled(factory) == [0, 1]
        assert verdict(factory).reason is GiveUpReason.AUTHENTICATION

    def test_a_refused_password_of_an_earlier_round_is_not_tried_again(self) -> None:
        """The slow member refuses while the search backs off."""
        policy = Policy(backoff_base=1.0)
        slow = search(policy)
        topology = Topology(seeds=(E[0], E[1]))
        slow.next(0.0, topology)
        slow.next(0.0, topology)
        slow.tcp_connected(1, 0.1)
        assert slow.next(0.25, topology) == Dial(2, E[1])
        slow.attempt_ended(2, 0.6, REFUSED)
        wait = slow.next(0.6, topology)
        assert isinstance(wait, BackOff)
        slow.attempt_ended(1, 0.6, WRONG_PASSWORD)
        assert slow.next(wait.until, topology) == StartRound(2)
        assert slow.next(wait.until, topology) == Dial(3, E[1])
        slow.attempt_ended(3, wait.until, REFUSED)
        end = slow.next(wait.until, topology)
        assert isinstance(end, GiveUp)
        assert end.reason is GiveUpReason.AUTHENTICATION

    def test_hanging_members_delay_the_verdict_by_no_more_than_a_stagger(self) -> None:
        """The search then stops the hanging attempts."""
        factory = ran({E[0]: Fails(WRONG_PASSWORD)}, 2)
        assert verdict(factory).reason is GiveUpReason.AUTHENTICATION
        assert factory.now == pytest.approx(0.251)
        assert [a.kind for a in factory.of_type(Abandon)] == [FailureReason.STOPPED]

    @pytest.mark.parametrize(
        ("first", "second", "reason"),
        [
            ("amqp:not-found", "amqp:not-found", GiveUpReason.NOT_FOUND),
            ("amqp:invalid-field", "amqp:invalid-field", GiveUpReason.INVALID_FIELD),
            ("amqp:invalid-field", "amqp:not-found", GiveUpReason.NOT_FOUND),
            ("amqp:not-found", "amqp:connection:forced", GiveUpReason.DEADLINE),
        ],
    )
    def test_an_unknown_name_is_fatal_when_every_member_says_so(
        self, first: str, second: str, reason: GiveUpReason
    ) -> None:
        """A single passive member may not know the name yet."""
        factory = ran({E[0]: closes(first), E[1]: closes(second)}, 2, Policy(startup_deadline=20))
        assert verdict(factory).reason is reason
        assert (factory.now == 20) == (reason is GiveUpReason.DEADLINE)

    def test_a_member_that_only_redirects_does_not_speak_about_names(self) -> None:
        """The primary to which it redirects does."""
        factory = ran({E[0]: redirects(E[1]), E[1]: closes("amqp:not-found")}, 2)
        assert verdict(factory).reason is GiveUpReason.NOT_FOUND
