from __future__ import annotations

import asyncio
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from haclient import Message, aio
from haclient.errors import DeadlineExceeded
from haclient.events import Disconnected
from haclient.testing import Broker, FlakyPeers, VirtualTime

HOUR = 3600.0


async def test_outside_of_it_time_is_real() -> None:
    assert asyncio.get_running_loop().time() == pytest.approx(time.monotonic(), abs=10)


def test_sleeps_and_timeouts_pass_in_their_order(haclient_virtual_time: VirtualTime) -> None:
    async def main() -> list[str]:
        order: list[str] = []

        async def sleep(seconds: float, name: str) -> None:
            await asyncio.sleep(seconds)
            order.append(name)

        async with asyncio.TaskGroup() as group:
            group.create_task(sleep(2 * HOUR, "late"))
            group.create_task(sleep(HOUR, "soon"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.25):
                await asyncio.Event().wait()
        return order

    assert haclient_virtual_time.run(main()) == ["soon", "late"]
    assert haclient_virtual_time.elapsed == 2 * HOUR + 0.25


@pytest.mark.slow
def test_a_client_that_finds_nobody_tries_as_long_as_its_options_say(
    haclient_virtual_time: VirtualTime, haclient_flaky_peer: FlakyPeers
) -> None:
    async def main() -> DeadlineExceeded:
        with pytest.raises(DeadlineExceeded) as caught:
            await aio.connect(nobody.url, startup_deadline=HOUR)
        return caught.value

    nobody = haclient_flaky_peer("refused")
    error = haclient_virtual_time.run(main())
    assert haclient_virtual_time.elapsed == pytest.approx(HOUR)
    # Full jitter under a ceiling of 10 s: one attempt in 5 s.
    assert 300 < len(error.attempts) < 1500


@pytest.mark.slow
def test_a_broker_answers_in_real_time_and_is_not_missed_while_the_application_sleeps(
    haclient_virtual_time: VirtualTime, haclient_module_broker: Broker
) -> None:
    # The broker is another process with a disk: on a busy machine it may be silent for a while.
    haclient_virtual_time.settle = 2.0
    lost: list[Disconnected] = []

    def note(event: object) -> None:
        if isinstance(event, Disconnected):
            lost.append(event)

    async def main() -> None:
        async with aio.connect(haclient_module_broker.url, on_event=note) as connection:
            sender = await connection.create_sender("q")
            await sender.send(Message(body="one"), timeout=5)
            await asyncio.sleep(20)

    haclient_virtual_time.run(main())
    assert haclient_virtual_time.elapsed == pytest.approx(20)
    assert lost == []


@pytest.mark.slow
def test_a_peer_that_is_silent_is_waited_for_as_long_as_virtual_time_says(
    haclient_virtual_time: VirtualTime, haclient_flaky_peer: FlakyPeers
) -> None:
    async def main() -> None:
        with pytest.raises(DeadlineExceeded):
            await aio.connect(silent.url, startup_deadline=HOUR, attempt_timeout=1000)

    silent = haclient_flaky_peer("silence")
    haclient_virtual_time.run(main())
    assert silent.accepted == 4
    assert haclient_virtual_time.elapsed == pytest.approx(HOUR)


def test_a_socket_that_only_listens_does_not_hold_time_up(haclient_virtual_time: VirtualTime) -> None:
    async def main() -> None:
        async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0):
            await asyncio.sleep(HOUR)

    haclient_virtual_time.settle = HOUR  # in real time: a wait for that fails by the timeout of this test
    haclient_virtual_time.run(main())
    assert haclient_virtual_time.elapsed == HOUR


def test_a_server_and_its_client_share_a_loop(haclient_virtual_time: VirtualTime) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(HOUR)
        writer.write(b"hello")
        writer.close()

    async def main() -> bytes:
        async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            greeting = await reader.read()
            writer.close()
            return greeting

    assert haclient_virtual_time.run(main()) == b"hello"
    assert haclient_virtual_time.elapsed == HOUR


def test_while_a_thread_works_time_passes_as_usual(haclient_virtual_time: VirtualTime) -> None:
    fired = threading.Event()

    async def main() -> str:
        async with asyncio.timeout(HOUR):
            asyncio.get_running_loop().call_later(0.01, fired.set)
            await asyncio.to_thread(fired.wait)
            infos = await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)
            return str(infos[0][4][0])

    assert haclient_virtual_time.run(main()) == "127.0.0.1"
    assert 0.01 <= haclient_virtual_time.elapsed < HOUR


def test_the_end_waits_for_threads_that_take_their_time(haclient_virtual_time: VirtualTime) -> None:
    class Slow(ThreadPoolExecutor):
        def shutdown(self, *args: Any, **kwargs: Any) -> None:
            threading.Event().wait(0.05)
            super().shutdown(*args, **kwargs)

    async def main() -> str:
        asyncio.get_running_loop().set_default_executor(Slow())
        return await asyncio.to_thread(lambda: "done")

    assert haclient_virtual_time.run(main()) == "done"
    assert haclient_virtual_time.elapsed < HOUR / 60


def test_a_blocking_program_sleeps_and_looks_at_the_clock(haclient_virtual_time: VirtualTime) -> None:
    def keep_trying() -> int:
        tries, end, wall = 0, time.monotonic() + HOUR, time.time()
        while time.monotonic() < end:
            tries += 1
            time.sleep(60)
        assert time.time() - wall == pytest.approx(HOUR)
        return tries

    haclient_virtual_time.settle = 0.001
    assert keep_trying() == 60
    assert haclient_virtual_time.elapsed == HOUR


def test_other_threads_live_in_real_time(haclient_virtual_time: VirtualTime) -> None:
    told: list[float] = []
    haclient_virtual_time.advance(HOUR)
    thread = threading.Thread(target=lambda: told.append(time.monotonic()))
    thread.start()
    thread.join()
    assert time.monotonic() - told[0] > HOUR / 2


def test_time_does_not_go_back(haclient_virtual_time: VirtualTime) -> None:
    with pytest.raises(ValueError, match="does not go back"):
        haclient_virtual_time.advance(-1)
