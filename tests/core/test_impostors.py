"""A peer that is no member answers once, with a generation that no member will ever reach."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import proton
import pytest

from broker_stub.admission.user_file import write_users
from haclient import Credentials, aio
from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import FailureReason
from haclient.errors import DeadlineExceeded
from haclient.events import AttemptFailed, GenerationsForgotten, Reconnected
from haclient.testing.peers.listening import Peer
from tests.failover.waiting import next_of
from tests.peers import Primary, primary, url
from tests.peers.parking import Member, member
from tests.peers.process import primary_process
from tests.peers.watch import Watch

HIGHEST = 2**23 - 1
FAST: dict[str, Any] = {"backoff_base": 0.001, "backoff_max": 0.01, "stagger": 10}
# A lock-out of this length fails the test.
LONG = {**FAST, "refusal_timeout": 600}
RIGHT = Credentials(user="alice", password="right-password")


def claim(generation: int) -> dict[str, Any]:
    return {"haclient:generation": proton.ulong(generation), "haclient:cluster": "c"}


@contextlib.asynccontextmanager
async def misled(generation: int, **options: Any) -> AsyncIterator[tuple[aio.Connection, Peer, Watch]]:
    """A connection that met an impostor, now gone, and the remaining primary."""
    watch = Watch()
    async with (
        primary(properties=claim(5)) as real,
        primary(properties=claim(generation)) as impostor,
        aio.connect(url(impostor, real), on_event=watch, **options) as connection,
    ):
        assert connection.endpoint == Endpoint(impostor.host, impostor.port)
        vanish(impostor)
        yield connection, real, watch


def vanish(impostor: Primary) -> None:
    impostor.refuses_opens = proton.Condition("amqp:connection:forced", "gone")
    impostor.refuses_by = "close"
    impostor.drop()


@pytest.mark.parametrize("generation", [2**23, 2**31, 2**63 - 1, 2**64 - 1])
async def test_a_generation_that_no_member_can_have_is_none(generation: int) -> None:
    async with misled(generation, **LONG) as (connection, real, watch):
        assert connection.generation is None
        await watch.until(Reconnected)
        assert connection.endpoint == Endpoint(real.host, real.port)
        assert connection.generation == 5


async def test_the_highest_possible_generation_locks_nobody_out_for_longer_than_the_refusal_timeout() -> None:
    async with misled(HIGHEST, **FAST, refusal_timeout=0.1) as (connection, real, watch):
        await watch.until(Reconnected)
        assert connection.endpoint == Endpoint(real.host, real.port)
        (event,) = watch.of(GenerationsForgotten)
        assert (event.endpoint, event.cluster) == (connection.endpoint, "c")
        assert (event.generation, event.highest) == (5, HIGHEST)
        assert FailureReason.STALE_PRIMARY in watch.kinds()


async def test_searches_that_give_up_before_the_refusal_timeout_count_together() -> None:
    """An application that retries ``connect`` gets in."""
    watch, tries = Watch(), 0
    async with (
        primary(properties=claim(5)) as real,
        primary(properties=claim(HIGHEST)) as impostor,
        aio.ConnectionFactory(
            url(impostor, real), on_event=watch, **FAST, refusal_timeout=0.3, startup_deadline=0.1
        ) as factory,
    ):
        async with factory.connect(timeout=20) as first:
            assert first.generation == HIGHEST
        vanish(impostor)
        async with asyncio.timeout(20):
            again: aio.Connection | None = None
            while again is None:
                tries += 1
                with contextlib.suppress(DeadlineExceeded):
                    again = await factory.connect()
        assert again.endpoint == Endpoint(real.host, real.port)
        assert tries > 1
        assert watch.of(GenerationsForgotten)
        await again.close()


async def test_a_connection_that_is_cut_off_goes_to_no_old_primary_while_another_is_at_the_newer() -> None:
    watch = Watch()
    async with (
        primary(properties=claim(6)) as newer,
        primary(properties=claim(5)) as old,
        aio.ConnectionFactory(url(newer, old), on_event=watch, **FAST, refusal_timeout=0.1) as factory,
        factory.connect() as first,
    ):
        assert first.generation == 6
        newer.refuses_opens = proton.Condition("amqp:connection:forced", "nobody else")
        newer.refuses_by = "close"
        connecting = asyncio.ensure_future(factory.connect())
        async with asyncio.timeout(20):
            while not (stale := stale_answers(watch)) or stale[-1] - stale[0] < 0.3:
                await watch.until(AttemptFailed, count=len(watch.of(AttemptFailed)) + 1)
        assert watch.of(GenerationsForgotten) == []
        newer.drop()
        second = await asyncio.wait_for(connecting, 20)
        assert second.generation == 5
        assert watch.of(GenerationsForgotten)
        await second.close()


def stale_answers(watch: Watch) -> list[float]:
    """Return when stale primaries answered."""
    failed = watch.of(AttemptFailed)
    return [
        each.stamp.monotonic for each in failed if each.record.failure.kind is FailureReason.STALE_PRIMARY
    ]


async def test_a_member_that_parks_every_client_is_believed_again_too() -> None:
    """Sessions are found usable each time, and are stale when their first link is answered."""
    known = {"haclient:cluster": "c"}
    async with (
        primary(properties={**known, "haclient:generation": 7}) as impostor,
        member(properties=known, generation=5) as real,
        aio.connect(url(impostor, real), **FAST, refusal_timeout=0.1) as connection,
    ):
        events = connection.events()
        sender = await connection.create_sender("q")
        vanish(impostor)
        letting_in = asyncio.create_task(let_everybody_in(real))
        forgotten = await next_of(events, GenerationsForgotten)
        assert (forgotten.generation, forgotten.highest) == (5, 7)
        assert (await sender.send("for the primary", timeout=20)).accepted
        letting_in.cancel()


async def let_everybody_in(parking: Member) -> None:
    """Answer each Begin, and still be a member that parks first."""
    while True:
        await parking.until(lambda: any(parking.parked.values()))
        for engine in [each for each, session in parking.parked.items() if session is not None]:
            parking.let_in(engine)


async def test_a_peer_without_proof_makes_no_member_stale_that_proves_itself_by_scram(tmp_path: Path) -> None:
    """The impostor has the client's password: it asked for it in plain text."""
    write_users(tmp_path / "users", {"alice": "right-password"})
    generations = {"haclient:cluster": "c"}
    watch = Watch()
    with (
        primary_process(
            users=tmp_path / "users",
            mechanisms=["PLAIN"],
            properties={**generations, "haclient:generation": HIGHEST},
        ) as impostors,
        primary_process(
            users=tmp_path / "users",
            mechanisms=["SCRAM-SHA-256"],
            properties={**generations, "haclient:generation": 5},
        ) as reals,
    ):
        (impostor,), (real,) = impostors.peers, reals.peers
        async with aio.connect(url(impostor, real), credentials=RIGHT, on_event=watch, **LONG) as connection:
            assert connection.generation == HIGHEST
            impostors.process.kill()
            await watch.until(Reconnected)
            assert connection.endpoint == Endpoint(real.host, real.port)
            assert connection.generation == 5
        assert FailureReason.STALE_PRIMARY not in watch.kinds()
