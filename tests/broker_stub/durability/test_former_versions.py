"""A member opens the directories of itself and its arbiter that version 0.1.0 wrote, under older names.

``member_of_0_1_0.tar.gz`` holds both as that version left them.  Its member was promoted, was followed by
another site, and followed one itself.  It had one message acquired and another one consumed, and had noted
a claim before it stopped.
"""

from __future__ import annotations

import asyncio
import tarfile
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import proton
import pytest

from broker_stub.election.arbiter import open_arbiter
from broker_stub.election.generation import ArbiterRecord, GenerationState, Pending
from broker_stub.member.member import ClusterOptions, Member, SiteSteps
from broker_stub.queueing.duplicate_detection import DEFAULT_WINDOW
from broker_stub.queueing.exchanges import ExchangeType
from broker_stub.queueing.message import SEQUENCE_BITS, Replicate
from broker_stub.queueing.nodes import Addresses
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.site_state import REPLICATION_QUEUE, SiteMode
from broker_stub.sites.backup_state import BackupState
from broker_stub.sites.event import Op, decode, origin_of
from broker_stub.sites.reconcile import reconcile
from broker_stub.store import Store, open_store
from tests.broker_stub.member.parts import MemberHost, Nowhere

ARCHIVE = Path(__file__).parent / "member_of_0_1_0.tar.gz"
STREAM = "00000000-0000-0000-0000-00000000aaaa"
CLAIM = "00000000-0000-4002-8000-000000000000"
FIRST = (1 << SEQUENCE_BITS) + 1


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        # Debian 12 has Python 3.11.2, and 3.11.4 was the first with filters.
        filters = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(tmp_path, **filters)  # noqa: S202 - an archive of ours
    return tmp_path


@pytest.fixture
async def store(directory: Path) -> AsyncIterator[Store]:
    store = await open_store(directory / "store", duplicates=DEFAULT_WINDOW)
    yield store
    await store.close()


class Restored:
    """The member of the directory, run by the current code."""

    def __init__(self, directory: Path, store: Store) -> None:
        self.host = MemberHost()
        self.addresses = Addresses(asyncio.get_running_loop().time)
        self.arbiter = open_arbiter(f"directory:{directory}/arbiter")
        self.member = Member(
            ClusterOptions(name="a"),
            self.host,
            self.addresses,
            store,
            self.arbiter,
            lambda _members, _broker_url: Nowhere(),  # type: ignore[arg-type, return-value]
            SiteSteps(state=BackupState, reconcile=reconcile),
        )

    def queue(self, name: str) -> Queue:
        return self.addresses.queue(name)

    def bodies(self, name: str) -> list[object]:
        return [body(data) for data in self.contents(name)]

    def contents(self, name: str) -> list[bytes]:
        queue = self.queue(name)
        messages = [queue.message(number) for number in queue.ids()]
        return [message.data for message in messages if message is not None]


def body(data: bytes) -> object:
    message = proton.Message()
    message.decode(data)
    return bytes(message.body) if isinstance(message.body, memoryview) else message.body


@pytest.fixture
async def restored(directory: Path, store: Store) -> AsyncIterator[Restored]:
    parts = Restored(directory, store)
    await parts.member.start()
    yield parts
    await parts.member.stop()


async def test_the_store_is_whole(store: Store) -> None:
    """Checksums, schema and commit count are the expected ones."""
    snapshot = await store.load()
    assert (store.corruption, snapshot.was_clean) == ("", True)


async def test_generation_and_claim_are_known(restored: Restored) -> None:
    """The other replicas are known, too: a new primary waits for them."""
    assert restored.member.state == GenerationState(1, Pending(2, "a claim"))
    assert restored.member.others == ("b", "c")


async def test_the_arbiter_has_its_record(restored: Restored) -> None:
    """The member is eligible by it: it takes the next generation, and makes the cluster's UUID."""
    assert await restored.arbiter.read() == ArbiterRecord(1, CLAIM)
    await restored.member.promote()
    record = await restored.arbiter.read()
    assert (record.generation, record.origin) == (2, 1)
    assert uuid.UUID(record.cluster).version == 4
    assert restored.member.state == GenerationState(2, None, record.claim, record.cluster)


async def test_definitions_are_known(restored: Restored) -> None:
    """They are queues, exchanges and bindings, with their identities and options."""
    queues = {queue.name: (queue.replicate, queue.site) for queue in restored.addresses}
    assert queues == {
        "orders": (Replicate.ALL, SiteMode.NONE),
        "followed": (Replicate.ALL, SiteMode.ALL),
        "site-replication": (Replicate.ALL, SiteMode.NONE),
        "configuration": (Replicate.CONFIGURATION, SiteMode.NONE),
        "theirs": (Replicate.ALL, SiteMode.NONE),
        "from-a.parked": (Replicate.ALL, SiteMode.NONE),
    }
    assert restored.queue("orders").identity == "00000000-0000-4003-8000-000000000000"
    exchanges = {each.name: (each.type, dict(each.options)) for each in restored.addresses.exchanges}
    assert exchanges == {
        "news": (ExchangeType.TOPIC, {}),
        "from-a": (ExchangeType.REPLICATION, {"from": "amqp://link@127.0.0.1:1", "missing": "park"}),
    }
    [binding] = restored.addresses.bindings
    assert (binding.exchange.name, binding.queue.name, binding.key) == ("news", "orders", "a.#")


async def test_messages_are_where_they_were(restored: Restored) -> None:
    """They have numbers, delivery counts and expiry; the acquired one was delivered once."""
    orders = restored.queue("orders")
    assert orders.ids() == [FIRST + 1, FIRST + 2, FIRST + 3]
    assert restored.bodies("orders") == ["second", "third", b"\0\1"]
    messages = [orders.message(number) for number in orders.ids()]
    assert [each.failover_delivery_count for each in messages if each is not None] == [1, 0, 0]
    assert [each.expires_at_ms for each in messages if each is not None] == [None, 5_700_000_000_000, None]
    assert restored.bodies("configuration") == ["local"]


async def test_duplicate_detection_ids_are_known(restored: Restored) -> None:
    """They are in order, and a second copy of a message is recognised."""
    orders = restored.queue("orders")
    assert [number for _, number in orders.duplicates.pairs()] == [FIRST + 1, FIRST + 3]
    second, _ = orders.duplicates.pairs()[0]
    assert orders.duplicates.first_copy(second) == FIRST + 1


async def test_the_progress_of_sites_is_known(restored: Restored) -> None:
    """The member was a source, and followed a source; the events are readable."""
    log = restored.queue(REPLICATION_QUEUE).site_progress
    followed, theirs = restored.queue("followed").site_progress, restored.queue("theirs").site_progress
    assert log is not None
    assert followed is not None
    assert theirs is not None
    assert (log.issued, followed.evented, theirs.applied) == (3, FIRST + 1, {STREAM: 5})
    events = [decode(data) for data in restored.contents(REPLICATION_QUEUE)]
    assert [(event.op, event.sequence, event.position) for event in events] == [
        (Op.ENQUEUE, 1, FIRST),
        (Op.ENQUEUE, 2, FIRST + 1),
        (Op.DEQUEUE, 3, FIRST),
    ]
    [applied] = restored.contents("theirs")
    origin = origin_of(applied)
    assert origin is not None
    assert (origin.stream_name, origin.sequence, body(applied)) == (STREAM, 5, "applied")
    [unroutable] = restored.contents("from-a.parked")
    assert decode(unroutable).queue == "nowhere"
