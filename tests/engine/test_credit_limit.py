"""A peer may not exceed its credit: at the first message above it the receiver closes the link.

The peer is written as bytes, since proton sends nothing without credit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Described, uint, ulong, ushort

from haclient.engine.link_table import repeat_credit
from haclient.engine.links import ReceiverLink
from haclient.engine.protocol import Engine
from haclient.engine.proton_objects import SLACK
from haclient.testing.peers.listening import settings
from tests.broker_stub.raw_client import (
    ATTACH,
    BEGIN,
    OPEN,
    WINDOW,
    attach_sender,
    begin,
    frame,
    transfer,
)
from tests.engine.pair import Owner, client_settings
from tests.engine.test_hostile_peers import AMQP_HEADER, Wire

EXCEEDED = "amqp:link:transfer-limit-exceeded"


class _Peer:
    """The sending end of one link to an engine, in bytes.

    :ivar refusals: the conditions by which the engine closed the link.
    """

    def __init__(self, engine: Engine, owner: Owner, link: ReceiverLink) -> None:
        self.engine, self.owner, self.link = engine, owner, link
        self.refusals: list[proton.Condition] = []
        link.on_violation = lambda _, condition: self.refusals.append(condition)
        self._number = 0

    @property
    def delivered(self) -> int:
        return len(self.owner.deliveries)

    def send(self, count: int = 1, *, more: bool = False, settled: bool = False, data: bytes = b"x") -> None:
        for _ in range(count):
            self.engine.data_received(transfer(0, self._number, data, more=more, settled=settled))
            self._number += not more

    def abort(self) -> None:
        """Begin a message, and abort it."""
        self.send(more=True)
        fields = [uint(0), uint(self._number), None, None, None, False, None, None, None, True]
        self.engine.data_received(frame(0x14, fields))
        self._number += 1

    def give_back(self, count: int) -> None:
        """Announce a delivery-count as after a drain: section 2.6.7."""
        fields = [uint(0), WINDOW, uint(0), WINDOW, uint(0), uint(self._number + count), uint(0)]
        self.engine.data_received(frame(0x13, fields))


def attach(initial: int) -> bytes:
    """Encode the Attach of a sender with that initial delivery-count."""
    ends = [Described(ulong(0x28), ["q"]), Described(ulong(0x29), [])]
    return frame(ATTACH, ["r", uint(0), False, None, None, *ends, None, None, uint(initial)])


@contextmanager
def client(*, before: int = 0, initial: int = 0) -> Iterator[_Peer]:
    """Attach the client's receiver.

    :param before: credit that is granted before the peer's Attach.
    :param initial: the delivery-count in that.
    """
    loop = asyncio.new_event_loop()
    owner = Owner()
    engine = Engine(owner, client_settings(sasl=False), loop)
    engine.connection_made(Wire())
    engine.open()
    engine.begin()
    engine.data_received(AMQP_HEADER + frame(OPEN, ["peer"]))
    loop.run_until_complete(asyncio.sleep(0))
    engine.data_received(frame(BEGIN, [ushort(0), uint(0), WINDOW, WINDOW]))
    assert owner.session is not None
    link = engine.receiver(owner.session, "r", owner)
    link.endpoint.source.address = "q"
    engine.attach(link)
    link.grant(before)
    loop.run_until_complete(asyncio.sleep(0))
    engine.data_received(attach(initial))
    try:
        yield _Peer(engine, owner, link)
    finally:
        engine.abort()
        loop.close()


@contextmanager
def server() -> Iterator[_Peer]:
    """Attach a member's receiver, with one credit."""
    loop = asyncio.new_event_loop()
    owner = Owner(server=True, grants=1)
    engine = Engine(owner, settings(), loop)
    engine.connection_made(Wire())
    engine.data_received(AMQP_HEADER + frame(OPEN, ["peer"]) + begin() + attach_sender("s", 0, "q"))
    loop.run_until_complete(asyncio.sleep(0))
    (link,) = owner.links
    assert isinstance(link, ReceiverLink)
    try:
        yield _Peer(engine, owner, link)
    finally:
        engine.abort()
        loop.close()


@pytest.mark.parametrize("settled", [False, True])
def test_what_is_beyond_the_credit_closes_the_link_and_is_not_delivered(*, settled: bool) -> None:
    with client() as peer:
        peer.link.grant(10)
        peer.send(1000, settled=settled)
        assert peer.delivered == 10 * SLACK
        assert [each.name for each in peer.refusals] == [EXCEEDED]
        assert peer.link.closed_here


def test_a_member_allows_its_clients_exactly_their_credit() -> None:
    with server() as peer:
        peer.send(1)
        assert not peer.refusals
        peer.send(2)
        assert peer.delivered == 1
        assert [each.name for each in peer.refusals] == [EXCEEDED]


def test_nothing_is_kept_of_an_unfinished_message_beyond_the_credit() -> None:
    with server() as peer:
        kept: list[int] = []
        peer.link.on_unfinished = lambda _, size: kept.append(size)
        peer.send(1)
        peer.send(100, more=True, data=bytes(1000))
        assert max(kept, default=0) == 0
        assert [each.name for each in peer.refusals] == [EXCEEDED]


def test_credit_that_was_taken_back_may_have_been_used_already() -> None:
    with server() as peer:
        peer.link.grant(9)
        peer.link.change_credit(-8)
        peer.send(10)
        assert peer.delivered == 10
        assert not peer.refusals
        peer.send(1)
        assert peer.refusals


def test_credit_that_proton_was_given_directly_counts() -> None:
    with client() as peer:
        peer.link.endpoint.flow(20)
        peer.send(20)
        assert not peer.refusals


def test_credit_that_is_repeated_is_neither_more_nor_less() -> None:
    """For RabbitMQ the client lowers the credit and raises it again: see ``core.quirks``."""
    with client() as peer:
        peer.link.grant(10)
        for _ in range(5):
            repeat_credit(peer.engine)
            peer.send(2)
        assert not peer.refusals
        repeat_credit(peer.engine)
        peer.send(10 * (SLACK - 1))
        assert not peer.refusals
        peer.send(1)
        assert peer.refusals


@pytest.mark.parametrize("initial", [2**32 - 1_000_000, 2**32 - 5, 2**31, 2**31 - 1, 1])
def test_no_initial_count_allows_more(initial: int) -> None:
    with client(before=10, initial=initial) as peer:
        peer.send(1000)
        assert peer.delivered == 10 * SLACK
        assert peer.refusals


def test_a_peer_that_says_it_used_more_credit_than_there_is_cannot_send_more() -> None:
    with client() as peer:
        returned: list[int] = []
        peer.link.on_flow = lambda link, count: (returned.append(count), link.grant(count))[0]
        peer.link.grant(10)
        peer.give_back(1_000_000)
        assert returned == [1_000_000]
        peer.send(1000)
        assert peer.delivered <= 10 * SLACK
        assert peer.refusals


def test_messages_that_are_aborted_use_up_no_credit() -> None:
    for attached in (client, server):
        with attached() as peer:
            peer.link.grant(1 if attached is server else 2)
            for _ in range(10):
                peer.abort()
            assert peer.link.credit == 2
            peer.send(2)
            assert peer.delivered == 2
            assert not peer.refusals


def test_a_drain_is_not_ended_by_a_message_that_is_aborted() -> None:
    with client() as peer:
        peer.link.grant(3)
        peer.link.drain()
        peer.abort()
        assert peer.link.credit == 2


@pytest.mark.parametrize("attached", [client, server])
@given(steps=st.lists(st.tuples(st.sampled_from(["send", "grant", "lower", "abort"]), st.integers(1, 9))))
def test_a_peer_may_reach_the_highest_limit_and_no_more(
    attached: Callable[[], AbstractContextManager[_Peer]], steps: list[tuple[str, int]]
) -> None:
    """By the arithmetic of section 2.6.7 the limit is the sum of delivery-count and credit.

    A client allows its largest credit in addition: RabbitMQ 3 sends as much while messages are on their way.
    """
    with attached() as peer:
        if attached is client:
            peer.link.grant(1)
        extra = SLACK - 1 if attached is client else 0
        count, credit_now, largest, highest = 0, 1, 1, 1 + extra
        for step, number in steps:
            match step:
                case "grant":
                    peer.link.grant(number)
                    credit_now += number
                case "lower":
                    peer.link.change_credit(-number)
                    credit_now -= number
                case "send":
                    used = min(number, highest - count)
                    peer.send(used)
                    count, credit_now = count + used, credit_now - used
                case "abort":
                    for _ in range(min(number, highest - count)):
                        peer.abort()
                        count += 1  # and the credit is unchanged
                        highest = max(highest, count + credit_now + extra * largest)
            largest = max(largest, credit_now)
            highest = max(highest, count + credit_now + extra * largest)
            assert not peer.refusals
        peer.send(highest - count)
        assert not peer.refusals
        delivered = peer.delivered
        peer.send(3)
        assert peer.delivered == delivered
        assert [each.name for each in peer.refusals] == [EXCEEDED]
