"""Wiring in pieces: bounded, consistent, and without losing changes made meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.queueing.exchanges import ExchangeType
from broker_stub.queueing.message import Replicate
from broker_stub.queueing.nodes import Addresses
from broker_stub.queueing.options import MAX_NAME
from broker_stub.replication import wire
from broker_stub.replication.definitions import (
    Definitions,
    binding_entry,
    exchange_entry,
    queue_entry,
    wiring_of,
)

LARGEST_PIECE = 512 * 1024


def make() -> Addresses:
    return Addresses(lambda: 0.0)


def facts(addresses: Addresses) -> Any:
    """Return the facts that all members must agree on."""
    return (
        sorted(map(str, map(queue_entry, addresses))),
        sorted(map(str, map(exchange_entry, addresses.exchanges))),
        sorted(map(str, map(binding_entry, addresses.bindings))),
    )


def apply(pieces: Iterator[dict[str, Any]], backup: Addresses) -> Definitions:
    """Let a backup apply the encoded pieces."""
    definitions = Definitions(backup)
    definitions.begin()
    for piece in pieces:
        event = wire.decode(wire.encode_command("wiring", piece))
        assert isinstance(event, wire.Event)
        definitions.add(event.arguments)
    definitions.complete()
    return definitions


@pytest.mark.slow
def test_pieces_are_bounded_whatever_the_names_are_and_however_many_queues_there_are() -> None:
    primary, backup = make(), make()
    exchange = primary.declare_exchange("ex", ExchangeType.DIRECT)
    for number in range(10_000):
        queue = primary.declare(f"q{number}")
        primary.bind(exchange, queue, str(number % 3))
    for number in range(1000):
        primary.declare(f"{number}".ljust(MAX_NAME, "\N{SNOWMAN}"))
    sizes = [len(wire.encode_command("wiring", piece)) for piece in wiring_of(primary)]
    assert max(sizes) < LARGEST_PIECE
    apply(wiring_of(primary), backup)
    assert facts(backup) == facts(primary)


def test_what_is_in_the_way_of_a_name_is_left_over() -> None:
    primary, backup = make(), make()
    primary.declare("was an exchange")
    primary.declare_exchange("was a queue", ExchangeType.FANOUT)
    primary.declare("another identity")
    queue = backup.declare("was a queue")
    exchange = backup.declare_exchange("was an exchange", ExchangeType.TOPIC)
    backup.bind(exchange, queue, "#")
    backup.declare("another identity")
    backup.declare("left over")
    apply(wiring_of(primary), backup)
    assert facts(backup) == facts(primary)


class Changes:
    """The commands that a primary sends after the pieces (``nodes.Watcher``)."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, Any]] = []

    def queue_added(self, queue: Any) -> None:
        self.commands.append(("queue", queue_entry(queue)))

    queue_changed = queue_added

    def queue_deleted(self, queue: Any) -> None:
        self.commands.append(("queue-deleted", {"identity": queue.identity}))

    def exchange_added(self, exchange: Any) -> None:
        self.commands.append(("exchange", exchange_entry(exchange)))

    def exchange_deleted(self, exchange: Any) -> None:
        self.commands.append(("exchange-deleted", {"identity": exchange.identity}))

    def binding_added(self, binding: Any) -> None:
        self.commands.append(("binding", binding_entry(binding)))

    def binding_deleted(self, binding: Any) -> None:
        self.commands.append(("binding-deleted", binding_entry(binding)))


NAMES = st.sampled_from("abcd")
CHANGES = st.lists(
    st.tuples(st.sampled_from(["queue", "exchange", "bind", "unbind", "delete"]), NAMES, NAMES), max_size=30
)


def change(addresses: Addresses, what: str, name: str, other: str) -> None:
    """Make a change if it is possible."""
    queue, exchange = addresses.find_queue(name), addresses.find_exchange(other)
    match what:
        case "queue" if addresses.find_exchange(name) is None:
            addresses.declare(name)
        case "exchange" if addresses.find_queue(name) is None:
            addresses.declare_exchange(name, ExchangeType.TOPIC)
        case "bind" if queue is not None and exchange is not None:
            addresses.bind(exchange, queue, "k")
        case "unbind" if queue is not None and exchange is not None:
            for binding in exchange.bindings:
                addresses.unbind(binding)
        case "delete" if queue is not None:
            addresses.delete(queue)
        case "delete" if (found := addresses.find_exchange(name)) is not None:
            addresses.delete_exchange(found)


@given(before=CHANGES, left_over=CHANGES, meanwhile=st.lists(CHANGES, max_size=6))
def test_what_changes_while_the_pieces_are_on_their_way_is_neither_lost_nor_refused(
    before: list[tuple[str, str, str]],
    left_over: list[tuple[str, str, str]],
    meanwhile: list[list[tuple[str, str, str]]],
) -> None:
    primary, backup, changes = make(), make(), Changes()
    for each in before:
        change(primary, *each)
    for each in left_over:
        change(backup, *each)
    primary.watcher = changes
    pieces = wiring_of(primary)

    def interrupted() -> Iterator[dict[str, Any]]:
        """Change the primary's wiring between any two pieces, and before the first."""
        for some in meanwhile:
            for one in some:
                change(primary, *one)
            yield from (piece for piece in [next(pieces, None)] if piece is not None)
        yield from pieces

    definitions = apply(interrupted(), backup)
    for command, arguments in changes.commands:
        definitions.change(command, arguments)
    assert facts(backup) == facts(primary)


def test_a_queue_that_is_not_replicated_is_in_no_piece() -> None:
    primary = make()
    primary.declare("q", replicate=Replicate.NONE)
    primary.temporary(object())
    assert list(wiring_of(primary)) == []
