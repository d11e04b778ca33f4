"""Values at the limits, and more items than a frame can hold."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import proton
import pytest
from proton import Message

from broker_stub.amqp.message_format import inspect
from broker_stub.amqp.node_names import QUEUE_TYPE
from broker_stub.queueing.annotations import MOST_BYTES, checked
from broker_stub.queueing.dead_letters import dead_letter
from broker_stub.queueing.message import DeadLetterReason
from broker_stub.queueing.options import MAX_NAME
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.site_state import SITE_PROPERTY, SiteMode
from broker_stub.replication import wire
from broker_stub.sites.event import Encoder, Numbers, Op, Origin, annotate
from haclient import aio
from tests.broker_stub.clients import Client
from tests.broker_stub.replication.cluster import Cluster, bodies, depth, send

HELD = 9000


async def test_a_message_that_expires_at_the_end_of_time_is_kept(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        client = await Client().connect(a.address)
        link = await client.attach("sender", "s", "orders")
        message = Message(body="X")
        message.expiry_time = (2**63 - 1) / 1000 - 2  # a float cannot represent the very last millisecond
        data = bytes(message.encode())
        at = data.index(b"\x83\x7f") + 1
        link.send(data[:at] + (2**63 - 1).to_bytes(8, "big") + data[at + 8 :], None)
        async with asyncio.timeout(30):
            outcome = await client.outcomes.get()
        assert outcome.accepted
        await a.kill()
        await b.promote()
        assert await bodies(b, "orders") == ["X"]


@pytest.mark.slow
async def test_a_backup_with_thousands_of_holes_catches_up(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await send(a, "orders", *range(HELD))
        async with aio.connect(a.url) as connection:
            receiver = await connection.create_receiver("orders", credit=HELD)
            for _ in range(HELD):
                delivery = await receiver.receive(timeout=30)
                if delivery.message.body % 2:
                    await delivery.accept()
            await a.until(lambda status: depth(status, "orders") == HELD // 2)
        await b.until(lambda status: depth(status, "orders") == HELD // 2)
        await b.kill()
        await b.start()
        await b.until("ready")
        assert await b.depth("orders") == HELD // 2
        await a.kill()
        await b.promote()
        assert sorted(await bodies(b, "orders")) == list(range(0, HELD, 2))


# -- the largest message ----------------------------------------------------------------------------

LONGEST_NAME = "\U0001f422" * MAX_NAME
# A connection of either side takes no larger message; 256 MiB would take the test's memory and time.
TAKEN = 100_000
HOOK = f"""
from haclient.engine import settings
settings.DEFAULT_MAX_MESSAGE_SIZE = {TAKEN}
settings.Settings.__init__.__kwdefaults__["max_message_size"] = {TAKEN}
"""


def sized(size: int) -> bytes:
    """Encode a message of that many bytes, with delivery and message annotations and properties."""
    message = Message(body=b"", durable=True, ttl=3600.0, subject="s" * 100)
    message.instructions = {proton.symbol("x-opt-to"): "i" * 300}
    message.annotations = {proton.symbol("x-opt-from"): "a" * 300}
    message.properties = {"_AMQ_DUPL_ID": f"{size:0>256}"}
    message.body = bytes(size - len(bytes(message.encode())) - 3)  # a binary of four bytes of length
    data = bytes(message.encode())
    assert len(data) == size
    return data


@pytest.mark.parametrize("size", [2000, 70_000])
def test_whatever_a_message_is_wrapped_in_is_less_than_a_backup_takes_more_than_a_client(size: int) -> None:
    """Cases: a source's backup, and a target's backup that parks the event of an unknown queue."""
    identity, origin = uuid.uuid4().bytes, Origin(bytes(16), 2**63, bytes(16), 2**63)
    encoder = Encoder(LONGEST_NAME, identity, SiteMode.ALL, identity)
    event = annotate(encoder.encode(Op.ENQUEUE, Numbers(1, 2, 3, 4), annotate(sized(size), origin)), origin)
    replicated = wire.encode_message(wire.message_head(identity), 2**63, 2**32, 2**63, event)
    assert size + 4 * MAX_NAME < len(replicated) <= size + wire.MOST_OVERHEAD


def test_so_is_what_a_dead_letter_has_more_that_consumers_have_added_to() -> None:
    queue = Queue(LONGEST_NAME, lambda: 0.0)
    data, added = sized(2000), proton.Data()
    added.put_object({proton.symbol("x-a"): "a" * (MOST_BYTES - 19)})
    queued = queue.enqueue(data, lambda _: None, None, inspect(data))
    assert queued is not None
    queue.annotate(queued.number, checked(bytes(added.encode())))
    assert len(queued.annotations) == MOST_BYTES
    letter = dead_letter(queue, queued, DeadLetterReason.REJECTED, "\U0001f422" * 1000)
    identity, origin = uuid.uuid4().bytes, Origin(bytes(16), 2**63, bytes(16), 2**63)
    event = Encoder(LONGEST_NAME, identity, SiteMode.ALL, identity).encode(
        Op.ENQUEUE, Numbers(1, 2, 3, 4), annotate(letter, origin)
    )
    assert (
        2000 + MOST_BYTES + 3 * 4 * MAX_NAME < len(annotate(event, origin)) <= 2000 + wire.MOST_OVERHEAD - 100
    )


@pytest.mark.slow
async def test_a_message_of_the_largest_size_is_copied_and_a_larger_one_is_refused(tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    wrapper = ("env", f"PYTHONPATH={hook}:{Path(__file__).resolve().parents[3]}")
    limit = TAKEN - wire.MOST_OVERHEAD
    async with Cluster(tmp_path, wrappers={"a": wrapper, "b": wrapper}) as cluster:
        a, b = cluster.members
        await a.start()
        await a.promote()
        await a.call("CREATE", kind=QUEUE_TYPE, name=LONGEST_NAME, **{SITE_PROPERTY: "all"})
        client = await Client().connect(a.address)
        link = await client.attach("sender", "s", LONGEST_NAME)
        while not link.credit:
            await client.credit.wait()

        async def sent(size: int) -> bool:
            link.send(sized(size), None)
            async with asyncio.timeout(30):
                outcome = await client.outcomes.get()
            return outcome is not None and outcome.accepted

        assert await sent(limit - 1)
        await b.start()
        await b.until("ready")
        assert await sent(limit)
        link.send(sized(limit + 1), None)
        async with asyncio.timeout(30):
            kind, _, condition = await client.links.get()
        assert (kind, condition.name) == ("closed", "amqp:link:message-size-exceeded")
        await b.until("ready")
        assert "following no primary" not in b.log
        await a.kill()
        await b.promote()
        assert await b.depth(LONGEST_NAME) == 2
        assert await b.depth("site-replication") == 2
