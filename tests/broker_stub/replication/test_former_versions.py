"""A primary's events, byte for byte, and the refusal of members of other versions.

``events_of_0_1_0.jsonl`` was recorded from version 0.1.0, which had a link for each queue: an event did not
name its queue.  Commands and site events are unchanged.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker_stub.queueing.exchanges import ExchangeType
from broker_stub.queueing.message import Replicate
from broker_stub.queueing.nodes import Addresses
from broker_stub.queueing.site_state import SiteMode, SiteProgress
from broker_stub.replication import wire
from broker_stub.replication.backup import CAPABILITY
from broker_stub.replication.backup_session import BackupSession, MemberIdentity, SessionEndedError
from broker_stub.replication.definitions import Definitions, wiring_of
from broker_stub.sites.event import Encoder, Numbers, Op, decode
from haclient import aio
from haclient.engine.sasl.mechanisms import WITH_PASSWORD
from tests.broker_stub.clients import Client, LinkRefusedError
from tests.broker_stub.replication.cluster import ADMIN, Cluster
from tests.peers.primary import primary

RECORDED = {
    line["event"]: bytes.fromhex(line["bytes"])
    for line in map(json.loads, Path(__file__).with_name("events_of_0_1_0.jsonl").read_text().splitlines())
}
DATA = b"\x00SpwABC"
ID = 1 << 40
EVENTS = {
    "discard": wire.Event("discard", (1, ID + 1)),
    "dequeued": wire.Event("dequeued", (5,)),
    "acquired": wire.Event("acquired", (6, 7)),
    "counts": wire.Event("counts", (), {"ids": [5], "counts": [2], "first": 4, "last": 9}),
    "duplicate": wire.Event("duplicate", (), {"ids": [b"d-1"], "of": [5]}),
    "marks": wire.Event("marks", (), {"issued": 0, "evented": 0, "applied": {"s": 4}}),
    "pending": wire.Event("pending", (), {"number": 2, "claim": "c"}),
    "number": wire.Event("number", (), {"number": 2, "ready": ["b", "c"]}),
}


COMMANDS = ("pending", "number")
QUEUE = bytes(range(16))
# Delivery annotations: a map8 of one pair, the symbol q and a UUID.
HEAD = b"\x00\x53\x71\xc1\x15\x02\xa3\x01q\x98" + QUEUE
# The same with i (ulong), c (uint) and l (ulong).
MESSAGE = (
    b"\x00\x53\x71\xc1\x35\x08\xa3\x01q\x98"
    + QUEUE
    + b"\xa3\x01i\x80\x00\x00\x01\x00\x00\x00\x00\x07"
    + b"\xa3\x01c\x70\x00\x00\x00\x03"
    + b"\xa3\x01l\x80\x00\x00\x01\x8b\xcf\xe5\x68\x00"
    + DATA
)


def encoded(event: wire.Event) -> bytes:
    if event.ids:
        return wire.encode_ids(QUEUE, event.operation, event.ids)
    if event.operation in COMMANDS:
        return wire.encode_command(event.operation, event.arguments)
    return wire.encode_event(QUEUE, event.operation, event.arguments)


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_is_written_and_read_as_before_behind_the_name_of_its_queue(name: str) -> None:
    head, queue = (b"", b"") if name in COMMANDS else (HEAD, QUEUE)
    assert encoded(EVENTS[name]).hex() == (head + RECORDED[name]).hex()
    assert wire.decode(head + RECORDED[name]) == EVENTS[name]._replace(queue=queue)


def test_a_message_names_its_queue_first() -> None:
    event = wire.ReplicatedMessage(ID + 7, 3, 0, DATA, 1_700_000_000_000, QUEUE)
    assert wire.decode(MESSAGE) == event
    written = wire.encode_message(
        wire.message_head(QUEUE), event.id, event.delivery_count, event.lifetime_ms, DATA
    )
    assert written.hex() == MESSAGE.hex()


def test_the_site_progress_has_its_keys() -> None:
    progress = SiteProgress()
    progress.apply("s", 4)
    assert wire.encode_command("marks", progress.plain()) == RECORDED["marks"]


def test_a_site_event_is_written_and_read_as_before() -> None:
    queue_id, stream = bytes(range(16)), bytes(range(16, 32))
    encoder = Encoder("q", queue_id, SiteMode.ALL, stream)
    written = encoder.encode(Op.ENQUEUE, Numbers(9, ID + 1, 1_700_000_000_000, 0), DATA)
    assert written.hex() == RECORDED["site-event"].hex()
    event = decode(RECORDED["site-event"])
    assert (event.op, event.mode, event.queue, event.queue_id) == (Op.ENQUEUE, SiteMode.ALL, "q", queue_id)
    assert (event.stream, event.sequence, event.position, event.data) == (stream, 9, ID + 1, DATA)


def whole(nodes: Addresses) -> dict[str, list[Any]]:
    """Return the wiring, assembled from its pieces."""
    kinds: dict[str, list[Any]] = {"queues": [], "exchanges": [], "bindings": []}
    for piece in wiring_of(nodes):
        for kind, entries in piece.items():
            kinds[kind] += entries
    return kinds


def identity(part: str) -> str:
    return f"00000000-0000-{part}-8000-000000000000"


def test_the_wiring_is_written_as_before() -> None:
    nodes = Addresses(lambda: 0.0)
    orders = nodes.declare("orders", identity=identity("4003"))
    nodes.declare("followed", site=SiteMode.ALL, identity=identity("4004"))
    nodes.declare("site-replication", identity=identity("4005"))
    nodes.declare("configuration", replicate=Replicate.CONFIGURATION, identity=identity("4006"))
    nodes.declare("not replicated", replicate=Replicate.NONE)
    nodes.temporary(object())
    news = nodes.declare_exchange("news", ExchangeType.TOPIC, identity=identity("4009"))
    nodes.bind(news, orders, "a.#")
    options = {"from": "amqp://link@127.0.0.1:1", "missing": "park"}
    nodes.declare_exchange("from-a", ExchangeType.REPLICATION, identity=identity("400a"), options=options)
    nodes.declare("theirs", identity=identity("400b"))
    nodes.declare("from-a.parked", identity=identity("400c"))
    assert wire.encode_command("wiring", whole(nodes)).hex() == RECORDED["wiring"].hex()
    deleted = wire.encode_command("queue-deleted", {"identity": orders.identity})
    assert deleted == RECORDED["queue-deleted"]


def test_a_backup_makes_what_the_wiring_says() -> None:
    nodes = Addresses(lambda: 0.0)
    event = wire.decode(RECORDED["wiring"])
    assert isinstance(event, wire.Event)
    definitions = Definitions(nodes)
    definitions.add(event.arguments)
    definitions.complete()
    assert whole(nodes) == event.arguments


# -- members of other versions ----------------------------------------------------------------------


async def test_a_backup_of_another_version_is_refused_before_it_is_a_replica(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, *_ = cluster.members
        await a.start()
        await a.promote()
        client = await Client().connect(
            a.address,
            user=ADMIN.user,
            password=ADMIN.password,
            mechanisms=WITH_PASSWORD,
            desired_capabilities=(CAPABILITY,),
        )
        await client.begun.wait()
        with pytest.raises(LinkRefusedError, match=r"version 1 of the replication protocol.*version 3"):
            await client.attach("receiver", "control", "$replication")
        await client.close()
        assert (await a.status()).facts["replication"]["replicas"] == []


class Untouched:
    """A backup's store that raises on every use."""

    async def refusal_reason(self, *_: object) -> None: ...

    async def begin_catch_up(self, *_: object) -> None:
        raise AssertionError("the generation was erased for a primary that cannot be followed")


async def test_a_primary_of_another_version_is_left_before_anything_is_erased() -> None:
    target: Any = Untouched()
    async with primary() as old, aio.connect(f"amqp://{old.host}:{old.port}") as connection:
        with pytest.raises(SessionEndedError, match=r"the primary speaks version 1 .* version 3"):
            await BackupSession(target, connection, MemberIdentity("b", "its store")).run()
