"""The queues and exchanges of a broker, by address.  No I/O.

Rules
-----
* An address is a queue or an exchange, never both.
* ``exchange/key`` is the exchange with a key, unless a queue has that whole name.
* When a client attaches to an unknown address, the broker makes a queue, unless configured not to.
* Addresses that start with ``$`` are the broker's own; clients cannot declare them as queues or exchanges.
* The number of queues is limited (``queue_limits``); queues that the cluster has already are always accepted.
* A temporary queue belongs to one connection: only this connection may take from it, any may send to it, and
  the queue ends with the connection.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from broker_stub.amqp.conditions import INVALID_FIELD, NOT_ALLOWED, NOT_FOUND, RESOURCE_LIMIT_EXCEEDED
from broker_stub.queueing.dead_letters import DeadLetters
from broker_stub.queueing.dispatch.delayed import CallAt, never
from broker_stub.queueing.dispatch.selection_time import SelectionTime
from broker_stub.queueing.exchanges import MAX_KEY, Binding, Exchange, ExchangeType, Route
from broker_stub.queueing.expiry_schedule import ExpirySchedule
from broker_stub.queueing.intake import Intake
from broker_stub.queueing.message import Replicate
from broker_stub.queueing.node_lifetime import LifetimePolicy, NodeLifetime
from broker_stub.queueing.options import MAX_NAME, NO_OPTIONS, QueueOptionError, QueueOptions
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.queue_limits import (
    DEFAULT_LIMITS,
    DEFAULT_STORE_LIMITS,
    QueueLimits,
    StoreLimits,
    TotalSize,
)
from broker_stub.queueing.site_state import REPLICATION_QUEUE, SITE_PROPERTY, SiteMode
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.queueing.nodes")

TEMPORARY_PREFIX = "temporary/"
RESERVED = ("$", TEMPORARY_PREFIX)
REPLICATE_PROPERTY = "x-qpid-replicate"


class AddressRefusedError(Exception):
    """An address cannot be used; ``condition`` is the AMQP condition for the reason."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition
        self.description = description


class Watcher(Protocol):
    """Observes queues, exchanges and bindings, for the store and the replicas.

    Bindings that end with their queue or their exchange are not reported one by one.
    """

    def queue_added(self, queue: Queue) -> None:
        """Handle a new queue."""

    def queue_changed(self, queue: Queue) -> None:
        """Handle a queue's new site mode."""

    def queue_deleted(self, queue: Queue) -> None:
        """Handle the end of a queue, its messages and the bindings to it."""

    def exchange_added(self, exchange: Exchange) -> None:
        """Handle a new exchange, or new options of an exchange."""

    def exchange_deleted(self, exchange: Exchange) -> None:
        """Handle the end of an exchange and its bindings."""

    def binding_added(self, binding: Binding) -> None:
        """Handle a new binding."""

    def binding_deleted(self, binding: Binding) -> None:
        """Handle the end of a binding whose queue and exchange remain."""


class SiteWatcher(Protocol):
    """Observes queues and exchanges after the ``Watcher``, on behalf of another site."""

    def queue_added(self, queue: Queue) -> None:
        """Handle a new queue."""

    def queue_changed(self, queue: Queue) -> None:
        """Handle a queue's new site mode."""

    def exchange_added(self, exchange: Exchange) -> None:
        """Handle a new exchange, or new options of an exchange."""

    def exchange_deleted(self, exchange: Exchange) -> None:
        """Handle the end of an exchange."""


class Addresses:
    """Every queue and every exchange of the broker."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        limits: QueueLimits = DEFAULT_LIMITS,
        store_limits: StoreLimits = DEFAULT_STORE_LIMITS,
        auto_create: bool = True,
        replicate: Replicate = Replicate.ALL,
        now_ms: Callable[[], int] = lambda: 0,
        call_at: CallAt = never,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._max_queues = store_limits.queues
        self.total = TotalSize(store_limits)
        self._auto_create = auto_create
        self._replicate = replicate
        self.now_ms = now_ms
        """Milliseconds since the epoch."""
        self._call_at = call_at
        self._selection_time = SelectionTime()
        self._queues: dict[str, Queue] = {}
        self._by_identity: dict[str, Queue] = {}
        self._exchanges: dict[str, Exchange] = {}
        self._exchange_identities: dict[str, Exchange] = {}
        self._expiring = ExpirySchedule()
        self.lifetimes: dict[Queue, NodeLifetime] = {}
        """The lifetimes of dynamic queues."""
        self.intake = Intake()
        self._dead_letters = DeadLetters(self._dead_letter_target, self.intake)
        self.watcher: Watcher | None = None
        self.site: SiteWatcher | None = None

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[Queue]:
        return iter(tuple(self._queues.values()))

    # -- addresses ------------------------------------------------------------------------------

    def resolve(
        self,
        name: str | None,
        *,
        replicate: str | None = None,
        site: str | None = None,
        options: QueueOptions = NO_OPTIONS,
    ) -> Queue | Route:
        """Return the queue of an address, or its exchange with the key in the address.

        :param replicate: the value of ``x-qpid-replicate``, for a queue that is made now.
        :param site: the value of ``x-qpid-site-replicate``, likewise.
        :param options: other options for that queue.
        :raises AddressRefusedError: when there is none and none may be made.
        """
        mode, events = replicate_mode(replicate), site_mode(site)
        queue = self._queues.get(name or "")
        if queue is not None:
            return queue
        if not name or len(name) > MAX_NAME:
            raise AddressRefusedError(INVALID_FIELD, f"an address has 1 to {MAX_NAME} characters")
        route = self.find_route(name)
        if route is not None:
            return route
        if not self._auto_create or name.startswith(RESERVED):
            raise AddressRefusedError(NOT_FOUND, f"there is no address {name!r}")
        return self.declare(name, replicate=mode, site=events, options=options)

    def queue(self, name: str | None) -> Queue:
        """Return the queue of an address.

        :raises AddressRefusedError: when it is an exchange, or as ``resolve`` does.
        """
        target = self.resolve(name)
        if isinstance(target, Route):
            raise AddressRefusedError(NOT_ALLOWED, f"{name!r} is an exchange")
        return target

    def find_route(self, name: str) -> Route | None:
        """Return the exchange that an address names, with the key that follows; ``None`` if there is none."""
        head = name
        while head:
            exchange = self._exchanges.get(head)
            if exchange is not None:
                return Route(exchange, None if head == name else name[len(head) + 1 :])
            head = head.rpartition("/")[0]
        return None

    def _check_free(self, name: str, others: Mapping[str, object], what: str) -> None:
        """Raise an error if a new name is reserved or in use."""
        if not name or len(name) > MAX_NAME or name.startswith(RESERVED):
            raise AddressRefusedError(NOT_ALLOWED, f"{name!r} cannot be declared")
        if name in others:
            raise AddressRefusedError(NOT_ALLOWED, f"{name!r} is {what} already")

    # -- queues ---------------------------------------------------------------------------------

    def find_queue(self, name: str) -> Queue | None:
        """Return the queue of this name, if there is one."""
        return self._queues.get(name)

    def declare(
        self,
        name: str,
        *,
        replicate: Replicate | None = None,
        site: SiteMode = SiteMode.NONE,
        options: QueueOptions = NO_OPTIONS,
        identity: str | None = None,
        limited: bool = True,
    ) -> Queue:
        """Make a queue of this name, and delete a queue that has the name already.

        :param identity: the identity of a queue that the cluster has already.
        :param limited: apply the limit of queues; False for the member's own queues.
        :raises AddressRefusedError: when the name is reserved or an exchange's, when another site would get
            messages that the backups do not have, when an option is not valid, or when there are too many
            queues.
        """
        self._check_free(name, self._exchanges, "an exchange")
        _check_options(name, options)
        mode = self._replicate if replicate is None else replicate
        _check_site(name, mode, site)
        former = self._queues.get(name)
        if former is not None:
            self.delete(former)
        elif identity is None and limited and name != REPLICATION_QUEUE:
            self._check_queue_limit()
        queue = Queue(
            name,
            self._clock,
            limits=self._limits,
            total=self.total,
            identity=identity,
            replicate=mode,
            site=site,
            options=options,
            dead_letters=self._dead_letters,
            now_ms=self.now_ms,
            call_at=self._call_at,
            selection_time=self._selection_time,
            on_expiring=self._expiring.note,
        )
        return self._add(queue)

    def set_site(self, queue: Queue, site: SiteMode) -> None:
        """Set the site mode of a queue; its present messages get their events now.

        :raises AddressRefusedError: when the other site would get messages that the backups do not have.
        """
        _check_site(queue.name, queue.replicate, site)
        if queue.site is not site:
            queue.site = site
            for watcher in (self.watcher, self.site):
                if watcher is not None:
                    watcher.queue_changed(queue)

    def by_identity(self, identity: str) -> Queue | None:
        """Return the queue with an identity, if there is one."""
        return self._by_identity.get(identity)

    def delete(self, queue: Queue) -> None:
        """Delete a queue with its messages and the bindings to it."""
        if self._queues.get(queue.name) is queue:
            del self._queues[queue.name]
        self._by_identity.pop(queue.identity, None)
        self._expiring.discard(queue)
        self.lifetimes.pop(queue, None)
        queue.close()
        for exchange in self._exchanges.values():
            exchange.remove_queue(queue)
        if self.watcher is not None:
            self.watcher.queue_deleted(queue)

    def temporary(
        self,
        owner: object,
        policy: LifetimePolicy | None = None,
        *,
        name: str = "",
        options: QueueOptions = NO_OPTIONS,
        limited: bool = True,
    ) -> Queue:
        """Make a queue that is neither stored nor replicated, usually for one connection.

        :param owner: the only connection that may take from it; ``None`` for any.
        :param policy: when it ends before its connection; ``None`` for only when it is deleted.
        :param name: its name; generated by default.
        :param limited: apply the limit of queues.
        :raises AddressRefusedError: when there are too many queues.
        """
        if limited:
            self._check_queue_limit()
        queue = Queue(
            name or f"{TEMPORARY_PREFIX}{uuid.uuid4()}",
            self._clock,
            limits=self._limits,
            total=self.total,
            options=options,
            exclusive_to=owner,
            temporary=True,
            now_ms=self.now_ms,
            call_at=self._call_at,
            selection_time=self._selection_time,
            on_expiring=self._expiring.note,
        )
        if policy is not None:
            self.lifetimes[queue] = NodeLifetime(queue, policy, self.delete)
        return self._add(queue)

    def _check_queue_limit(self) -> None:
        if len(self._queues) >= self._max_queues:
            raise AddressRefusedError(
                RESOURCE_LIMIT_EXCEEDED, f"the limit of {self._max_queues} queues is reached (--max-queues)"
            )

    def delete_temporary(self, owner: object, queues: set[Queue]) -> None:
        """Delete the temporary queues of a connection that has ended."""
        for queue in queues:
            if queue.exclusive_to is owner:
                self.delete(queue)

    def _dead_letter_target(self, address: str, queue: Queue) -> Queue | Route | None:
        """Return the destination of a queue's dead letters; a new queue is replicated like the given one."""
        target = self._queues.get(address) or self.find_route(address)
        if target is None and self._auto_create:
            try:
                return self.declare(address, replicate=queue.replicate)
            except AddressRefusedError:
                return None
        return target

    def expire(self) -> None:
        """Drop expired messages, and retry the dead letters that wait."""
        self._dead_letters.retry()
        for queue in self._expiring.due(self._clock()):
            count = queue.expire()
            if queue.expiry.next is not None:
                self._expiring.note(queue, queue.expiry.next)
            if count:
                logger.debug("%s: %d messages expired", queue.name, count)

    # -- exchanges ------------------------------------------------------------------------------

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Every exchange."""
        return tuple(self._exchanges.values())

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """Every binding, grouped by exchange."""
        return tuple(binding for exchange in self._exchanges.values() for binding in exchange.bindings)

    def find_exchange(self, name: str) -> Exchange | None:
        """Return the exchange of this name, if there is one."""
        return self._exchanges.get(name)

    def exchange_by_identity(self, identity: str) -> Exchange | None:
        """Return the exchange with an identity, if there is one."""
        return self._exchange_identities.get(identity)

    def declare_exchange(
        self,
        name: str,
        kind: ExchangeType,
        *,
        replicate: Replicate | None = None,
        identity: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Exchange:
        """Make an exchange of this name, and delete an exchange that has the name already.

        :param options: other options, which depend on its type.
        :raises AddressRefusedError: when the name is reserved, or a queue's.
        """
        self._check_free(name, self._queues, "a queue")
        former = self._exchanges.get(name)
        if former is not None:
            self.delete_exchange(former)
        mode = self._replicate if replicate is None else replicate
        exchange = Exchange(name, kind, identity=identity, replicate=mode, options=options)
        if kind is ExchangeType.REPLICATION:
            exchange.total = self.total
        self._exchanges[name] = exchange
        self._exchange_identities[exchange.identity] = exchange
        self._report_exchange(exchange)
        return exchange

    def change_exchange(self, exchange: Exchange, options: Mapping[str, Any]) -> None:
        """Replace the options of an exchange."""
        exchange.options = options
        self._report_exchange(exchange)

    def _report_exchange(self, exchange: Exchange) -> None:
        for watcher in (self.watcher, self.site):
            if watcher is not None:
                watcher.exchange_added(exchange)

    def delete_exchange(self, exchange: Exchange) -> None:
        """Delete an exchange with its bindings."""
        if self._exchanges.get(exchange.name) is exchange:
            del self._exchanges[exchange.name]
        self._exchange_identities.pop(exchange.identity, None)
        exchange.close()
        for watcher in (self.watcher, self.site):
            if watcher is not None:
                watcher.exchange_deleted(exchange)

    def bind(self, exchange: Exchange, queue: Queue, key: str = "") -> Binding:
        """Bind a queue to an exchange with a key; return the new binding, or an equal one that exists.

        :raises AddressRefusedError: when the key is too long, or the exchange applies site events.
        """
        if len(key) > MAX_KEY:
            raise AddressRefusedError(INVALID_FIELD, f"a key has at most {MAX_KEY} characters")
        if exchange.type is ExchangeType.REPLICATION:
            raise AddressRefusedError(NOT_ALLOWED, f"{exchange.name!r} applies site events")
        binding = exchange.binding(queue, key)
        if binding is None:
            binding = Binding(exchange, queue, key)
            exchange.add(binding)
            if self.watcher is not None:
                self.watcher.binding_added(binding)
        return binding

    def unbind(self, binding: Binding) -> None:
        """Remove a binding, unless it has ended already."""
        if binding.exchange.binding(binding.queue, binding.key) is not None:
            binding.exchange.remove(binding)
            if self.watcher is not None:
                self.watcher.binding_deleted(binding)

    def _add(self, queue: Queue) -> Queue:
        self._queues[queue.name] = queue
        self._by_identity[queue.identity] = queue
        if self.watcher is not None:
            self.watcher.queue_added(queue)
        if self.site is not None:
            self.site.queue_added(queue)
        return queue


def replicate_mode(text: str | None) -> Replicate | None:
    """Parse the value of ``x-qpid-replicate``; ``None`` if it is absent.

    :raises AddressRefusedError: for an unknown value.
    """
    if text is None:
        return None
    try:
        return Replicate(text)
    except ValueError:
        choices = ", ".join(Replicate)
        raise AddressRefusedError(
            INVALID_FIELD, f"{REPLICATE_PROPERTY} is {choices}, and not {text!r}"
        ) from None


def site_mode(text: str | None) -> SiteMode:
    """Parse the value of ``x-qpid-site-replicate``; ``SiteMode.NONE`` if it is absent.

    :raises AddressRefusedError: for an unknown value.
    """
    try:
        return SiteMode.NONE if text is None else SiteMode(text)
    except ValueError:
        choices = ", ".join(SiteMode)
        raise AddressRefusedError(INVALID_FIELD, f"{SITE_PROPERTY} is {choices}, and not {text!r}") from None


def _check_options(name: str, options: QueueOptions) -> None:
    try:
        options.check_for(name, RESERVED)
    except QueueOptionError as error:
        raise AddressRefusedError(INVALID_FIELD, str(error)) from None


def _check_site(name: str, replicate: Replicate, site: SiteMode) -> None:
    if site is not SiteMode.NONE and replicate is not Replicate.ALL:
        raise AddressRefusedError(
            INVALID_FIELD,
            f"{SITE_PROPERTY} {site} needs {REPLICATE_PROPERTY} all, and not {replicate}:"
            " what the backups lack would be gone after a failover, and the other site would have it",
        )
    if name == REPLICATION_QUEUE and (site is not SiteMode.NONE or replicate is not Replicate.ALL):
        raise AddressRefusedError(
            INVALID_FIELD, f"{name!r} holds the site's events: it is replicated, and has no events"
        )
