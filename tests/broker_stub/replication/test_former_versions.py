"""What a primary of version 0.1.0 sends is understood: backups are updated first, and follow it.

All but a message, which says how long it still has to live, is byte for byte what that version sends.
``events_of_0_1_0.jsonl`` was recorded from that version.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker_stub.queueing.exchanges import ExchangeType
from broker_stub.queueing.message import Replicate
from broker_stub.queueing.nodes import Addresses
from broker_stub.queueing.site_state import SiteMode, SiteProgress
from broker_stub.replication import wire
from broker_stub.replication.definitions import Definitions, wiring_of
from broker_stub.sites.event import Encoder, Numbers, Op, decode

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


def encoded(event: wire.Event) -> bytes:
    if event.ids:
        return wire.encode_ids(event.operation, event.ids)
    return wire.encode_command(event.operation, event.arguments)


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_is_written_and_read_as_before(name: str) -> None:
    assert wire.decode(RECORDED[name]) == EVENTS[name]
    assert encoded(EVENTS[name]).hex() == RECORDED[name].hex()


def test_a_message_is_read_as_before() -> None:
    """Its expiry is a time of that primary's clock, the only one that such a primary sends."""
    assert wire.decode(RECORDED["message"]) == wire.ReplicatedMessage(ID + 7, 3, 1_700_000_000_000, DATA)


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
    assert wire.encode_command("wiring", wiring_of(nodes)).hex() == RECORDED["wiring"].hex()
    deleted = wire.encode_command("queue-deleted", {"identity": orders.identity})
    assert deleted == RECORDED["queue-deleted"]


def test_a_backup_makes_what_the_wiring_says() -> None:
    nodes = Addresses(lambda: 0.0)
    event = wire.decode(RECORDED["wiring"])
    assert isinstance(event, wire.Event)
    Definitions(nodes).replace_all(event.arguments)
    assert wiring_of(nodes) == event.arguments
