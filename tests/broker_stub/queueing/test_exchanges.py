"""The queues that get a message, and the time of its sender's outcome."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Message

from broker_stub.amqp.message_format import Envelope, MalformedMessageError
from broker_stub.queueing.exchanges import (
    MAX_KEY,
    Binding,
    Exchange,
    ExchangeType,
    Route,
    UnroutableError,
    words,
)
from broker_stub.queueing.message import Message as Stored
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.queue_limits import QueueLimits

DIRECT, FANOUT, TOPIC = ExchangeType.DIRECT, ExchangeType.FANOUT, ExchangeType.TOPIC


def queue(name: str = "q", **limits: Any) -> Queue:
    return Queue(name, lambda: 0.0, limits=QueueLimits(**limits))


def exchange(kind: ExchangeType, *bindings: tuple[Queue, str]) -> Exchange:
    made = Exchange("ex", kind)
    for bound, key in bindings:
        made.add(Binding(made, bound, key))
    return made


def encoded(subject: str | None = None, **properties: Any) -> bytes:
    return bytes(Message(subject=subject, body="x", **properties).encode())


# -- matching -----------------------------------------------------------------------------------


def fits(pattern: tuple[str, ...], key: tuple[str, ...]) -> bool:
    """Match a topic pattern word by word, by trying all possibilities."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(fits(pattern[1:], key[skipped:]) for skipped in range(len(key) + 1))
    return bool(key) and pattern[0] in ("*", key[0]) and fits(pattern[1:], key[1:])


WORDS = st.sampled_from(["a", "b", "", "longer"])
KEYS = st.lists(WORDS, max_size=6).map(".".join)
PATTERNS = st.lists(st.one_of(WORDS, st.sampled_from(["*", "#"])), max_size=6).map(".".join)


@given(st.lists(PATTERNS, max_size=8, unique=True), st.lists(KEYS, min_size=1, max_size=4), st.data())
def test_a_topic_exchange_matches_as_trying_everything_does(
    patterns: list[str], keys: list[str], data: st.DataObject
) -> None:
    made = exchange(TOPIC)
    bindings = [Binding(made, queue(pattern), pattern) for pattern in patterns]
    for binding in bindings:
        made.add(binding)
    dropped = data.draw(st.sets(st.sampled_from(bindings))) if bindings else set()
    for step in ((), dropped):
        for binding in step:
            made.remove(binding)
        left = [binding.key for binding in bindings if binding not in step]
        for key in keys:
            expected = {pattern for pattern in left if fits(tuple(words(pattern)), tuple(words(key)))}
            assert {found.name for found in made.route(key)} == expected


@pytest.mark.parametrize(
    ("pattern", "matched", "others"),
    [
        ("a.*", ["a.b", "a."], ["a", "a.b.c", "", "b.a"]),
        ("a.#", ["a", "a.b", "a.b.c"], ["", "b", "ab"]),
        ("#", ["", "a", "a.b"], []),
        ("#.z", ["z", "a.z", "a.b.z"], ["", "z.a"]),
        ("a.#.z", ["a.z", "a.b.z", "a.b.c.z"], ["a", "z", "a.z.b"]),
        ("*", ["a"], ["", "a.b"]),
        ("", [""], ["a"]),
        ("#.*", ["a", "a.b"], [""]),
    ],
)
def test_topic_patterns(pattern: str, matched: list[str], others: list[str]) -> None:
    made = exchange(TOPIC, (queue(), pattern))
    assert [key for key in matched + others if made.route(key)] == matched


def test_patterns_that_try_every_split_are_matched_in_reasonable_time() -> None:
    made = exchange(TOPIC, (queue(), ".".join(["#", "a"] * 200)))
    assert made.route(".".join("a" * 500))
    assert not made.route(".".join("a" * 500 + "b"))


def test_a_topic_exchange_forgets_all_of_a_key_that_is_unbound() -> None:
    made = exchange(TOPIC)
    binding = Binding(made, queue(), "a.b.#")
    made.add(binding)
    made.remove(binding)
    assert not made._table._root.children


def test_a_direct_exchange_wants_the_very_key() -> None:
    one, two = queue("one"), queue("two")
    made = exchange(DIRECT, (one, "a"), (two, "a"), (two, "#"))
    assert made.route("a") == (one, two)
    assert made.route("#") == (two,)
    assert made.route("") == ()


def test_a_direct_exchange_gives_an_unbound_queue_nothing_more() -> None:
    one, two = queue("one"), queue("two")
    made = exchange(DIRECT, (one, "a"), (two, "a"))
    made.remove(Binding(made, one, "a"))
    assert made.route("a") == (two,)
    made.remove(Binding(made, two, "a"))
    assert made.route("a") == ()


def test_a_fanout_exchange_gives_each_queue_one_copy_until_its_last_binding_ends() -> None:
    one, two = queue("one"), queue("two")
    made = exchange(FANOUT, (one, "a"), (one, "b"), (two, ""))
    assert made.route("whatever") == (one, two)
    made.remove(Binding(made, one, "a"))
    assert made.route("whatever") == (one, two)
    made.remove(Binding(made, one, "b"))
    assert made.route("whatever") == (two,)


def test_a_queue_with_several_fitting_bindings_gets_one_copy() -> None:
    one = queue()
    made = exchange(TOPIC, (one, "a.*"), (one, "#"), (one, "a.b"))
    assert made.route("a.b") == (one,)


def test_a_deleted_queue_takes_its_bindings_along() -> None:
    one, two = queue("one"), queue("two")
    made = exchange(TOPIC, (one, "a"), (one, "b"), (two, "a"))
    made.remove_queue(one)
    assert [(binding.queue, binding.key) for binding in made.bindings] == [(two, "a")]
    assert made.route("a") == (two,)


def test_an_exchange_keeps_the_options_it_was_declared_with() -> None:
    assert Exchange("ex", ExchangeType.FANOUT, options={"color": "red"}).options == {"color": "red"}
    assert Exchange("ex", ExchangeType.FANOUT).options == {}


def test_routes_that_are_remembered_are_bounded() -> None:
    made = exchange(FANOUT, (queue(), ""))
    for number in range(5000):
        made.route(str(number))
    assert len(made._routes) <= 1024


# -- sending ------------------------------------------------------------------------------------


class LaterGuard:
    """Completes messages when the test says so."""

    open = True

    def __init__(self) -> None:
        self.held: list[functools.partial[None]] = []

    def when_complete(self, message: Stored, done: Any, token: Any) -> None:
        self.held.append(functools.partial(done, token))


def test_a_transfer_is_settled_once_when_the_last_copy_is_safe() -> None:
    queues, guard, reported = [queue(str(number)) for number in range(3)], LaterGuard(), list[str]()
    for bound in queues[:2]:
        bound.guard = guard
    route = Route(exchange(FANOUT, *((bound, "") for bound in queues)))
    route.enqueue(encoded(), reported.append, "token")
    assert [bound.depth for bound in queues] == [1, 1, 1]
    guard.held[1]()
    assert reported == []
    guard.held[0]()
    assert reported == ["token"]


@pytest.mark.parametrize(
    ("subject", "default", "reached"),
    [("a", None, "a"), ("a", "b", "a"), (None, "b", "b"), (None, None, "empty"), (None, "", "empty")],
)
def test_the_routing_key_is_the_subject_or_what_the_address_says(
    subject: str | None, default: str | None, reached: str
) -> None:
    queues = {"a": queue("a"), "b": queue("b"), "": queue("empty")}
    made = exchange(DIRECT, *((bound, key) for key, bound in queues.items()))
    Route(made, default).enqueue(encoded(subject), lambda _token: None, None)
    assert [bound.name for bound in queues.values() if bound.depth] == [reached]


def test_a_message_that_fits_nothing_is_not_taken() -> None:
    with pytest.raises(UnroutableError):
        Route(exchange(DIRECT, (queue(), "a"))).enqueue(encoded("b"), pytest.fail, None)


def test_a_routing_key_beyond_all_measure_is_refused() -> None:
    with pytest.raises(MalformedMessageError):
        Route(exchange(FANOUT, (queue(), ""))).enqueue(encoded("k" * (MAX_KEY + 1)), pytest.fail, None)
    longest = queue()
    Route(exchange(FANOUT, (longest, ""))).enqueue(encoded("k" * MAX_KEY), lambda _: None, None)
    assert longest.depth == 1


def test_duplicates_are_dropped_by_each_queue_for_itself() -> None:
    one, two, reported = queue("one"), queue("two"), list[int]()
    made = exchange(FANOUT, (one, ""))
    route = Route(made)
    envelope = Envelope(duplicate_id=b"id")
    route.enqueue(encoded(), reported.append, 1, envelope)
    made.add(Binding(made, two, ""))
    route.enqueue(encoded(), reported.append, 2, envelope)
    assert (one.depth, two.depth, reported) == (1, 1, [1, 2])


# -- room ---------------------------------------------------------------------------------------


def fill(full: Queue) -> None:
    while not full.full:
        full.enqueue(b"", lambda _token: None, None)


def test_an_exchange_is_full_while_one_of_its_queues_is() -> None:
    one, two, calls = queue("one", messages=10), queue("two", messages=10), list[str]()
    made = exchange(FANOUT, (one, ""), (two, ""))
    for times in (1, 2):  # a producer that was stalled once may be stalled again
        fill(two)
        assert made.full
        made.when_not_full(lambda: calls.append("room"))
        two.discard(two.ids())
        assert (made.full, calls) == (False, ["room"] * times)


@pytest.mark.parametrize("end", ["unbind", "delete the queue", "delete the exchange"])
def test_senders_look_again_when_the_full_queue_is_bound_no_more(end: str) -> None:
    one, calls = queue("one", messages=10), list[str]()
    made = exchange(DIRECT, (one, "a"))
    fill(one)
    made.when_not_full(lambda: calls.append("room"))
    if end == "unbind":
        made.remove(Binding(made, one, "a"))
    elif end == "delete the queue":
        one.close()
        made.remove_queue(one)
    else:
        made.close()
    assert (made.full, calls) == (False, ["room"])


def test_what_waits_in_a_full_queue_for_an_exchange_does_not_grow() -> None:
    one = queue("one", messages=10)
    made = exchange(DIRECT, (one, "a"))
    fill(one)
    for number in range(100):
        made.when_not_full(lambda: None)
        made.add(Binding(made, one, str(number)))
    assert len(one._watermarks.waiting) == 1
