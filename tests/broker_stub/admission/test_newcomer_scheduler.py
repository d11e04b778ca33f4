"""Newcomers are read in time slices until they are admitted, whatever they send and however they end."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from proton import Message

from broker_stub.admission.controller import AdmissionOptions
from broker_stub.admission.newcomer_scheduler import NewcomerScheduler, ScheduledProtocol, TimeSlice
from broker_stub.broker import Broker
from haclient.engine.settings import PARK
from tests.broker_stub.clients import Client, running, until

BUSY = AdmissionOptions(rate=1 / 60, burst=1)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Return how many connections ran in each slice; each connection uses up a slice."""
    turns: Counter[int] = Counter()
    run_slice, run_once = NewcomerScheduler._run_slice, ScheduledProtocol.run_once

    def counted_turn(scheduler: NewcomerScheduler) -> None:
        turns[-1] += 1
        run_slice(scheduler)

    def counted(protocol: ScheduledProtocol) -> None:
        turns[turns[-1]] += 1
        run_once(protocol)

    monkeypatch.setattr(TimeSlice, "is_used_up", True)
    monkeypatch.setattr(NewcomerScheduler, "_run_slice", counted_turn)
    monkeypatch.setattr(ScheduledProtocol, "run_once", counted)
    return turns


def newcomers_of(broker: Broker) -> list[bool]:
    """Return for each connection of a member whether it is still a newcomer."""
    return [not each.engine._socket.get_protocol().passes_through for each in broker._connections]


async def come(broker: Broker, **settings: Any) -> Client:
    client = await Client().connect(broker.address, **settings)
    await until(lambda: client.properties is not None)
    return client


async def test_in_a_slice_one_is_heard_when_that_takes_the_whole_slice(heard: Counter[int]) -> None:
    async with running(admission=BUSY) as broker:
        first = await come(broker)
        names = [f"client {number}" for number in range(30)]
        dials = (Client().connect(broker.address, container_id=name) for name in names)
        clients = await asyncio.gather(*dials)
        endings = [await client.end() for client in clients]
        assert {reason.condition.name for reason in endings} == {"amqp:resource-limit-exceeded"}
        await until(lambda: len(broker._connections) == 1)
        turns = heard.pop(-1)
        assert set(heard.values()) == {1}
        assert turns == len(heard)
        await first.close()


async def test_whoever_is_in_is_heard_at_once_while_the_others_wait(heard: Counter[int]) -> None:
    async with running() as broker:
        client = await come(broker)
        assert newcomers_of(broker) == [True]
        link = await client.attach("sender", "s", "q")
        assert newcomers_of(broker) == [False]
        before = heard[-1]
        [outcome] = await client.send(link, Message(body="x"))
        assert outcome.accepted
        assert heard[-1] == before
        await client.close()


async def test_one_that_is_parked_stays_a_newcomer_until_it_was_served() -> None:
    async with running(admission=BUSY) as broker:
        first = await come(broker)
        await first.attach("sender", "s", "q")
        client = await come(broker, desired_capabilities=(PARK,))
        attaching = asyncio.create_task(client.attach("sender", "s", "q"))
        await until(lambda: any(each._parked_links for each in broker._connections))
        assert sorted(newcomers_of(broker)) == [False, True]
        [parked] = [each for each in broker._connections if each._parked_links]
        parked.unpark()
        link = await attaching
        [outcome] = await client.send(link, Message(body="x"))
        assert outcome.accepted
        assert newcomers_of(broker) == [False, False]
        for each in (first, client):
            await each.close()


async def test_what_came_before_the_end_is_heard_before_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "broker_stub")
    async with running() as broker:
        _reader, writer = await asyncio.open_connection(broker.address.host, broker.address.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        writer.write_eof()
        await until(lambda: "ended: amqp:" in caplog.text)
        await until(lambda: not broker._connections)
        writer.close()


async def test_one_that_closes_its_end_is_let_go(heard: Counter[int]) -> None:
    async with running() as broker:
        reader, writer = await asyncio.open_connection(broker.address.host, broker.address.port)
        writer.write_eof()
        async with asyncio.timeout(10):
            await reader.read()
        await until(lambda: not broker._connections)
        writer.close()


async def test_one_that_resets_its_connection_is_let_go() -> None:
    async with running() as broker:
        client = await come(broker)
        client.engine._socket.abort()
        await until(lambda: not broker._connections)
