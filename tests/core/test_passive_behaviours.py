"""Every behaviour of passive members that was met in the field, one stub each, with a primary among them."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise

import pytest

from haclient import Message, aio
from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import FailureReason
from haclient.events import (
    AttemptFailed,
    AttemptStarted,
    BackingOff,
    Closed,
    Connected,
    Disconnected,
    Reconnected,
    Redirected,
)
from haclient.testing.peers.passive import open_and_drop
from haclient.testing.seeded_backoff import random_source
from haclient.testing.virtual_clock import VirtualTime
from tests.peers import BEHAVIOURS, Peer, Primary, primary, url
from tests.peers.watch import Watch

logger = logging.getLogger(__name__)

# The expected text of the failed attempt at each; the hanging ones have their own test below.
REASONS = {
    "refused": (FailureReason.REFUSED, "connection refused"),
    "unreachable": (FailureReason.UNREACHABLE, "Network is unreachable"),
    "unresolvable": (FailureReason.UNRESOLVED, "no such name"),
    "syn_drop": (FailureReason.LOST_RACE, "was usable first"),
    "silence": (FailureReason.LOST_RACE, "was usable first"),
    "stopped_process": (FailureReason.LOST_RACE, "was usable first"),
    "garbage": (FailureReason.NOT_AMQP, "HTTP/1.1 400"),
    "accept_and_drop": (FailureReason.ENDED, "closed the socket before it sent a byte: is it a TLS port"),
    "eof_after_sasl": (FailureReason.ENDED, "closed the socket after SASL"),
    "eof_after_open": (FailureReason.ENDED, "closed the socket after its Open"),
    "close_forced": (FailureReason.CLOSED, "amqp:connection:forced: this member serves nobody"),
    "close_internal_error": (FailureReason.CLOSED, "amqp:internal-error: this member"),
    "close_resource_limit_exceeded": (FailureReason.CLOSED, "amqp:resource-limit-exceeded: this member"),
    "close_not_found": (FailureReason.CLOSED, "amqp:not-found: this member"),
    "close_without_condition": (FailureReason.CLOSED, "without a condition"),
    "redirect_loop": (FailureReason.REDIRECT_REFUSED, "loop: .* is in this chain already"),
    "redirect_chain": (FailureReason.REDIRECT_REFUSED, "chain longer than 5"),
}
REDIRECTS = [
    "redirect_in_open",
    "redirect_in_open_without_port",
    "redirect_after_open",
    "redirect_after_open_without_port",
]
LATE_REDIRECTS = ["redirect_after_begin", "redirect_after_begin_without_port"]
PASSIVE = [*REASONS, *REDIRECTS, *LATE_REDIRECTS]


def endpoint(peer: Peer) -> Endpoint:
    return Endpoint(peer.host, peer.port)


@asynccontextmanager
async def cluster(*names: str) -> AsyncIterator[tuple[Primary, list[Peer]]]:
    """Start a primary, and one peer of each behaviour."""
    async with primary() as good, AsyncExitStack() as stack:
        yield good, [await stack.enter_async_context(BEHAVIOURS[name](good)) for name in names]


async def watched(watch: Watch, good: Primary, *members: Peer, **options: object) -> Connected:
    """Connect, send one message to the primary, close; ``watch`` then has every event."""
    async with asyncio.timeout(20), aio.connect(url(*members, **options), on_event=watch) as connection:
        sender = await connection.create_sender("q")
        await sender.send(Message(body="found"))
    await watch.until(Closed)
    assert set(good.bodies) == {"found"}
    return watch.of(Connected)[0]


def assert_every_attempt_is_accounted_for(watch: Watch) -> None:
    started = [(event.stamp.episode, event.attempt) for event in watch.of(AttemptStarted)]
    failed = [(e.stamp.episode, e.record.number) for e in watch.of(AttemptFailed) if e.record.number]
    by = {str(event.by) for event in watch.of(Redirected) if event.followed}
    redirected = [e for e in watch.of(AttemptStarted) if str(e.endpoint) in by]
    usable = [*watch.of(Connected), *watch.of(Reconnected)]
    assert len(failed) == len(set(failed))
    assert set(failed) <= set(started)
    late = len(watch.of(Disconnected))
    assert len(started) == len(failed) + len(redirected) - late + len(usable)


def test_every_passive_behaviour_is_tested_here() -> None:
    assert set(PASSIVE) | {"open_and_drop"} == set(BEHAVIOURS)


@pytest.mark.parametrize("name", PASSIVE)
async def test_a_primary_that_is_listed_first_is_used_at_once(name: str) -> None:
    watch = Watch()
    async with cluster(name, name) as (good, passive):
        connected = await watched(watch, good, good, *passive, stagger=10)
    assert connected.endpoint == endpoint(good)
    assert connected.attempts == 1


@pytest.mark.parametrize("name", REASONS)
@pytest.mark.parametrize("place", ["middle", "last"])
async def test_the_primary_is_reached_and_the_reason_of_each_failure_is_reported(
    name: str, place: str
) -> None:
    watch = Watch()
    async with cluster(name, name) as (good, (one, other)):
        members = (one, good, other) if place == "middle" else (one, other, good)
        connected = await watched(watch, good, *members)
        expected = {endpoint(one)} if place == "middle" else {endpoint(one), endpoint(other)}
    assert connected.endpoint == endpoint(good)
    kind, words = REASONS[name]
    assert {failure.kind for _, failure in watch.failures()} == {kind}
    for _, failure in watch.failures():
        assert_words(words, failure.detail)
    if kind is not FailureReason.REDIRECT_REFUSED:  # redirects report the last one in the chain
        assert expected <= {where for where, _ in watch.failures()}
    assert_every_attempt_is_accounted_for(watch)


def assert_words(words: str, detail: str) -> None:
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(detail)


@pytest.mark.parametrize("name", ["syn_drop", "silence", "stopped_process"])
async def test_a_member_that_hangs_is_given_up_with_what_it_was_waiting_for(name: str) -> None:
    watch = Watch()
    async with cluster(name) as (good, (passive,)):
        await watched(watch, good, passive, good, attempt_timeout=0.2, stagger=5)
    ((where, failure),) = watch.failures()
    assert where == endpoint(passive)
    assert failure.kind is FailureReason.TIMED_OUT
    phase = "no TCP connection" if name == "syn_drop" else "TCP connected after .* then silence"
    assert_words(f"not usable within 0.2 s: {phase}", failure.detail)


@pytest.mark.parametrize("name", REDIRECTS)
@pytest.mark.parametrize("place", ["middle", "last", "unlisted"])
async def test_a_redirect_is_followed_ahead_of_the_list(name: str, place: str) -> None:
    watch = Watch()
    async with cluster(name, "refused", name) as (good, (one, refusing, other)):
        lists = {"middle": (one, good, other), "last": (one, other, good), "unlisted": (one, refusing)}
        connected = await watched(watch, good, *lists[place], stagger=10)
    assert connected.endpoint == endpoint(good)
    assert connected.attempts == 2
    (redirected,) = watch.of(Redirected)
    assert (redirected.by, redirected.target) == (endpoint(one), endpoint(good))
    assert redirected.followed
    assert_every_attempt_is_accounted_for(watch)


@pytest.mark.parametrize("name", LATE_REDIRECTS)
@pytest.mark.parametrize("place", ["middle", "last", "unlisted"])
async def test_a_redirect_from_a_usable_session_is_followed_after_the_loss(name: str, place: str) -> None:
    watch = Watch()
    async with cluster(name, "refused", name) as (good, (one, refusing, other)):
        lists = {"middle": (one, good, other), "last": (one, other, good), "unlisted": (one, refusing)}
        await watched(watch, good, *lists[place])
    assert [event.endpoint for event in watch.of(Connected)] == [endpoint(one)]
    assert [event.endpoint for event in watch.of(Reconnected)] == [endpoint(good)]
    (lost,) = watch.of(Disconnected)
    assert lost.reason.startswith("amqp:connection:redirect")
    (redirected,) = watch.of(Redirected)
    assert (redirected.by, redirected.target) == (endpoint(one), endpoint(good))
    assert redirected.followed


@pytest.mark.parametrize("place", ["first", "middle", "last"])
async def test_the_primary_is_found_among_all_of_them(place: str) -> None:
    watch = Watch()
    # Behaviours that name the primary come last, or the client would not meet the others.
    names = [*REASONS, *REDIRECTS]
    async with cluster(*names) as (good, passive):
        cut = {"first": 0, "middle": len(REASONS) // 2, "last": len(REASONS)}[place]
        members = [*passive[:cut], good, *passive[cut:]]
        connected = await watched(watch, good, *members)
    assert connected.endpoint == endpoint(good)
    if place == "last":
        assert set(watch.kinds()) >= {kind for kind, _ in REASONS.values()} - {FailureReason.LOST_RACE}
    assert_every_attempt_is_accounted_for(watch)


def test_a_peer_that_opens_and_drops_is_met_ever_more_rarely() -> None:
    async def main() -> None:
        watch = Watch()
        async with open_and_drop() as peer:
            with random_source(random.Random(1)):
                connecting = aio.connect(url(peer), on_event=watch)
            async with connecting:
                await asyncio.sleep(3)  # the time of the bound
            accepted = len(peer.accepted)
        assert 2 <= accepted <= 10
        # Each delay is drawn below a ceiling; only the ceiling is certain to grow.
        ceilings = [event.base for event in watch.of(BackingOff)]
        assert len(ceilings) >= 2
        assert all(later == min(2 * sooner, 10) for sooner, later in pairwise(ceilings))

    VirtualTime(settle=0.02).run(main())


async def test_a_session_that_breaks_while_the_other_attempts_are_ended_is_lost_like_any_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch = Watch()
    fast = {"stagger": 0.01, "backoff_base": 0.001, "backoff_max": 0.001}
    # The end of the attempt at the first takes one iteration of the loop; the session of the second arrives
    # in it.
    async with (
        cluster("syn_drop") as (_, (hanging,)),
        open_and_drop() as dropping,
        aio.connect(url(hanging, dropping, **fast), on_event=watch),
    ):
        await watch.until(Disconnected, count=10)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_members_that_drop_syns_do_not_hold_up_a_cold_start() -> None:
    watch = Watch()
    async with cluster("syn_drop", "syn_drop", "syn_drop") as (good, dropping):
        connected = await watched(watch, good, *dropping, good)
    started = watch.of(AttemptStarted)
    assert [event.endpoint for event in started] == [endpoint(peer) for peer in (*dropping, good)]
    logger.info("connected %.3f s after a cold start behind three dead members", connected.duration)
    # One ``attempt_timeout``; one after the other they would take three.
    assert connected.duration < 10


async def test_a_member_that_opens_and_drops_does_not_keep_the_client_from_the_primary() -> None:
    """The peer is usable each time, so only its position in the list can change."""
    watch = Watch()
    async with primary() as good, open_and_drop() as dropping:
        fast = {"backoff_base": "0.01", "backoff_max": "0.05"}
        async with aio.connect(url(dropping, good, **fast), on_event=watch):
            await watch.until(Reconnected)
            assert watch.of(Reconnected)[0].endpoint == endpoint(good)
