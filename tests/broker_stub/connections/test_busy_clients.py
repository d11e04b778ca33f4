"""Clients that churn through links, sessions and messages: each costs its current state, not its past."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from proton import Message

from broker_stub.broker import Broker
from broker_stub.local_cluster.member_process import free_addresses
from broker_stub.queueing.queue_limits import QueueLimits
from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.protocol import Engine
from tests.broker_stub import raw_client as raw
from tests.broker_stub.clients import Client, running, until
from tests.broker_stub.connections.test_limits import ARGUMENTS, serves
from tests.forked import ForkedMember

MANY, AT_ONCE = 10_000, 200
# A session with a link takes 4 KB in proton alone.
ALLOWED_KB = 4_000


def memory_kb(pid: int) -> int:
    """Return the memory that a process has written to and shares with no other."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:"))


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_ten_thousand_sessions_and_links_that_have_ended_are_forgotten(tmp_path: Path) -> None:
    [address] = free_addresses((Endpoint("127.0.0.1", 0),))
    process = ForkedMember(("--listen", address.authority, *ARGUMENTS), tmp_path / "log")
    await process.start()
    assert process.pid is not None
    try:
        async with raw.raw_client(address) as client:
            await client.open()
            one = raw.begin(channel=1) + raw.attach_sender("s", 0, "q", channel=1) + raw.end(channel=1)
            before = 0
            for number in range(0, MANY, AT_ONCE):
                await client.write(one * AT_ONCE)
                await client.skip(raw.END, AT_ONCE)
                if number == AT_ONCE:
                    before = memory_kb(process.pid)
            assert memory_kb(process.pid) - before < ALLOWED_KB
        await serves(address)
    finally:
        await process.stop()


class Wakeups:
    """Counts the member's work for its connections: the writes of each, and the timers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writes: dict[Engine, int] = {}
        self.timers = 0
        write, loop = Engine.write, asyncio.get_running_loop()
        call_at = loop.call_at

        def counted_write(engine: Engine) -> None:
            self.writes[engine] = self.writes.get(engine, 0) + 1
            write(engine)

        def counted_call_at(*arguments: Any, **options: Any) -> asyncio.TimerHandle:
            self.timers += 1
            return call_at(*arguments, **options)

        monkeypatch.setattr(Engine, "write", counted_write)
        monkeypatch.setattr(loop, "call_at", counted_call_at)


def blocked(broker: Broker) -> list[Engine]:
    return [each.engine for each in broker._connections if each.congested]


@pytest.mark.parametrize("how", ["window", "socket"])
async def test_a_receiver_that_does_not_read_is_not_polled_and_gets_the_rest_when_it_reads(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed session window or a full socket stops it."""
    size, count = 60_000, 300
    async with running(heartbeat=0) as broker:
        producer = await Client().connect(broker.address)
        sender = await producer.attach("sender", "s", "q")
        for _ in range(count):
            await producer.send(sender, Message(body=b"x" * size))
        window = 2 if how == "window" else raw.WINDOW
        async with raw.raw_client(broker.address) as client:
            await client.open(raw.begin(window=window), raw.attach_receiver("r", 0, "q"))
            await client.next(raw.ATTACH)
            if how == "socket":
                client.reading(on=False)
            await client.write(raw.credit(0, count, window=window))
            if how == "window":
                for _ in range(2):
                    await client.next(raw.TRANSFER)
            await until(lambda: bool(blocked(broker)))
            [engine] = blocked(broker)
            await until(lambda: how == "window" or not engine.writable)
            wakeups = Wakeups(monkeypatch)
            other = await producer.attach("sender", "other", "q2")
            for _ in range(100):  # anything that polls runs meanwhile
                await producer.send(other, Message(body="x"))
                await asyncio.sleep(0.002)
            assert wakeups.writes.get(engine, 0) == 0
            assert wakeups.timers < 100 * 3  # timers of this loop: the sleep, and the time-out of ``send``
            assert blocked(broker) == [engine]
            if how == "socket":
                client.reading(on=True)
            await client.write(raw.credit(0, count))
            for _ in range(count - (2 if how == "window" else 0)):
                await client.next(raw.TRANSFER)
        await producer.close()


async def test_a_receiver_without_credit_costs_no_wakeups(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(heartbeat=0) as broker:
        producer = await Client().connect(broker.address)
        sender = await producer.attach("sender", "s", "q")
        async with raw.raw_client(broker.address) as client:
            await client.open(raw.begin(), *[raw.attach_receiver(f"r{n}", n, "q") for n in range(50)])
            for _ in range(50):
                await client.next(raw.ATTACH)
            [idle] = [each.engine for each in broker._connections if each.client_id == "raw"]
            wakeups = Wakeups(monkeypatch)
            for _ in range(100):
                await producer.send(sender, Message(body="x"))
            assert wakeups.writes.get(idle, 0) == 0
        await producer.close()


async def test_a_credit_that_proton_cannot_count_is_refused_and_a_smaller_one_is_served() -> None:
    async with running() as broker:
        producer = await Client().connect(broker.address)
        sender = await producer.attach("sender", "s", "q")
        await producer.send(sender, Message(body="x"))
        async with raw.raw_client(broker.address) as client:
            await client.open(raw.begin(), raw.attach_receiver("r", 0, "q"), raw.attach_receiver("t", 1, "q"))
            await client.write(raw.credit(0, 2**32 - 1))
            closed = await client.next(raw.DETACH)
            assert (closed.fields[0], closed.condition) == (0, "amqp:not-implemented")
            await client.write(raw.credit(1, 2**31 - 1))
            assert (await client.next(raw.TRANSFER)).fields[0] == 1
        await producer.close()


async def test_a_message_larger_than_the_receiver_takes_closes_its_link_and_stays() -> None:
    async with running() as broker:
        producer = await Client().connect(broker.address)
        sender = await producer.attach("sender", "s", "q")
        await producer.send(sender, Message(body=b"x" * 100), Message(body=b"y" * 2000))
        async with raw.raw_client(broker.address) as client:
            small = raw.attach_receiver("r", 0, "q", size=1000)
            await client.open(raw.begin(), small, raw.attach_receiver("t", 1, "q2"), raw.credit(0, 10))
            await client.next(raw.TRANSFER)
            closed = await client.next(raw.DETACH)
            assert closed.condition == "amqp:link:message-size-exceeded"
            assert broker.addresses.find_queue("q").depth == 2  # type: ignore[union-attr]
            await client.write(raw.detach(0), raw.attach_receiver("all", 0, "q"), raw.credit(0, 10))
            assert len((await client.next(raw.TRANSFER)).payload) < 1000  # requeued in its order
            assert len((await client.next(raw.TRANSFER)).payload) > 2000
            await client.write(raw.credit(1, 1))
            await producer.send(await producer.attach("sender", "s2", "q2"), Message(body="z"))
            assert (await client.next(raw.TRANSFER)).fields[0] == 1  # the other link stayed
        await producer.close()


async def test_clients_that_stall_in_a_message_and_drop_leave_nothing_behind() -> None:
    async with running() as broker:
        part = raw.message(100_000)[:60_000]
        async with raw.raw_client(broker.address) as one, raw.raw_client(broker.address) as two:
            for client in (one, two):
                await client.open(raw.begin(), raw.attach_sender("s", 0, "q"))
                await client.next(raw.FLOW)
                await client.write(raw.transfer(0, 0, part, more=True))
            await until(lambda: broker.unfinished.size == 120_000)
            one.writer.transport.abort()
            await until(lambda: broker.unfinished.size == 60_000)
            await two.write(raw.detach(0))
            await until(lambda: broker.unfinished.size == 0)
            # The same name, and half of a message again; then the session ends.
            await two.write(raw.attach_sender("s", 0, "q"), raw.transfer(0, 1, part, more=True))
            await until(lambda: broker.unfinished.size == 60_000)
            await two.write(raw.end())
            await until(lambda: broker.unfinished.size == 0)
        assert broker.addresses.find_queue("q").depth == 0  # type: ignore[union-attr]


async def test_what_arrives_behind_a_message_that_is_too_large_is_released() -> None:
    async with running(max_message_size=1000) as broker, raw.raw_client(broker.address) as client:
        await client.open(raw.begin(), raw.attach_sender("s", 0, "q"), raw.attach_sender("t", 1, "q"))
        large, small = raw.transfer(0, 0, raw.message(2000)), [raw.transfer(0, n, b"x") for n in (1, 2)]
        await client.write(large, *small, raw.transfer(1, 3, raw.message(10)))
        released = set[int]()
        condition = None
        while not (condition and released >= {1, 2, 3}):
            found = await client.next(raw.DISPOSITION, raw.DETACH)
            if found.code == raw.DETACH:
                condition = found.condition
                assert found.fields[0] == 0
                continue
            first, last = int(found.fields[1]), int(found.fields[2] or found.fields[1])
            released |= set(range(first, last + 1))
            state = int(found.fields[4].descriptor)
            assert state == (0x24 if first == 3 else 0x26)  # accepted on the other link, released on this one
        assert condition == "amqp:link:message-size-exceeded"


@pytest.mark.parametrize("role", ["sender", "receiver"])
@pytest.mark.parametrize("closed", [True, False])
async def test_a_detach_and_an_attach_of_one_name_in_one_segment(role: str, closed: bool) -> None:
    """The first link has unsettled messages, and unsent answers."""
    attach = raw.attach_sender if role == "sender" else raw.attach_receiver
    async with running() as broker, raw.raw_client(broker.address) as client:
        producer = await Client().connect(broker.address)
        sender = await producer.attach("sender", "s", "q")
        await producer.send(sender, *[Message(body="x") for _ in range(20)])
        await client.open(raw.begin(), attach("n", 0, "q"))
        number = 0
        for turn in range(300):
            handle = turn % 2
            use = [raw.credit(handle, 3)] if role == "receiver" else []
            if role == "sender":
                use = [
                    raw.transfer(handle, number, raw.message(10)),
                    raw.transfer(handle, number + 1, b"", more=True),
                ]
                number += 2
            await client.write(*use, raw.detach(handle, closed=closed), attach("n", 1 - handle, "q"))
            await client.next(raw.DETACH)
        await producer.send(sender, Message(body="x"))
        await producer.close()


@pytest.mark.parametrize("address", ["q", None], ids=["queue", "anonymous"])
async def test_links_that_waited_for_a_full_queue_are_forgotten(
    address: str | None,
) -> None:
    async with running(limits=QueueLimits(messages=1)) as broker:
        watermarks = broker.addresses.declare("q")._watermarks
        client = await Client().connect(broker.address)
        for turn in range(3):
            sender = await client.attach("sender", "s", address)
            if turn == 0 or address is None:
                await client.send(sender, Message(body="x", address="q"))
            sender.close()
            await client.links.get()
            assert not watermarks.waiting
        sender = await client.attach("sender", "s", address)
        if address is None:
            await client.send(sender, Message(body="x", address="q"))
        assert len(watermarks.waiting) == 1
        client.engine.abort()
        await until(lambda: not watermarks.waiting)
