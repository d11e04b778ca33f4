"""Several threads, or several tasks, use one sender and one receiver (``docs/concurrency.md``)."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import haclient
from haclient import Message, aio
from haclient.errors import AlreadySettled
from haclient.outcome import ACCEPTED
from haclient.testing.threads import in_thread
from tests.dropin.waiting import on_its_thread, wait_until
from tests.peers import primary, url
from tests.peers.apis import API

THREADS = 6
EACH = 40

# Over two heartbeats of these peers, which end a connection that is silent for one.
_LONG = 2.2


@pytest.fixture
def impatient_interpreter() -> Iterator[None]:
    """Switch threads as often as possible, so that a race shows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


async def test_the_messages_of_each_task_are_sent_once_and_in_its_order(api: API) -> None:
    async with primary(grants=20) as peer:
        connection = await api.connect(url(peer, window=10))
        sender = await connection.create_sender("q")

        async def send(task: int) -> None:
            for number in range(EACH):
                await sender.send(Message(body=[task, number]), timeout=20)

        await asyncio.gather(*(send(task) for task in range(THREADS)))
        bodies = [tuple(body) for body in peer.bodies]
        assert sorted(bodies) == [(task, number) for task in range(THREADS) for number in range(EACH)]
        for task in range(THREADS):
            assert [number for who, number in bodies if who == task] == list(range(EACH))
        await connection.close()


async def test_each_message_goes_to_one_of_the_tasks_that_receive(api: API) -> None:
    async with primary() as peer:
        connection = await api.connect(url(peer))
        receiver = await connection.create_receiver("q", credit=10)

        async def receive() -> list[int]:
            taken = []
            for _ in range(EACH):
                delivery = await receiver.receive(timeout=20)
                taken.append(delivery.message.body)
                await delivery.accept()
            return taken

        receiving = [asyncio.ensure_future(receive()) for _ in range(THREADS)]
        peer.put("q", *range(THREADS * EACH))
        taken = await asyncio.gather(*receiving)
        assert sorted(number for numbers in taken for number in numbers) == list(range(THREADS * EACH))
        await peer.until(lambda: len(peer.outcomes) == THREADS * EACH)
        assert set(peer.outcomes) == {ACCEPTED}
        await connection.close()


def test_other_threads_settle_what_one_received() -> None:
    with in_thread(primary()) as peer, haclient.connect(url(peer)) as connection:
        receiver = connection.create_receiver("q", credit=50)
        on_its_thread(peer, lambda: peer.put("q", *range(THREADS * EACH)))
        with ThreadPoolExecutor(THREADS) as pool:
            settling = [pool.submit(receiver.receive(timeout=20).accept) for _ in range(THREADS * EACH)]
        assert [future.exception() for future in settling] == [None] * len(settling)
        wait_until(lambda: len(peer.outcomes) == THREADS * EACH)
        assert set(peer.outcomes) == {ACCEPTED}


async def test_other_tasks_settle_what_one_received() -> None:
    async with primary() as peer, aio.connect(url(peer)) as connection:
        receiver = await connection.create_receiver("q", credit=50)
        peer.put("q", *range(EACH))
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            for _ in range(EACH):
                group.create_task((await receiver.receive()).accept())
        await peer.until(lambda: peer.outcomes == [ACCEPTED] * EACH)


@pytest.mark.usefixtures("impatient_interpreter")
def test_of_threads_that_settle_one_delivery_one_succeeds() -> None:
    with in_thread(primary()) as peer, haclient.connect(url(peer)) as connection:
        receiver = connection.create_receiver("q", credit=50)
        on_its_thread(peer, lambda: peer.put("q", *range(10 * EACH)))
        deliveries = [receiver.receive(timeout=20) for _ in range(10 * EACH)]
        together = threading.Barrier(2)

        def settle_all() -> int:
            refused = 0
            together.wait()
            for delivery in deliveries:
                try:
                    delivery.accept()
                except AlreadySettled:
                    refused += 1
            return refused

        with ThreadPoolExecutor(2) as pool:
            refused = sum(future.result() for future in [pool.submit(settle_all) for _ in range(2)])
        assert refused == len(deliveries)
        connection.create_sender("q")  # a round trip: the settlements have arrived
        wait_until(lambda: len(peer.outcomes) == len(deliveries))


async def test_a_message_that_was_submitted_may_be_changed_and_sent_again(api: API) -> None:
    async with primary(grants=0) as peer:
        connection = await api.connect(url(peer))
        sender = await connection.create_sender("q")
        message, futures = Message(), []
        for number in range(3):
            message.body = number
            futures.append(await sender.submit(message))
        peer.grant(10)
        await asyncio.gather(*futures)
        assert peer.bodies == [0, 1, 2]
        await connection.close()


async def test_a_coroutine_uses_the_blocking_api_in_threads() -> None:
    async with primary() as peer:
        with await asyncio.to_thread(haclient.connect, url(peer)) as connection:
            sender = await asyncio.to_thread(connection.create_sender, "q")
            future = await asyncio.to_thread(sender.submit, Message(body="one"))
            assert (await asyncio.wrap_future(future)).accepted
            await asyncio.to_thread(connection.close)
        assert peer.bodies == ["one"]


def test_the_heartbeats_of_a_blocking_connection_go_on_while_the_program_computes() -> None:
    with in_thread(primary(heartbeat=1.0)) as peer, haclient.connect(url(peer)) as connection:
        sender = connection.create_sender("q")
        time.sleep(_LONG)
        assert sender.send(Message(body="one"), timeout=10).accepted
        assert connection._core.session_number == 1, "the connection was lost"


async def test_the_heartbeats_of_asyncio_go_on_while_a_thread_computes() -> None:
    with in_thread(primary(heartbeat=1.0)) as peer:
        async with aio.connect(url(peer)) as connection:
            sender = await connection.create_sender("q")
            await asyncio.to_thread(time.sleep, _LONG)
            assert (await sender.send(Message(body="one"), timeout=10)).accepted
            assert connection._core.session_number == 1, "the connection was lost"
