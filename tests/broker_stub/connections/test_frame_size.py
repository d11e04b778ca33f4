"""``--max-frame-size``: the announced and the accepted size, tested with hand-written bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_stub.replication.backup_session import _address
from haclient import Message, aio
from haclient.cluster_url.endpoint import Endpoint
from tests.broker_stub import raw_client as raw
from tests.broker_stub.clients import member, running
from tests.broker_stub.replication.cluster import Cluster, bodies

SMALLEST = 512
# The bytes of a transfer frame except its payload: the frame header, and the performative.
_OVERHEAD = len(raw.transfer(0, 0, b""))


@pytest.mark.parametrize("size", [SMALLEST, 4096, 16 * 1024 * 1024])
async def test_the_members_open_says_what_its_option_says(tmp_path: Path, size: int) -> None:
    async with (
        member(tmp_path, "--role", "primary", "--max-frame-size", str(size)) as address,
        raw.raw_client(address) as client,
    ):
        opened = await client.open()
        assert opened.fields[2] == size


async def test_without_the_option_it_is_what_it_was() -> None:
    async with running() as broker, raw.raw_client(broker.address) as client:
        assert (await client.open()).fields[2] == 65536


async def test_a_frame_of_just_that_size_is_taken_and_one_more_byte_ends_the_connection() -> None:
    async with running(max_frame_size=SMALLEST) as broker, raw.raw_client(broker.address) as client:
        await client.open(raw.begin(), raw.attach_sender("s", 0, "q"))
        await client.next(raw.FLOW)
        whole = raw.message(1000)
        room = SMALLEST - _OVERHEAD
        parts = [whole[at : at + room] for at in range(0, len(whole), room)]
        frames = [raw.transfer(0, 0, part, more=part is not parts[-1]) for part in parts]
        assert max(map(len, frames)) == SMALLEST
        await client.write(*frames)
        assert (await client.next(raw.DISPOSITION)).fields[3]  # settled: the message is complete
        assert broker.addresses.queue("q").depth == 1
        longer = raw.transfer(0, 1, whole[:room], more=True)  # number 1 takes a byte, 0 none
        assert len(longer) == SMALLEST + 1
        await client.write(longer)
        assert (await client.next(raw.CLOSE)).condition == "amqp:connection:framing-error"
        await client.ended()


async def test_a_frame_that_only_announces_its_size_is_not_waited_for() -> None:
    """The frame header claims four gigabytes: no memory is reserved for it."""
    async with running(max_frame_size=SMALLEST) as broker, raw.raw_client(broker.address) as client:
        await client.open(raw.begin())
        await client.write(b"\xff\xff\xff\xff\x02\x00\x00\x00")
        assert (await client.next(raw.CLOSE)).condition == "amqp:connection:framing-error"
        await client.ended()


async def test_what_is_larger_than_the_smallest_frames_is_replicated_in_them(tmp_path: Path) -> None:
    """The backup is a client of the primary, with the same frames; it takes over with every message."""
    sent = [str(number) * 20_000 for number in range(3)]
    async with Cluster(tmp_path, arguments=("--max-frame-size", str(SMALLEST))) as cluster:
        a, b = await cluster.pair()
        async with aio.connect(a.url) as connection:
            sender = await connection.create_sender("orders")
            for body in sent:
                await sender.send(Message(body=body, durable=True), timeout=30)
        await a.kill()
        await b.promote()
        assert await bodies(b, "orders") == sent


@pytest.mark.parametrize("lie", [None, 5, b"host:1", "", "nonsense", "host:0", "host:70000", "http://host:1"])
def test_an_address_that_no_client_could_use_is_as_if_the_primary_had_not_named_one(lie: object) -> None:
    assert _address(lie) is None
    assert _address("amqps://host:5671") == Endpoint("host", 5671, tls=True)
