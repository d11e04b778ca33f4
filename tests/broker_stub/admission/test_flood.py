"""Hundreds of half-open, slow and garbage connections do not keep the good ones out."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import resource
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from proton import Message

from broker_stub.admission.controller import AdmissionOptions
from broker_stub.admission.listener import most_connections
from broker_stub.local_cluster.member_process import free_addresses
from haclient.cluster_url.endpoint import Endpoint
from tests.broker_stub.clients import Client, running, until
from tests.forked import ForkedMember

# benchmarks/bench_flood.py does it with 5,000 and prints how long it took.
_BAD, _GOOD = 1500, 30
_SASL_HEADER = b"AMQP\x03\x01\x00\x00"
# A connection without an Open takes about 30 KiB; there are 1,000 of them at most.
_MOST_MEMORY = 150 * 2**20


@contextlib.asynccontextmanager
async def flooded(address: Endpoint, count: int) -> AsyncIterator[None]:
    """Open ``_BAD`` bad connections; each reconnects when it is cut."""
    standing = asyncio.Event()
    came = itertools.count(1)

    async def bad(number: int) -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(address.host, address.port)
                if next(came) >= count:
                    standing.set()
                await misbehave(number % 3, reader, writer)
            await asyncio.sleep(1 + random.random())

    tasks = [asyncio.create_task(bad(number)) for number in range(count)]
    async with asyncio.timeout(60):
        await standing.wait()
    yield
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def misbehave(kind: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        if kind == 1:
            for byte in _SASL_HEADER:
                writer.write(bytes([byte]))
                await asyncio.sleep(1.0)
        elif kind == 2:
            writer.write(random.randbytes(200))
        while await reader.read(4096):
            pass
    finally:
        writer.close()


async def serves(address: Endpoint) -> None:
    """Assert that a good client gets through; it reconnects if it was cut for another, as on a busy
    machine.
    """
    async with asyncio.timeout(90):
        while not await is_served(address):
            pass


async def is_served(address: Endpoint) -> bool:
    client = await Client().connect(address)
    begun = asyncio.create_task(client.begun.wait())
    await asyncio.wait([begun, client.close_reason], return_when=asyncio.FIRST_COMPLETED)
    begun.cancel()
    if client.close_reason.done():
        return False
    link = await client.attach("sender", "s", "good")
    [outcome] = await client.send(link, Message(body="x"))
    client.engine.abort()
    return outcome.accepted


async def test_good_clients_connect_in_the_middle_of_a_flood_and_memory_stays_bounded(
    tmp_path: Path,
) -> None:
    [address] = free_addresses((Endpoint("127.0.0.1", 0),))
    arguments = ("--listen", address.authority, "--role", "primary")
    process = ForkedMember(arguments, tmp_path / "log")
    await process.start()
    try:
        async with flooded(address, _BAD):
            await asyncio.gather(*(serves(address) for _ in range(_GOOD)))
            assert psutil.Process(process.pid).memory_info().rss < _MOST_MEMORY
    finally:
        await process.stop()


async def test_at_the_bound_the_oldest_half_open_connection_makes_room() -> None:
    async with running(admission=AdmissionOptions(max_handshakes=20)) as broker:
        stalled = [await asyncio.open_connection(broker.address.host, broker.address.port) for _ in range(20)]
        await until(lambda: broker.status()["entrance"]["half_open"] == 20)
        await serves(broker.address)
        first, last = stalled[0][0], stalled[-1][0]
        with contextlib.suppress(ConnectionResetError):
            assert await first.read(1) == b""
        assert not last.at_eof()
        assert broker.status()["entrance"]["cut"] == 1
        for _reader, writer in stalled:
            writer.close()


async def test_those_who_end_without_an_open_are_not_all_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "broker_stub")
    async with running() as broker:
        broker._tick_timer.cancel()  # the count restarts each second
        for _ in range(60):
            _reader, writer = await asyncio.open_connection(broker.address.host, broker.address.port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            writer.close()
        await until(lambda: not broker._connections)
        assert caplog.text.count("connection of anonymous") <= 20


async def test_when_the_descriptors_run_out_clients_are_refused_and_there_is_one_left_to_say_so() -> None:
    async with running() as broker:
        broker._descriptor_limit = 2
        held = [await Client().connect(broker.address) for _ in range(2)]
        for client in held:
            await client.begun.wait()
        refused = await Client().connect(broker.address)
        assert (await refused.end()).condition.name == "amqp:resource-limit-exceeded"
        for client in held:
            await client.close()


@pytest.mark.parametrize(
    ("limit", "most"), [(20_000, 18_800), (1024, 640), (resource.RLIM_INFINITY, sys.maxsize)]
)
def test_some_descriptors_are_kept_for_handshakes_and_files(
    monkeypatch: pytest.MonkeyPatch, limit: int, most: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (limit, limit))
    assert most_connections(1000) == most
