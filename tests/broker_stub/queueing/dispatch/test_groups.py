"""Message groups: each belongs to one consumer for that consumer's life, and its messages arrive in order."""

from __future__ import annotations

import proton
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_stub.amqp.message_format import Envelope, inspect
from broker_stub.queueing.dispatch.groups import BUCKETS
from broker_stub.queueing.message import Selects
from broker_stub.queueing.queue import Queue
from tests.broker_stub.queueing.takers import Taker


def texts(taker: Taker) -> list[str]:
    return [data.decode() for data in taker.contents]


def make() -> Queue:
    return Queue("q", lambda: 0.0)


def put(queue: Queue, *bodies: str) -> None:
    """Add messages whose group is the first letter of the body, unless that is a capital."""
    for body in bodies:
        group = body[:1].encode() if body[:1].islower() else None
        queue.enqueue(body.encode(), lambda _: None, None, Envelope(group=group))


def test_a_group_goes_to_one_consumer_in_order_and_others_go_to_whoever_is_next() -> None:
    queue = make()
    one, other = Taker(queue, 10), Taker(queue, 10)
    put(queue, "a1", "b1", "a2", "a3", "X", "b2", "a4", "Y")
    assert [each for each in texts(one) if each.islower()] == ["a1", "a2", "a3", "a4"]
    assert [each for each in texts(other) if each.islower()] == ["b1", "b2"]


def test_a_group_waits_for_its_owner_and_nobody_waits_for_the_group() -> None:
    queue = make()
    owner, other = Taker(queue, 1), Taker(queue, 0)
    put(queue, "a1", "a2", "b1", "a3", "X")
    other.grant(10)
    assert (texts(owner), texts(other)) == (["a1"], ["b1", "X"])
    owner.grant(1)
    assert texts(owner) == ["a1", "a2"]
    owner.grant(5)
    assert texts(owner) == ["a1", "a2", "a3"]


@pytest.mark.parametrize("selects", [None, lambda _: True], ids=["any", "selective"])
def test_a_group_moves_on_in_order_when_its_owner_ends(selects: Selects | None) -> None:
    queue = make()
    owner = Taker(queue, 2, selects=selects)
    put(queue, "a1", "a2", "a3", "a4")
    other = Taker(queue, 10, selects=selects)
    assert texts(other) == []
    queue.accept(owner.consumer, owner.got[0])
    queue.unsubscribe(owner.consumer, died=True)
    assert texts(other) == ["a2", "a3", "a4"]


def test_what_its_owner_does_not_take_goes_to_another() -> None:
    queue = make()
    owner = Taker(queue, 1)
    put(queue, "a1", "a2")
    queue.modify(owner.consumer, owner.got[0], undeliverable_here=True)
    other = Taker(queue, 5)
    assert texts(other) == ["a1"]
    owner.grant(1)
    assert texts(owner) == ["a1", "a2"]


def test_a_selective_owner_keeps_its_group_from_others() -> None:
    queue = make()
    owner = Taker(queue, 1, selects=lambda message: message.data.startswith(b"a"))
    other = Taker(queue, 10)
    put(queue, "a1", "a2", "b1")
    assert (texts(owner), texts(other)) == (["a1"], ["b1"])
    owner.grant(5)
    assert texts(owner) == ["a1", "a2"]


def test_what_came_back_to_a_selective_consumer_may_have_got_another_owner() -> None:
    queue = make()
    first, selective = (Taker(queue, credit, selects=lambda _: True) for credit in (1, 2))
    put(queue, "a1", "b1", "a2", "b2")
    plain = Taker(queue, 1)
    assert (texts(first), texts(selective), texts(plain)) == (["a1"], ["b1", "b2"], [])
    queue.unsubscribe(first.consumer)
    assert texts(plain) == ["a1"]
    selective.grant(5)
    assert texts(selective) == ["b1", "b2"]


def test_as_many_groups_as_senders_make_up_are_remembered_in_buckets() -> None:
    queue = make()
    taker = Taker(queue, 10**6)
    for number in range(5 * BUCKETS):
        queue.enqueue(b"", lambda _: None, None, Envelope(group=b"%d" % number))
        queue.accept(taker.consumer, taker.got.pop())
    groups = queue._dispatcher._groups
    assert groups is not None
    assert len(groups) <= BUCKETS
    queue.unsubscribe(taker.consumer)
    assert len(groups) == 0


@pytest.mark.parametrize(
    ("group_id", "group"),
    [
        ("orders-7", b"orders-7"),
        ("\u00e9", "\u00e9".encode()),
        ("x" * 1000, b"x" * 1000),
        ("", None),
        (None, None),
    ],
)
def test_the_group_is_read_from_the_properties(group_id: str | None, group: bytes | None) -> None:
    message = proton.Message(body="x", group_id=group_id, group_sequence=3, subject="s", expiry_time=5)
    found = inspect(bytes(message.encode()))
    assert (found.group, found.expiry_ms) == (group, 5000)


class GroupMachine(RuleBasedStateMachine):
    """No two living consumers get the same group; each group arrives in order, except requeued messages."""

    @initialize()
    def start(self) -> None:
        self.queue = make()
        self.takers: list[Taker] = []
        self.sent = 0
        self.gone: list[int] = []

    @rule(group=st.sampled_from("abcX"))
    def send(self, group: str) -> None:
        self.sent += 1
        put(self.queue, f"{group}{self.sent}")

    @rule(credit=st.integers(0, 3), selective=st.booleans())
    def subscribe(self, credit: int, *, selective: bool) -> None:
        self.takers.append(Taker(self.queue, credit, selects=(lambda _: True) if selective else None))

    @precondition(lambda self: self.takers)
    @rule(data=st.data(), credit=st.integers(1, 3))
    def grant(self, data: st.DataObject, credit: int) -> None:
        data.draw(st.sampled_from(self.takers)).grant(credit)

    @precondition(lambda self: any(taker.consumer.held for taker in self.takers))
    @rule(data=st.data(), outcome=st.sampled_from(["accept", "release"]))
    def settle(self, data: st.DataObject, outcome: str) -> None:
        taker = data.draw(st.sampled_from([each for each in self.takers if each.consumer.held]))
        message = min(taker.consumer.held)
        getattr(self.queue, outcome)(taker.consumer, message)

    @precondition(lambda self: self.takers)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        taker = data.draw(st.sampled_from(self.takers))
        self.takers.remove(taker)
        self.queue.unsubscribe(taker.consumer)

    @invariant()
    def each_group_has_one_living_owner(self) -> None:
        if not hasattr(self, "queue"):
            return
        for group in "abc":
            owners = [taker for taker in self.takers if any(each[0] == group for each in texts(taker))]
            assert len(owners) <= 1, f"{group} went to two consumers that live"

    @invariant()
    def nothing_waits_beside_credit_of_its_owner(self) -> None:
        if not hasattr(self, "queue"):
            return
        held = {message for taker in self.takers for message in taker.consumer.held}
        numbers = [message for n in self.queue.ids() if (message := self.queue.message(n)) not in held]
        for message in numbers:
            assert message is not None
            body = message.data.decode()
            owners = [
                t for t in self.takers if body[0] != "X" and any(each[0] == body[0] for each in texts(t))
            ]
            assert not any(taker.credit for taker in owners or self.takers), f"{body} waits"


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
