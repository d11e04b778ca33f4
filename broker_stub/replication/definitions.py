"""The wiring as a primary sends it, and how a backup applies it: queues, exchanges and bindings.

Rules
-----
* Wiring goes by identity: the same name with another identity is another queue or exchange.
* What the whole wiring leaves out is deleted before what is in it is made: queues, then
  exchanges, then bindings.
* A queue whose messages are not replicated is empty: what it has is from when this was primary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from broker_stub.queueing.exchanges import Binding, Exchange, ExchangeType
from broker_stub.queueing.message import Replicate
from broker_stub.queueing.nodes import Addresses
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.site_state import SiteMode

# -- sending ----------------------------------------------------------------------------------------


def is_on_backups(node: Queue | Exchange) -> bool:
    """Whether the backups know of a queue or an exchange (a temporary queue is not replicated)."""
    return node.replicate is not Replicate.NONE


def binding_is_on_backups(binding: Binding) -> bool:
    """Whether the backups know of a binding: of those of which they know both ends."""
    return is_on_backups(binding.exchange) and is_on_backups(binding.queue)


def wiring_of(addresses: Addresses) -> dict[str, Any]:
    """All of it."""
    return {
        "queues": [queue_entry(queue) for queue in addresses if is_on_backups(queue)],
        "exchanges": [
            exchange_entry(exchange) for exchange in addresses.exchanges if is_on_backups(exchange)
        ],
        "bindings": [
            binding_entry(binding) for binding in addresses.bindings if binding_is_on_backups(binding)
        ],
    }


def queue_entry(queue: Queue) -> dict[str, str]:
    """One queue of it."""
    entry = {"identity": queue.identity, "name": queue.name, "replicate": str(queue.replicate)}
    return entry if queue.site is SiteMode.NONE else {**entry, "site": str(queue.site)}


def exchange_entry(exchange: Exchange) -> dict[str, Any]:
    """One exchange of it."""
    entry = {
        "identity": exchange.identity,
        "name": exchange.name,
        "type": str(exchange.type),
        "replicate": str(exchange.replicate),
    }
    return {**entry, "options": dict(exchange.options)} if exchange.options else entry


def binding_entry(binding: Binding) -> dict[str, str]:
    """One binding of it."""
    return {"exchange": binding.exchange.identity, "queue": binding.queue.identity, "key": binding.key}


# -- applying ---------------------------------------------------------------------------------------


class Definitions:
    """Makes a backup's queues, exchanges and bindings those of the primary."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._changes: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "queue": self._declare,
            "queue-deleted": self._delete,
            "exchange": self._declare_exchange,
            "exchange-deleted": self._delete_exchange,
            "binding": self._bind,
            "binding-deleted": self._unbind,
        }

    def replace_all(self, wiring: Mapping[str, Any]) -> None:
        """The whole wiring; what is not in it is deleted."""
        queues, exchanges = wiring.get("queues", ()), wiring.get("exchanges", ())
        bindings = wiring.get("bindings", ())
        self._delete_all_but(_identities(queues), _identities(exchanges), bindings)
        for change, entries in (
            (self._declare, queues),
            (self._declare_exchange, exchanges),
            (self._bind, bindings),
        ):
            for entry in entries:
                change(entry)

    def change(self, operation: str, arguments: Mapping[str, Any]) -> None:
        """One change of it."""
        change = self._changes.get(operation)
        if change is None:
            raise ValueError(f"the primary sent an unknown command {operation!r}")
        change(arguments)

    def _delete_all_but(
        self, queues: set[str], exchanges: set[str], bindings: Iterable[Mapping[str, Any]]
    ) -> None:
        addresses = self._addresses
        for queue in addresses:
            if queue.identity not in queues and not queue.temporary:
                addresses.delete(queue)
        for exchange in addresses.exchanges:
            if exchange.identity not in exchanges:
                addresses.delete_exchange(exchange)
        listed = {tuple(sorted(entry.items())) for entry in bindings}
        for binding in addresses.bindings:
            if tuple(sorted(binding_entry(binding).items())) not in listed and not binding.queue.temporary:
                addresses.unbind(binding)

    def _declare(self, entry: Mapping[str, Any]) -> None:
        identity = str(entry["identity"])
        queue = self._addresses.by_identity(identity)
        site = SiteMode(str(entry.get("site", SiteMode.NONE)))
        if queue is None:
            mode = Replicate(str(entry["replicate"]))
            self._addresses.declare(str(entry["name"]), replicate=mode, site=site, identity=identity)
            return
        self._addresses.set_site(queue, site)
        if not queue.is_replicated:
            queue.discard(queue.ids())

    def _delete(self, entry: Mapping[str, Any]) -> None:
        queue = self._addresses.by_identity(str(entry["identity"]))
        if queue is not None:
            self._addresses.delete(queue)

    def _declare_exchange(self, entry: Mapping[str, Any]) -> None:
        identity, options = str(entry["identity"]), entry.get("options", {})
        exchange = self._addresses.exchange_by_identity(identity)
        if exchange is None:
            kind, mode = ExchangeType(str(entry["type"])), Replicate(str(entry["replicate"]))
            self._addresses.declare_exchange(
                str(entry["name"]), kind, replicate=mode, identity=identity, options=options
            )
        elif exchange.options != options:
            self._addresses.change_exchange(exchange, options)

    def _delete_exchange(self, entry: Mapping[str, Any]) -> None:
        exchange = self._addresses.exchange_by_identity(str(entry["identity"]))
        if exchange is not None:
            self._addresses.delete_exchange(exchange)

    def _bind(self, entry: Mapping[str, Any]) -> None:
        exchange, queue = self._ends(entry)
        self._addresses.bind(exchange, queue, str(entry["key"]))

    def _unbind(self, entry: Mapping[str, Any]) -> None:
        self._addresses.unbind(Binding(*self._ends(entry), str(entry["key"])))

    def _ends(self, entry: Mapping[str, Any]) -> tuple[Exchange, Queue]:
        exchange = self._addresses.exchange_by_identity(str(entry["exchange"]))
        queue = self._addresses.by_identity(str(entry["queue"]))
        if exchange is None or queue is None:
            raise ValueError(f"the primary sent a binding of what it has not declared: {entry}")
        return exchange, queue


def _identities(entries: Iterable[Mapping[str, Any]]) -> set[str]:
    return {str(entry["identity"]) for entry in entries}
