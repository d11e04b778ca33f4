"""The node of an address, and the notification of its observers."""

from __future__ import annotations

from typing import Any

import pytest

from broker_stub.queueing.exchanges import MAX_KEY, ExchangeType, Route
from broker_stub.queueing.message import Replicate
from broker_stub.queueing.nodes import Addresses, AddressRefusedError
from broker_stub.queueing.queue import Queue


class Recorder:
    """A watcher that records its notifications."""

    def __init__(self) -> None:
        self.reported: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda what: self.reported.append((name, what))


def addresses(**options: Any) -> Addresses:
    return Addresses(lambda: 0.0, **options)


def condition(call: Any, *arguments: Any) -> str:
    with pytest.raises(AddressRefusedError) as refused:
        call(*arguments)
    return refused.value.condition


def test_an_address_names_an_exchange_with_or_without_a_key() -> None:
    all_of_them = addresses()
    made = all_of_them.declare_exchange("ex", ExchangeType.TOPIC)
    assert all_of_them.resolve("ex") == Route(made)
    assert all_of_them.resolve("ex/a.b/c") == Route(made, "a.b/c")
    assert all_of_them.resolve("ex/") == Route(made, "")
    assert isinstance(all_of_them.resolve("example"), Queue)


def test_the_longest_name_of_an_exchange_counts_and_a_queue_before_it() -> None:
    all_of_them = addresses()
    all_of_them.declare_exchange("a", ExchangeType.TOPIC)
    inner = all_of_them.declare_exchange("a/b", ExchangeType.TOPIC)
    own = all_of_them.declare("a/b/queue")
    assert all_of_them.resolve("a/b/key") == Route(inner, "key")
    assert all_of_them.resolve("a/b/queue") is own


def test_a_name_is_a_queue_or_an_exchange_and_never_both() -> None:
    all_of_them = addresses()
    all_of_them.declare("q")
    all_of_them.declare_exchange("ex", ExchangeType.FANOUT)
    assert condition(all_of_them.declare, "ex") == "amqp:not-allowed"
    assert condition(all_of_them.declare_exchange, "q", ExchangeType.FANOUT) == "amqp:not-allowed"
    assert condition(all_of_them.queue, "ex") == "amqp:not-allowed"
    assert condition(all_of_them.queue, "ex/key") == "amqp:not-allowed"


@pytest.mark.parametrize("name", ["", "$exchange", "temporary/x", "x" * 1025])
def test_reserved_and_endless_names_are_refused(name: str) -> None:
    assert condition(addresses().declare_exchange, name, ExchangeType.FANOUT) == "amqp:not-allowed"
    assert condition(addresses().declare, name) == "amqp:not-allowed"


def test_an_endless_key_is_refused() -> None:
    all_of_them = addresses()
    made = all_of_them.declare_exchange("ex", ExchangeType.DIRECT)
    bound = all_of_them.declare("q")
    assert condition(all_of_them.bind, made, bound, "k" * (MAX_KEY + 1)) == "amqp:invalid-field"


def test_a_second_equal_binding_is_the_first_one() -> None:
    all_of_them = addresses()
    made, bound = all_of_them.declare_exchange("ex", ExchangeType.DIRECT), all_of_them.declare("q")
    all_of_them.watcher = recorder = Recorder()
    first = all_of_them.bind(made, bound, "k")
    assert all_of_them.bind(made, bound, "k") is first
    assert all_of_them.bindings == (first,)
    all_of_them.unbind(first)
    all_of_them.unbind(first)
    assert recorder.reported == [("binding_added", first), ("binding_deleted", first)]


def test_bindings_go_with_their_queue_and_with_their_exchange_without_a_word() -> None:
    all_of_them = addresses()
    made, other = (all_of_them.declare_exchange(name, ExchangeType.DIRECT) for name in ("ex", "other"))
    one, two = all_of_them.declare("one"), all_of_them.declare("two")
    for exchange in (made, other):
        all_of_them.bind(exchange, one)
        all_of_them.bind(exchange, two)
    all_of_them.watcher = recorder = Recorder()
    all_of_them.delete(one)
    all_of_them.delete_exchange(other)
    assert [(binding.exchange, binding.queue) for binding in all_of_them.bindings] == [(made, two)]
    assert recorder.reported == [("queue_deleted", one), ("exchange_deleted", other)]


def test_an_exchange_that_is_declared_again_is_another_one() -> None:
    all_of_them = addresses(replicate=Replicate.CONFIGURATION)
    former = all_of_them.declare_exchange("ex", ExchangeType.DIRECT, replicate=Replicate.NONE)
    all_of_them.bind(former, all_of_them.declare("q"))
    latter = all_of_them.declare_exchange("ex", ExchangeType.TOPIC, identity="an identity")
    assert (former.deleted, all_of_them.bindings) == (True, ())
    assert all_of_them.exchanges == (latter,)
    assert all_of_them.exchange_by_identity(former.identity) is None
    assert all_of_them.exchange_by_identity("an identity") is latter
    assert (former.replicate, latter.replicate) == (Replicate.NONE, Replicate.CONFIGURATION)


def test_without_auto_creation_there_are_exchanges_still() -> None:
    all_of_them = addresses(auto_create=False)
    made = all_of_them.declare_exchange("ex", ExchangeType.DIRECT)
    assert all_of_them.resolve("ex/k") == Route(made, "k")
    assert condition(all_of_them.resolve, "other") == "amqp:not-found"
