"""The wiring (queues, exchanges, bindings): how a primary sends it, and how a backup applies it.

Theory of operation
-------------------
When a backup joins, the primary sends it the complete wiring, in pieces of bounded size: queues, then
exchanges, then bindings. All pieces show the same moment. Later changes follow the last piece. A queue
deleted in between is therefore still in the pieces, so each change finds the object it was made to.

Rules
-----
* Wiring is compared by identity: the same name with another identity is another queue or exchange.
* A local object that conflicts with a piece is deleted: a queue with the name of a listed exchange, or the
  reverse. All other unlisted objects are deleted after the last piece.
* A queue whose messages are not replicated is emptied: its messages are from a time when this member was
  primary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from broker_stub.queueing.exchanges import Binding, Exchange, ExchangeType
from broker_stub.queueing.message import Replicate
from broker_stub.queueing.nodes import Addresses
from broker_stub.queueing.options import QueueOptions
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.site_state import SiteMode
from broker_stub.replication.wire import argument

# One piece takes a few milliseconds to encode and to apply. The encoder has room for thousands of entries of
# any length; an entry has some hundred characters, and a few thousand at most.
_PIECE_ENTRIES = 200
_PIECE_CHARACTERS = 64 * 1024

# -- sending ----------------------------------------------------------------------------------------


def is_on_backups(node: Queue | Exchange) -> bool:
    """Return whether the backups know a queue or an exchange (temporary queues are not replicated)."""
    return node.replicate is not Replicate.NONE


def binding_is_on_backups(binding: Binding) -> bool:
    """Return whether the backups know a binding, that is, both of its ends."""
    return is_on_backups(binding.exchange) and is_on_backups(binding.queue)


def wiring_of(addresses: Addresses) -> Iterator[dict[str, Any]]:
    """Return the current wiring in pieces; each piece is made on demand."""
    # The lists are snapshots; identities and names of their members never change.
    queues, exchanges, bindings = tuple(addresses), addresses.exchanges, addresses.bindings
    return chain(
        _pieces("queues", map(queue_entry, filter(is_on_backups, queues))),
        _pieces("exchanges", map(exchange_entry, filter(is_on_backups, exchanges))),
        _pieces("bindings", map(binding_entry, filter(binding_is_on_backups, bindings))),
    )


def _pieces(kind: str, entries: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    piece: list[Mapping[str, Any]] = []
    size = 0
    for entry in entries:
        piece.append(entry)
        size += sum(len(str(value)) for value in entry.values())
        if len(piece) >= _PIECE_ENTRIES or size >= _PIECE_CHARACTERS:
            yield {kind: piece}
            piece, size = [], 0
    if piece:
        yield {kind: piece}


def queue_entry(queue: Queue) -> dict[str, Any]:
    """Return the entry of a queue."""
    entry: dict[str, Any] = {
        "identity": queue.identity,
        "name": queue.name,
        "replicate": str(queue.replicate),
    }
    if queue.site is not SiteMode.NONE:
        entry["site"] = str(queue.site)
    options = queue.options.plain()
    return {**entry, "options": options} if options else entry


def exchange_entry(exchange: Exchange) -> dict[str, Any]:
    """Return the entry of an exchange."""
    entry = {
        "identity": exchange.identity,
        "name": exchange.name,
        "type": str(exchange.type),
        "replicate": str(exchange.replicate),
    }
    return {**entry, "options": dict(exchange.options)} if exchange.options else entry


def binding_entry(binding: Binding) -> dict[str, str]:
    """Return the entry of a binding."""
    return {"exchange": binding.exchange.identity, "queue": binding.queue.identity, "key": binding.key}


# -- applying ---------------------------------------------------------------------------------------


class Definitions:
    """Makes a backup's queues, exchanges and bindings equal to the primary's."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._listed: set[str | tuple[str, str, str]] = set()
        """Listed so far: identities of queues and exchanges; ends and keys of bindings."""
        self._changes: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "queue": self._declare,
            "queue-deleted": self._delete,
            "exchange": self._declare_exchange,
            "exchange-deleted": self._delete_exchange,
            "binding": self._bind,
            "binding-deleted": self._unbind,
        }

    def begin(self) -> None:
        """Expect the complete wiring, in pieces."""
        self._listed.clear()

    def add(self, piece: Mapping[str, Any]) -> None:
        """Apply one piece of the wiring."""
        for kind, change in (
            ("queues", self._declare_listed),
            ("exchanges", self._declare_exchange_listed),
            ("bindings", self._bind_listed),
        ):
            for entry in argument(piece, kind, list) if kind in piece else ():
                change(entry)

    def complete(self) -> None:
        """Delete all queues, exchanges and bindings that no piece listed."""
        addresses, listed = self._addresses, self._listed
        for queue in addresses:
            if queue.identity not in listed and not queue.temporary:
                addresses.delete(queue)
        for exchange in addresses.exchanges:
            if exchange.identity not in listed:
                addresses.delete_exchange(exchange)
        for binding in addresses.bindings:
            if _ends_of(binding_entry(binding)) not in listed and not binding.queue.temporary:
                addresses.unbind(binding)
        listed.clear()

    def change(self, operation: str, arguments: Mapping[str, Any]) -> None:
        """Apply one change to the wiring."""
        change = self._changes.get(operation)
        if change is None:
            raise ValueError(f"the primary sent an unknown command {operation!r}")
        change(arguments)

    def _declare_listed(self, entry: Mapping[str, Any]) -> None:
        left_over = self._addresses.find_exchange(argument(entry, "name", str))
        if left_over is not None:
            self._addresses.delete_exchange(left_over)
        self._listed.add(argument(entry, "identity", str))
        self._declare(entry)

    def _declare_exchange_listed(self, entry: Mapping[str, Any]) -> None:
        left_over = self._addresses.find_queue(argument(entry, "name", str))
        if left_over is not None:
            self._addresses.delete(left_over)
        self._listed.add(argument(entry, "identity", str))
        self._declare_exchange(entry)

    def _bind_listed(self, entry: Mapping[str, Any]) -> None:
        self._listed.add(_ends_of(entry))
        self._bind(entry)

    def _declare(self, entry: Mapping[str, Any]) -> None:
        identity = argument(entry, "identity", str)
        queue = self._addresses.by_identity(identity)
        site = SiteMode(str(entry.get("site", SiteMode.NONE)))
        if queue is None:
            mode = Replicate(argument(entry, "replicate", str))
            options = argument(entry, "options", dict) if "options" in entry else {}
            self._addresses.declare(
                argument(entry, "name", str),
                replicate=mode,
                site=site,
                options=QueueOptions.of(options, bounded=False),
                identity=identity,
            )
            return
        self._addresses.set_site(queue, site)
        if not queue.is_replicated:
            queue.discard(queue.ids())

    def _delete(self, entry: Mapping[str, Any]) -> None:
        queue = self._addresses.by_identity(argument(entry, "identity", str))
        if queue is not None:
            self._addresses.delete(queue)

    def _declare_exchange(self, entry: Mapping[str, Any]) -> None:
        identity = argument(entry, "identity", str)
        options = argument(entry, "options", dict) if "options" in entry else {}
        exchange = self._addresses.exchange_by_identity(identity)
        if exchange is None:
            kind, mode = (
                ExchangeType(argument(entry, "type", str)),
                Replicate(argument(entry, "replicate", str)),
            )
            self._addresses.declare_exchange(
                argument(entry, "name", str), kind, replicate=mode, identity=identity, options=options
            )
        elif exchange.options != options:
            self._addresses.change_exchange(exchange, options)

    def _delete_exchange(self, entry: Mapping[str, Any]) -> None:
        exchange = self._addresses.exchange_by_identity(argument(entry, "identity", str))
        if exchange is not None:
            self._addresses.delete_exchange(exchange)

    def _bind(self, entry: Mapping[str, Any]) -> None:
        exchange, queue = self._ends(entry)
        self._addresses.bind(exchange, queue, argument(entry, "key", str))

    def _unbind(self, entry: Mapping[str, Any]) -> None:
        self._addresses.unbind(Binding(*self._ends(entry), argument(entry, "key", str)))

    def _ends(self, entry: Mapping[str, Any]) -> tuple[Exchange, Queue]:
        exchange = self._addresses.exchange_by_identity(argument(entry, "exchange", str))
        queue = self._addresses.by_identity(argument(entry, "queue", str))
        if exchange is None or queue is None:
            raise ValueError(f"the primary sent a binding of what it has not declared: {entry}")
        return exchange, queue


def _ends_of(entry: Mapping[str, Any]) -> tuple[str, str, str]:
    return argument(entry, "exchange", str), argument(entry, "queue", str), argument(entry, "key", str)
