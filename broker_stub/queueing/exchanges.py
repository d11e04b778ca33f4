"""Exchanges: they copy a message to every queue that is bound with a matching key.  No I/O.

Matching
--------
* ``direct``: the binding's key is the message's routing key.
* ``fanout``: every bound queue, whatever the keys.
* ``replication``: applies another site's events (``sites.inbound``).  It has no bindings, and no link
  receives from it.
* ``topic``: a key is words between dots, and an empty key has none.  In a binding's key ``*``
  stands for one word and ``#`` for any number of words, including none.

Rules
-----
* A message's routing key is its ``subject``; without one, the key in the address ``exchange/key``; without
  that, it is empty.
* Every matching queue gets one copy, however many of its bindings match.
* The sender's transfer is settled when every copy is complete.  If it is not settled, some copies may exist
  already; the sender sends again, which is at-least-once for each queue.
* A queue with a selector gets only messages that the selector matches (``QueueOptions.selector``).
* A message that matches no binding is not taken.  Its outcome is ``released``, so the sender learns that no
  consumer will get it, and may send it again later.
* Senders get no new credit while any bound queue is full.
* A binding ends with its exchange and with its queue.
* Routes of recent keys are cached until a binding is made or ends.

Sources: AMQP 0-10, section 3.2.3 ("Exchange types") for the matching; AMQP 1.0 part 3, sections
3.2.4 (``subject``) and 3.4.4 (released).
"""

from __future__ import annotations

import enum
import functools
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from broker_stub.amqp.message_format import PLAIN, Envelope, MalformedMessageError, subject
from broker_stub.queueing.message import Done, Replicate
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.queue_limits import TotalSize
from broker_stub.queueing.selectors import Fields

# More than any key that a person writes; longer keys would make matching too expensive.
MAX_KEY = 1024
# Cached routes.  Most applications use few keys; one that uses each key only once gains nothing.
_MAX_ROUTES = 1024


class ExchangeType(enum.StrEnum):
    """The type of an exchange, which determines how it matches keys."""

    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"
    REPLICATION = "replication"


class UnroutableError(Exception):
    """A message matches no binding of its exchange."""


class Exchange:
    """An exchange.  Its bindings are changed through ``Addresses`` only.

    :param identity: a UUID; the same name with another identity is another exchange.
    :param replicate: whether the backups have it; ``all`` and ``configuration`` are the same here.
    :param options: other options that it was declared with, as JSON types.
    :ivar total: the size of all queues, for a ``replication`` exchange; senders wait while it is excessive.
    :ivar apply_event: how a ``replication`` exchange applies a message; raises as ``Route.enqueue`` does.
    """

    def __init__(
        self,
        name: str,
        kind: ExchangeType,
        *,
        identity: str | None = None,
        replicate: Replicate = Replicate.NONE,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.type = kind
        self.options: Mapping[str, Any] = options or {}
        self.total: TotalSize | None = None
        self.apply_event: Callable[[bytes, Done, Any], None] | None = None
        self.identity = identity or str(uuid.uuid4())
        self.replicate = replicate
        self.deleted = False
        self._bindings: dict[Queue, dict[str, Binding]] = {}
        self._table: _Table = _TABLES[kind]()
        self.selective: set[Queue] = set()
        """The bound queues that get only some messages."""
        self._routes: dict[str, tuple[Queue, ...]] = {}
        self._stalled: dict[Callable[[], None], None] = {}
        self._watched: set[Queue] = set()

    # -- bindings -------------------------------------------------------------------------------

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """Every binding, grouped by queue."""
        return tuple(binding for keys in self._bindings.values() for binding in keys.values())

    def bindings_of(self, queue: Queue) -> tuple[Binding, ...]:
        """Return the bindings of one queue."""
        return tuple(self._bindings.get(queue, {}).values())

    def binding(self, queue: Queue, key: str) -> Binding | None:
        """Return the binding of a queue with a key, if there is one."""
        return self._bindings.get(queue, {}).get(key)

    def add(self, binding: Binding) -> None:
        """Add a binding."""
        self._bindings.setdefault(binding.queue, {})[binding.key] = binding
        self._table.add(binding.key, binding.queue)
        if binding.queue.options.selector or binding.queue.options.no_local:
            self.selective.add(binding.queue)
        self._changed()

    def remove(self, binding: Binding) -> None:
        """Remove a binding."""
        queue = binding.queue
        del self._bindings[queue][binding.key]
        if not self._bindings[queue]:
            del self._bindings[queue]
            self.selective.discard(queue)
        self._table.remove(binding.key, queue)
        self._changed()

    def remove_queue(self, queue: Queue) -> None:
        """Remove the bindings of a deleted queue."""
        for binding in tuple(self._bindings.get(queue, {}).values()):
            self.remove(binding)

    def close(self) -> None:
        """Mark the exchange as deleted, and remove its bindings."""
        self.deleted = True
        self._bindings.clear()
        self.selective.clear()
        self._table = _TABLES[self.type]()
        self._changed()

    # -- messages -------------------------------------------------------------------------------

    def route(self, key: str) -> tuple[Queue, ...]:
        """Return the queues that match a routing key."""
        queues = self._routes.get(key)
        if queues is None:
            if len(self._routes) >= _MAX_ROUTES:
                self._routes.clear()
            queues = self._routes[key] = tuple(dict.fromkeys(self._table.match(key)))
        return queues

    @property
    def full(self) -> bool:
        """True if senders should get no new credit."""
        if self.total is not None:
            return self.total.excessive
        return any(queue.full for queue in self._bindings)

    def when_not_full(self, call: Callable[[], None]) -> None:
        """Call once when the first full queue has capacity again, or when the bindings have changed."""
        self._stalled[call] = None
        if self.total is not None:
            self.total.excess[self._notify_not_full] = None
        for queue in self._bindings:
            if queue.full:
                if queue not in self._watched:
                    self._watched.add(queue)
                    queue.when_not_full(functools.partial(self._queue_not_full, queue))
                return

    def stop_waiting(self, call: Callable[[], None]) -> None:
        """Cancel a callback."""
        self._stalled.pop(call, None)

    def _queue_not_full(self, queue: Queue) -> None:
        self._watched.discard(queue)
        self._notify_not_full()

    def _changed(self) -> None:
        self._routes.clear()
        self._notify_not_full()

    def _notify_not_full(self) -> None:
        stalled, self._stalled = self._stalled, {}
        for call in stalled:
            call()


@dataclass(frozen=True, slots=True)
class Binding:
    """Sends messages with a matching ``key`` from ``exchange`` to ``queue``."""

    exchange: Exchange
    queue: Queue
    key: str = ""


# -- sending --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Route:
    """An exchange as senders see it: it takes messages, as a queue does.

    :param key: the routing key of messages without a subject; ``None`` if the address has none.
    """

    exchange: Exchange
    key: str | None = None

    @property
    def name(self) -> str:
        """The address."""
        return self.exchange.name if self.key is None else f"{self.exchange.name}/{self.key}"

    @property
    def deleted(self) -> bool:
        """True if the exchange is deleted."""
        return self.exchange.deleted

    @property
    def full(self) -> bool:
        """True if senders should get no new credit."""
        return self.exchange.full

    @property
    def full_itself(self) -> bool:
        """True if a bound queue has reached its own limits."""
        return any(binding.queue.full_itself for binding in self.exchange.bindings)

    def when_not_full(self, call: Callable[[], None]) -> None:
        """Call once when the exchange may accept messages again."""
        self.exchange.when_not_full(call)

    def stop_waiting(self, call: Callable[[], None]) -> None:
        """Cancel a callback."""
        self.exchange.stop_waiting(call)

    def enqueue(
        self,
        data: bytes,
        done: Done,
        token: Any,
        envelope: Envelope = PLAIN,
        lifetime: float | None = None,
        *,
        producer: str | None = None,
    ) -> None:
        """Add a message to every queue that it matches.

        :param done: called with ``token`` when every copy is complete.
        :param lifetime: seconds until the message expires; its own time to live by default.
        :param producer: the container id of its sender.
        :raises UnroutableError: when it matches no queue; then nothing is added.
        :raises MalformedMessageError: when its routing key is too long.
        """
        if self.exchange.apply_event is not None:
            self.exchange.apply_event(data, done, token)
            return
        message_subject = subject(data)
        key = message_subject if message_subject is not None else self.key or ""
        if len(key) > MAX_KEY:
            raise MalformedMessageError(f"a routing key has at most {MAX_KEY} characters")
        queues = self.exchange.route(key)
        if self.exchange.selective:
            fields = Fields(data)
            queues = tuple(each for each in queues if _takes(each, fields, producer))
        if not queues:
            raise UnroutableError(f"no binding of {self.exchange.name!r} fits {key!r}")
        if len(queues) > 1:
            done, token = _Copies(len(queues), done, token).safe, None
        for queue in queues:
            queue.enqueue(data, done, token, envelope, lifetime, producer=producer)


def _takes(queue: Queue, fields: Fields, producer: str | None) -> bool:
    """Return True if a queue gets a message of this producer."""
    if queue.options.no_local and queue.options.no_local == producer:
        return False
    return queue.selector is None or queue.selector.holds(fields.value)


class _Copies:
    """Counts the copies of one message that are not complete yet."""

    __slots__ = ("_done", "_left", "_token")

    def __init__(self, count: int, done: Done, token: Any) -> None:
        self._left = count
        self._done = done
        self._token = token

    def safe(self, _token: None) -> None:
        """Count a complete copy."""
        self._left -= 1
        if not self._left:
            self._done(self._token)


# -- matching -------------------------------------------------------------------------------------


class _Table(Protocol):
    """Finds queues by routing key.  Callers add each pair of key and queue at most once."""

    def add(self, key: str, queue: Queue) -> None:
        """Add a binding."""

    def remove(self, key: str, queue: Queue) -> None:
        """Remove a binding."""

    def match(self, key: str) -> Iterable[Queue]:
        """Return the queues of the matching bindings; a queue may occur more than once."""


class _Direct:
    def __init__(self) -> None:
        self._by_key: dict[str, dict[Queue, None]] = {}

    def add(self, key: str, queue: Queue) -> None:
        self._by_key.setdefault(key, {})[queue] = None

    def remove(self, key: str, queue: Queue) -> None:
        del self._by_key[key][queue]
        if not self._by_key[key]:
            del self._by_key[key]

    def match(self, key: str) -> Iterable[Queue]:
        return self._by_key.get(key, ())


class _Fanout:
    def __init__(self) -> None:
        self._bound: dict[tuple[Queue, str], None] = {}

    def add(self, key: str, queue: Queue) -> None:
        self._bound[queue, key] = None

    def remove(self, key: str, queue: Queue) -> None:
        del self._bound[queue, key]

    def match(self, key: str) -> Iterable[Queue]:
        return (queue for queue, _ in self._bound)


class _Nothing:
    def add(self, key: str, queue: Queue) -> None:
        raise AssertionError("bindings to this exchange are refused")

    def remove(self, key: str, queue: Queue) -> None:
        raise AssertionError("bindings to this exchange are refused")

    def match(self, key: str) -> Iterable[Queue]:
        return ()


class _Node:
    """The position in the tree after some words of bindings' keys."""

    __slots__ = ("children", "queues", "repeats")

    def __init__(self, *, repeats: bool = False) -> None:
        self.children: dict[str, _Node] = {}
        self.queues: dict[Queue, None] = {}
        self.repeats = repeats


class _Topic:
    """A tree of the words in the bindings' keys, searched along all matching branches at once.

    Each word visits a node at most once.  So the time is at most the number of words times the number of
    nodes.
    """

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, key: str, queue: Queue) -> None:
        node = self._root
        for word in words(key):
            child = node.children.get(word)
            if child is None:
                child = node.children[word] = _Node(repeats=word == "#")
            node = child
        node.queues[queue] = None

    def remove(self, key: str, queue: Queue) -> None:
        node, path = self._root, []
        for word in words(key):
            path.append((node, word))
            node = node.children[word]
        del node.queues[queue]
        for parent, word in reversed(path):
            if node.queues or node.children:
                break
            del parent.children[word]
            node = parent

    def match(self, key: str) -> Iterable[Queue]:
        nodes = _with_repetitions([self._root])
        for word in words(key):
            nodes = _with_repetitions(_after(nodes, word))
        return (queue for node in nodes for queue in node.queues)


def words(key: str) -> list[str]:
    """Return the words of a topic key."""
    return key.split(".") if key else []


def _after(nodes: Iterable[_Node], word: str) -> Iterable[_Node]:
    """Yield the nodes that one more word leads to."""
    for node in nodes:
        for child in (node.children.get(word), node.children.get("*")):
            if child is not None:
                yield child
        if node.repeats:
            yield node


def _with_repetitions(nodes: Iterable[_Node]) -> dict[_Node, None]:
    """Return the nodes, and those reached over a ``#`` without any word."""
    found: dict[_Node, None] = {}
    for node in nodes:
        reached: _Node | None = node
        while reached is not None and reached not in found:
            found[reached] = None
            reached = reached.children.get("#")
    return found


_TABLES: dict[ExchangeType, Callable[[], _Table]] = {
    ExchangeType.DIRECT: _Direct,
    ExchangeType.FANOUT: _Fanout,
    ExchangeType.TOPIC: _Topic,
    ExchangeType.REPLICATION: _Nothing,
}
