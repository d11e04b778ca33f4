"""A primary sends invalid events: the backup reports it, and ends the session or sets the queue aside."""

from __future__ import annotations

import uuid
from typing import Any

import proton
import pytest

from broker_stub.amqp.message_format import inspect
from broker_stub.durability.guard import Guard
from broker_stub.durability.persister import Persister
from broker_stub.queueing.nodes import Addresses
from broker_stub.queueing.site_state import SiteProgress
from broker_stub.replication import wire
from broker_stub.replication.apply import Applier
from broker_stub.replication.backup_session import BackupSession, MemberIdentity, SessionEndedError
from broker_stub.replication.definitions import Definitions
from broker_stub.sites.backup_state import BackupState
from broker_stub.store import MemoryStore

MESSAGE = b"\x00\x53\x77\xa1\x04text"
IDENTITY = str(uuid.UUID(int=7))
QUEUE = {"identity": IDENTITY, "name": "q", "replicate": "all"}
EXCHANGE = {"identity": IDENTITY, "name": "e", "type": "fanout", "replicate": "all"}


def without(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Yield the entry without one of its fields, and with another value there."""
    return [
        changed
        for name in entry
        for changed in ({key: entry[key] for key in entry if key != name}, {**entry, name: 7})
    ]


@pytest.mark.parametrize(
    "piece",
    [
        *({"queues": [entry]} for entry in without(QUEUE)),
        *({"exchanges": [entry]} for entry in without(EXCHANGE)),
        {"exchanges": [{**EXCHANGE, "options": "none"}]},
        {"queues": ["q"]},
        {"queues": 7},
        {"bindings": [{}]},
    ],
    ids=str,
)
def test_wiring_that_lacks_something_is_an_error_that_says_so(piece: dict[str, Any]) -> None:
    definitions = Definitions(Addresses(lambda: 0.0))
    definitions.begin()
    with pytest.raises(ValueError, match=r"sent|is not a valid"):
        definitions.add(sent(piece))


def sent(arguments: dict[str, Any]) -> Any:
    """Encode these arguments."""
    event = wire.decode(wire.encode_command("wiring", arguments))
    assert isinstance(event, wire.Event)
    return event.arguments


class Commands:
    """A control link with one command."""

    def __init__(self, operation: str, arguments: dict[str, Any]) -> None:
        self._data = wire.encode_command(operation, arguments)

    async def __aiter__(self) -> Any:
        yield self

    @property
    def data(self) -> bytes:
        return self._data

    async def accept(self) -> None: ...


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("pending", {}),
        ("pending", {"number": "two", "claim": "c"}),
        ("pending", {"number": -1, "claim": "c"}),
        ("pending", {"number": proton.ulong(2**63), "claim": "c"}),
        ("number", {"number": 2, "claim": "c", "cluster": ""}),
        ("number", {"number": 2, "claim": 3, "cluster": "", "ready": []}),
        ("number", {"number": 2, "claim": "c", "cluster": "", "ready": None}),
        ("queue", {**QUEUE, "name": "$management"}),
        ("queue", {}),
        ("no-such-command", {}),
    ],
    ids=str,
)
async def test_a_command_that_makes_no_sense_ends_the_session(
    operation: str, arguments: dict[str, Any]
) -> None:
    class Target:
        async def change_wiring(self, operation: str, arguments: Any) -> None:
            Definitions(Addresses(lambda: 0.0)).change(operation, arguments)

        async def note_pending(self, generation: int, claim: str) -> None:
            raise AssertionError("it was noted")

        async def take_generation(self, record: Any, others: Any) -> None:
            raise AssertionError("it was taken")

    target: Any = Target()
    nothing: Any = None
    session = BackupSession(target, nothing, MemberIdentity("b", "store"))
    commands: Any = Commands(operation, arguments)
    with pytest.raises((SessionEndedError, ValueError)):
        await session._execute_commands(commands, nothing)


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("counts", {"ids": [1], "counts": [1], "first": 1}),
        ("counts", {"ids": [1], "counts": [2**32], "first": 1, "last": 2}),
        ("counts", {"ids": [1], "counts": ["1"], "first": 1, "last": 2}),
        ("duplicate", {"ids": [[]], "of": [1]}),
        ("duplicate", {"ids": [b"a"], "of": [proton.ulong(2**63)]}),
        ("duplicate", {"ids": [b"a"], "of": []}),
        ("lifetimes", {"ids": [1], "left": [-1]}),
        ("lifetimes", {}),
        ("marks", {"issued": "1"}),
        ("marks", {"applied": [1]}),
        ("marks", {"applied": {"stream": None}}),
    ],
    ids=str,
)
async def test_an_event_that_no_store_could_keep_changes_nothing(
    operation: str, arguments: dict[str, Any]
) -> None:
    store = MemoryStore(duplicates=10)
    addresses = Addresses(lambda: 0.0)
    persister = Persister(store, Guard())
    host: Any = None
    applier = Applier(host, addresses, persister, store, BackupState)
    queue = addresses.declare("q")
    queue.site_progress = SiteProgress()
    queue.insert(1, MESSAGE, inspect(MESSAGE), 0, 0)
    event = wire.decode(wire.encode_event(wire.key(queue.identity), operation, arguments))
    before = store.sequence
    with pytest.raises(ValueError, match=r"sent|zip"):
        applier.apply(queue, event)
    message = queue.message(1)
    assert message is not None
    assert (message.failover_delivery_count, len(queue.duplicates), store.sequence) == (0, 0, before)
    assert queue.site_progress.plain() == SiteProgress().plain()


def test_ids_that_end_within_one_are_no_event() -> None:
    data = bytes(proton.Message(subject="discard", body=bytes(9), inferred=True).encode())
    with pytest.raises(ValueError, match="ends within an id"):
        wire.decode(data)
