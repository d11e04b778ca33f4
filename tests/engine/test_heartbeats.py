"""Heartbeats in both directions: a silent peer is noticed in time, and an idle connection is kept alive."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.protocol import Engine
from haclient.testing.peers.listening import PeerEngine
from haclient.testing.proxy import Proxy, proxy
from haclient.testing.virtual_clock import VirtualTime
from tests.broker_stub.raw_client import raw_client
from tests.engine.pair import Owner, opened, pair, serving

SHORT = 0.3
# An AMQP frame without a body: part 2, section 2.4.5.
EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"
LARGE = b"x" * 1_000_000
# Some heartbeats of the virtual clock.
LONG = 1000.0


@dataclass(slots=True)
class Watched:
    """A client behind a proxy, and the time of its last received bytes."""

    client: Owner
    engine: Engine
    server: PeerEngine
    route: Proxy
    last_read: float = 0.0

    async def silence(self) -> float:
        """Return the seconds from the last bytes to the loss."""
        await self.client.until(lambda: self.client.close_reasons, LONG)
        return asyncio.get_running_loop().time() - self.last_read


@asynccontextmanager
async def watched(heartbeat: float) -> AsyncIterator[Watched]:
    async with serving() as (peer, owners), proxy(peer) as route:
        client = Owner()
        engine = await opened(client, route.host, route.port, heartbeat=heartbeat)
        await client.until(lambda: client.session)
        server = owners[0].engine
        assert isinstance(server, PeerEngine)
        watch = Watched(client, engine, server, route, asyncio.get_running_loop().time())
        receive = engine.data_received

        def noted(data: bytes) -> None:
            watch.last_read = asyncio.get_running_loop().time()
            receive(data)

        engine.data_received = noted  # type: ignore[method-assign]
        try:
            yield watch
        finally:
            engine.abort()


def in_time(silence: float, heartbeat: float) -> bool:
    """Return whether a loss was noticed neither too early nor too late."""
    return heartbeat <= silence <= heartbeat + max(heartbeat / 10, 0.05)


def run(main: Callable[[VirtualTime], Coroutine[Any, Any, None]]) -> None:
    time = VirtualTime()
    time.run(main(time))


@pytest.mark.parametrize(("client", "server"), [(SHORT, 0.0), (0.0, SHORT), (SHORT, SHORT)])
async def test_an_idle_connection_outlives_many_heartbeat_intervals(client: float, server: float) -> None:
    async with pair({"heartbeat": client}, {"heartbeat": server}) as both:
        await asyncio.sleep(4 * SHORT)  # the silence under test
        assert both.client.close_reasons == []
        assert both.server.close_reasons == []
        sender, _ = await both.sender()
        sender.send(b"still here", 1)
        await both.server.until(lambda: both.server.deliveries)


@pytest.mark.parametrize("idle_ms", [1, 10, 99])
async def test_no_peer_gets_more_than_twenty_heartbeats_a_second(idle_ms: int) -> None:
    loop, heard = asyncio.get_running_loop(), 0
    async with (
        serving(heartbeat=0.0) as (peer, _owners),
        raw_client(Endpoint(peer.host, peer.port)) as client,
    ):
        began = loop.time()
        await client.open(idle_ms=idle_ms)
        while heard < 8:
            heard += (await client.reader.read(65536)).count(EMPTY_FRAME)
        assert heard <= 1 + 20 * (loop.time() - began)


@pytest.mark.parametrize("who", ["client", "server"])
async def test_a_peer_that_falls_silent_is_given_up(who: str) -> None:
    async with serving(heartbeat=SHORT if who == "server" else 0.0) as (peer, owners), proxy(peer) as way:
        client = Owner()
        engine = await opened(client, way.host, way.port, heartbeat=SHORT if who == "client" else 0.0)
        await client.until(lambda: client.session)
        way.hold()
        watching = client if who == "client" else owners[0]
        await watching.until(lambda: watching.close_reasons)
        assert str(watching.close_reasons[0]) == "amqp:resource-limit-exceeded: silent for 0.3 s"
        engine.abort()


@pytest.mark.parametrize("heartbeat", [0.2, 2.0, 10.0])
@pytest.mark.parametrize("begun", [0.0, 0.2, 0.7])
def test_silence_counts_from_the_last_bytes_read(heartbeat: float, begun: float) -> None:
    async def main(_: VirtualTime) -> None:
        async with watched(heartbeat) as watch:
            await asyncio.sleep(begun * heartbeat)
            watch.server.tcp.write(EMPTY_FRAME)
            await asyncio.sleep(0.01)
            watch.route.hold()
            assert in_time(await watch.silence(), heartbeat)

    run(main)


@pytest.mark.parametrize("heartbeat", [0.2, 2.0])
def test_silence_is_noticed_while_the_socket_takes_no_more_bytes(heartbeat: float) -> None:
    async def main(_: VirtualTime) -> None:
        async with watched(heartbeat) as watch:
            link = watch.engine.sender(watch.client.session, "s", watch.client)  # type: ignore[arg-type]
            watch.engine.attach(link)
            await watch.client.until(lambda: link.credit)
            watch.route.hold()
            while watch.engine.writable:
                link.send(LARGE, None)
                await asyncio.sleep(0)
            socket = watch.engine._socket
            assert in_time(await watch.silence(), heartbeat)
            assert str(watch.client.close_reasons[0]).endswith(f"silent for {heartbeat:g} s")
            await asyncio.sleep(0)
            assert socket is not None
            assert socket.get_extra_info("socket").fileno() == -1

    run(main)


def test_a_socket_that_takes_no_more_bytes_leaves_the_loop_idle() -> None:
    async def main(_: VirtualTime) -> None:
        async with watched(0.0) as watch:
            link = watch.engine.sender(watch.client.session, "s", watch.client)  # type: ignore[arg-type]
            watch.engine.attach(link)
            await watch.client.until(lambda: link.credit)
            watch.route.hold()
            while watch.engine.writable:
                link.send(LARGE, None)
                await asyncio.sleep(0)
            link.send(LARGE, None)
            async with asyncio.timeout(100):
                await asyncio.sleep(60)  # virtual time passes only while the loop is idle
            assert watch.client.close_reasons == []

    run(main)


def test_a_process_that_stood_still_reads_the_socket_before_it_blames_the_peer() -> None:
    async def main(time: VirtualTime) -> None:
        async with watched(10.0) as watch:
            loop = asyncio.get_running_loop()
            watch.route.hold()
            assert watch.engine._socket is not None
            here = watch.engine._socket.get_extra_info("sockname")
            (writer,) = (each for each in watch.route._writers if each.get_extra_info("peername") == here)
            # Both calls are due when the process goes on, before the timer of the heartbeat and
            # in the same iteration of the loop: the bytes that the peer sends then are not read yet.
            loop.call_later(1, time.advance, 60)
            loop.call_later(2, writer.write, EMPTY_FRAME)
            await asyncio.sleep(3)
            await asyncio.sleep(5)
            assert watch.client.close_reasons == []
            assert in_time(await watch.silence(), 10.0)

    run(main)


def test_the_heartbeats_sent_are_those_that_the_peer_asks_for() -> None:
    async def main(_: VirtualTime) -> None:
        async with pair({"heartbeat": 7.0}, {"heartbeat": 10.0}) as both:
            server = both.server.engine
            assert server is not None
            times: list[float] = []
            receive = server.data_received

            def noted(data: bytes) -> None:
                times.append(asyncio.get_running_loop().time())
                receive(data)

            server.data_received = noted  # type: ignore[method-assign]
            await asyncio.sleep(30)
            gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
            assert len(gaps) > 5
            # The peer announces half of its time-out, and gets a frame in half of that.
            assert gaps == pytest.approx([2.5] * len(gaps), abs=0.01)

    run(main)


async def test_a_slow_trickle_of_bytes_counts_as_life() -> None:
    async with pair({"heartbeat": SHORT}) as both:
        receiver, sender = await both.receiver(grants=100)
        for number in range(8):
            await asyncio.sleep(SHORT / 2)
            sender.send(b"x", number)
        await both.client.until(lambda: len(both.client.deliveries) == 8)
        assert not receiver.dead
