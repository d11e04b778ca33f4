"""Fixed delays of the application are used unchanged, and the search ends when they are used up.

As with proton's ``reconnect=``, a delay precedes each address, and is the same for a whole round.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haclient.cluster_url.endpoint import Endpoint, Origin
from haclient.discovery.decision import BackOff, Found, GiveUp, GiveUpReason
from haclient.discovery.evidence import Failure, FailureReason
from haclient.retry.backoff import FixedDelays
from haclient.retry.policy import Policy

from .virtual import BlackHole, E, Factory, Fails, Serves, World, redirects, verdict

SECONDS = st.sampled_from([0.0, 0.1, 0.5, 1.0, 7.0])
NO_LIMIT = Policy(startup_deadline=None)


def ran(world: World, members: int, *delays: float, rounds: float, first: bool = True) -> Factory:
    factory = Factory(world, E[:members], policy=NO_LIMIT, fixed=FixedDelays(delays, rounds))
    factory.connect(first=first)
    factory.run()
    return factory


@given(delays=st.lists(SECONDS, min_size=1, max_size=5), members=st.integers(1, 4), first=st.booleans())
def test_every_dial_has_the_time_that_the_delays_give_it(
    *, delays: list[float], members: int, first: bool
) -> None:
    """Each dial follows the delay of its round and the previous attempt, which takes one millisecond."""
    world = {E[number]: Fails(after=0.001) for number in range(members)}
    factory = ran(world, members, *delays, rounds=len(delays), first=first)
    waits = [delay for delay in delays for _ in range(members)]
    if first:
        waits[0] = 0.0
    expected, now = [], 0.0
    for number, wait in enumerate(waits):
        expected.append((pytest.approx(now + wait), E[number % members]))
        now += wait + 0.001
    assert factory.dials() == expected
    assert verdict(factory).reason is GiveUpReason.MAX_ATTEMPTS
    assert factory.now == pytest.approx(now)


def test_the_last_delay_repeats() -> None:
    factory = Factory({E[0]: Fails(after=0)}, E[:1], policy=NO_LIMIT, fixed=FixedDelays((0.0, 1.0, 4.0)))
    factory.connect()
    factory.run(until=30)
    assert [when for when, _ in factory.dials()] == pytest.approx([0, 1, 5, 9, 13, 17, 21, 25, 29])
    assert not factory.of_type(GiveUp)


def test_the_delays_begin_anew_after_a_stable_connection() -> None:
    """After an unstable one they continue: a peer that opens and drops is not dialled in a hot loop."""
    fixed = FixedDelays((0.0, 2.0, 3.0))
    for drops_after, expected in ((1.0, [0, 3, 7, 11]), (6.0, [0, 6, 12, 18])):
        world = {E[0]: Serves(after=0, drops_after=drops_after)}
        factory = Factory(world, E[:1], policy=NO_LIMIT, fixed=fixed)
        factory.connect()
        factory.run(until=18)
        assert [when for when, _ in factory.dials()][:4] == pytest.approx(expected)


def test_the_rounds_of_each_search_are_counted_anew() -> None:
    def script(now: float) -> Serves | Fails:
        return Serves(after=0, drops_after=6.0) if now < 1 else Fails(after=0)

    factory = Factory({E[0]: script}, E[:1], policy=NO_LIMIT, fixed=FixedDelays((0.0, 1.0), rounds=2))
    factory.connect()
    factory.run()
    assert [when for when, _ in factory.dials()] == pytest.approx([0, 6, 7])


def test_the_addresses_of_one_name_are_not_kept_apart() -> None:
    """proton tries all addresses of a name in one attempt."""
    name = Endpoint("cluster.test", 5672)
    found = tuple(Endpoint(f"10.9.9.{n}", 5672, False, "cluster.test", Origin.RESOLVED) for n in (1, 2))
    world = dict.fromkeys((*found, E[0]), Fails(after=0.001))
    factory = Factory(
        world, [name, E[0]], policy=NO_LIMIT, names={name: (0.0, found)}, fixed=FixedDelays((0.0, 5.0), 2)
    )
    factory.connect()
    factory.run()
    times = [when for when, where in factory.dials() if where in found]
    apart = [later - earlier for earlier, later in pairwise(times)]
    assert apart == [pytest.approx(0.001), pytest.approx(5.001), pytest.approx(0.001)]


def test_an_attempt_that_hangs_holds_up_nobody() -> None:
    """proton would wait for the hanging attempt, as its delays follow failures only."""
    factory = ran({E[0]: BlackHole(), E[1]: Serves(after=0)}, 2, 0.0, 60.0, rounds=2)
    assert [when for when, _ in factory.dials()] == pytest.approx([0, NO_LIMIT.stagger])
    assert factory.of_type(Found)


def test_an_attempt_that_hangs_in_the_last_round_may_still_win() -> None:
    """No dial follows, but the search waits for the end of its attempts."""
    factory = ran({E[0]: Serves(after=3.0), E[1]: Fails()}, 2, 0.0, rounds=1)
    assert len(factory.dials()) == 2
    assert factory.of_type(Found)
    assert not factory.of_type(GiveUp)


def test_a_redirect_waits_for_no_delay() -> None:
    factory = ran({E[0]: redirects(E[1], 0), E[1]: Serves(after=0)}, 2, 60.0, rounds=1)
    assert [when for when, _ in factory.dials()] == pytest.approx([0, 0])


def test_a_server_that_asks_for_a_wait_gets_it() -> None:
    """With a little jitter, that wait replaces the fixed delay, as with every strategy."""
    refused = Failure(kind=FailureReason.CLOSED, retry_after=4.0)
    factory = ran({E[0]: Fails(refused, after=0)}, 1, 0.0, 1.0, rounds=2)
    (backoff,) = factory.of_type(BackOff)
    assert backoff.delay.retry_after == 4.0
    assert 4.0 <= factory.dials()[1][0] <= 4.0 + NO_LIMIT.backoff_base
