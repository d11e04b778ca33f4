"""The queues and exchanges of a broker, by address.  No I/O.

Rules
-----
* An address is a queue or an exchange, never both.
* ``exchange/key`` is the exchange with a key, unless a queue has that whole name.
* An address that is not there is made, as a queue, when somebody attaches to it, unless the
  broker is configured not to.
* Addresses that start with ``$`` are the broker's own; none of them is a queue or an exchange.
* There are at most so many queues (``queue_limits``); those that the cluster has already are always taken.
* A temporary queue belongs to one connection: only that one may take from it, anyone may send
  to it, and it ends with the connection.
"""

from __future__ import annotations

import logging
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

logger = logging.getLogger("broker_stub.queueing.nodes")

TEMPORARY_PREFIX = "temporary/"
RESERVED = ("$", TEMPORARY_PREFIX)
REPLICATE_PROPERTY = "x-qpid-replicate"


class AddressRefusedError(Exception):
    """An address that cannot be used, with the AMQP condition that says why."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition
        self.description = description


class Watcher(Protocol):
    """Observes what is made and deleted: for the store and the replicas.

    Bindings that end with their queue or their exchange are not reported one by one.
    """

    def queue_added(self, queue: Queue) -> None:
        """A queue is new."""

    def queue_changed(self, queue: Queue) -> None:
        """Another site gets more or less of a queue than before."""

    def queue_deleted(self, queue: Queue) -> None:
        """A queue is gone, with what was in it and the bindings to it."""

    def exchange_added(self, exchange: Exchange) -> None:
        """An exchange is new, or its options are."""

    def exchange_deleted(self, exchange: Exchange) -> None:
        """An exchange is gone, with its bindings."""

    def binding_added(self, binding: Binding) -> None:
        """A binding is new."""

    def binding_deleted(self, binding: Binding) -> None:
        """A binding is gone, although its queue and its exchange are not."""


class SiteWatcher(Protocol):
    """Observes the same after the ``Watcher``, as far as another site is concerned."""

    def queue_added(self, queue: Queue) -> None:
        """A queue is new."""

    def queue_changed(self, queue: Queue) -> None:
        """Another site gets more or less of a queue than before."""

    def exchange_added(self, exchange: Exchange) -> None:
        """An exchange is new, or its options are."""

    def exchange_deleted(self, exchange: Exchange) -> None:
        """An exchange is gone."""


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
        """When dynamic queues end."""
        self.intake = Intake()
        self._dead_letters = DeadLetters(self._dead_letter_target, self.intake)
        self.watcher: Watcher | None = None
        self.site: SiteWatcher | None = None

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[Queue]:
        return iter(tuple(self._queues.values()))

    # -- whatever an address names --------------------------------------------------------------

    def resolve(
        self,
        name: str | None,
        *,
        replicate: str | None = None,
        site: str | None = None,
        options: QueueOptions = NO_OPTIONS,
    ) -> Queue | Route:
        """The queue of an address, or its exchange with the key that the address has.

        :param replicate: what ``x-qpid-replicate`` says, for a queue that is made now.
        :param site: what ``x-qpid-site-replicate`` says, likewise.
        :param options: what else that queue is declared with.
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
        """The queue of an address.

        :raises AddressRefusedError: when it is an exchange, or as ``resolve`` does.
        """
        target = self.resolve(name)
        if isinstance(target, Route):
            raise AddressRefusedError(NOT_ALLOWED, f"{name!r} is an exchange")
        return target

    def find_route(self, name: str) -> Route | None:
        """The exchange that an address names, with the key that follows; ``None`` if there is none."""
        head = name
        while head:
            exchange = self._exchanges.get(head)
            if exchange is not None:
                return Route(exchange, None if head == name else name[len(head) + 1 :])
            head = head.rpartition("/")[0]
        return None

    def _check_free(self, name: str, others: Mapping[str, object], what: str) -> None:
        """A new name must be no one else's."""
        if not name or len(name) > MAX_NAME or name.startswith(RESERVED):
            raise AddressRefusedError(NOT_ALLOWED, f"{name!r} cannot be declared")
        if name in others:
            raise AddressRefusedError(NOT_ALLOWED, f"{name!r} is {what} already")

    # -- queues ---------------------------------------------------------------------------------

    def find_queue(self, name: str) -> Queue | None:
        """The queue of that name, if there is one."""
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
        """Make a queue of that name; one of another identity is replaced.

        :param identity: that of a queue which the cluster has already.
        :param limited: whether it is refused when there are too many; the member's own are not.
        :raises AddressRefusedError: when the name is reserved, or an exchange's; when another site is to get
            what the backups do not have; when an option is not for it; or when there are too many queues.
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
        """Let another site have more or less of a queue; what is in it gets its events now.

        :raises AddressRefusedError: when another site would get what the backups do not have.
        """
        _check_site(queue.name, queue.replicate, site)
        if queue.site is not site:
            queue.site = site
            for watcher in (self.watcher, self.site):
                if watcher is not None:
                    watcher.queue_changed(queue)

    def by_identity(self, identity: str) -> Queue | None:
        """The queue of an identity."""
        return self._by_identity.get(identity)

    def delete(self, queue: Queue) -> None:
        """Delete a queue with what is in it, and the bindings to it."""
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
        """A new queue that is neither stored nor replicated, mostly for one connection.

        :param owner: who alone may take from it; ``None`` for anybody.
        :param name: its own; one is made by default.
        :param policy: when it ends before its connection does; ``None`` for when it is deleted.
        :param limited: whether it is refused when there are too many.
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
        """A connection has ended: delete its temporary queues."""
        for queue in queues:
            if queue.exclusive_to is owner:
                self.delete(queue)

    def _dead_letter_target(self, address: str, queue: Queue) -> Queue | Route | None:
        """Where the dead letters of a queue go; a queue that is made now is replicated as that one is."""
        target = self._queues.get(address) or self.find_route(address)
        if target is None and self._auto_create:
            try:
                return self.declare(address, replicate=queue.replicate)
            except AddressRefusedError:
                return None
        return target

    def expire(self) -> None:
        """Drop what is too old in the queues that have such a message; move what waited to be moved."""
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
        """Every binding, those of one exchange together."""
        return tuple(binding for exchange in self._exchanges.values() for binding in exchange.bindings)

    def find_exchange(self, name: str) -> Exchange | None:
        """The exchange of that name, if there is one."""
        return self._exchanges.get(name)

    def exchange_by_identity(self, identity: str) -> Exchange | None:
        """The exchange of an identity."""
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
        """Make an exchange of that name; one of another identity is replaced.

        :param options: what else its type wants to know.
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
        """Give an exchange other options."""
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
        """Send what fits the key to the queue; the binding that does so already stays.

        :raises AddressRefusedError: when the key is too long.
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
        """End a binding; one that has ended is no error."""
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
    """What ``x-qpid-replicate`` says; ``None`` when it is not there.

    :raises AddressRefusedError: for another value.
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
    """What ``x-qpid-site-replicate`` says; none when it is not there.

    :raises AddressRefusedError: for another value.
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
