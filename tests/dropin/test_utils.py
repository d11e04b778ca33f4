"""Blocking calls: what they raise, what they survive, and what goes on between two of them."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import proton
import pytest
from proton import Condition, Delivery, Message
from proton import utils as proton_utils
from proton.reactor import AtMostOnce, Copy

from haclient import errors
from haclient.outcome import ACCEPTED, RELEASED, Outcome, OutcomeState
from haclient.reactor import Container
from haclient.utils import (
    BlockingConnection,
    ConnectionClosed,
    LinkDetached,
    SendException,
    SyncRequestResponse,
)
from tests.peers.listening import url
from tests.peers.primary import Primary, primary
from tests.peers.threaded import in_thread

FAST: dict[str, Any] = {"backoff_base": 0.01, "backoff_max": 0.05}
PATIENCE = 20.0
TIMEOUT = 0.2


@pytest.fixture
def peer() -> Iterator[Primary]:
    """A primary on another thread; every link to ``forbidden`` is refused."""
    refusal = Condition("amqp:unauthorized-access", "not for you")
    with in_thread(primary(refuses={"forbidden": refusal})) as peer:
        yield peer


@pytest.fixture
def connection(peer: Primary) -> Iterator[BlockingConnection]:
    with BlockingConnection(url(peer), timeout=PATIENCE, **FAST) as connection:
        yield connection


def on_its_thread(peer: Primary, call: Callable[..., Any], *arguments: Any) -> None:
    """Have a peer do something, and wait until it has."""
    done = threading.Event()

    def do() -> None:
        call(*arguments)
        done.set()

    next(iter(peer.engines))._loop.call_soon_threadsafe(do)
    assert done.wait(PATIENCE)


def wait_until(true: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_the_exceptions_are_protons_own() -> None:
    assert LinkDetached is proton_utils.LinkDetached
    assert SendException is proton_utils.SendException
    assert ConnectionClosed is proton_utils.ConnectionClosed
    assert issubclass(BlockingConnection, proton_utils.BlockingConnection)


@pytest.mark.parametrize(
    ("outcome", "state"),
    [(Outcome(OutcomeState.REJECTED), Delivery.REJECTED), (RELEASED, Delivery.RELEASED)],
)
def test_a_message_that_is_not_accepted_raises(
    peer: Primary, connection: BlockingConnection, outcome: Outcome, state: int
) -> None:
    peer.outcome = outcome
    sender = connection.create_sender("orders")
    with pytest.raises(SendException) as raised:
        sender.send(Message(body="one"))
    assert raised.value.state == state
    delivery = sender.send(Message(body="two"), error_states=[Delivery.MODIFIED])
    assert delivery.remote_state == state


def test_a_link_that_is_refused_raises(connection: BlockingConnection) -> None:
    with pytest.raises(LinkDetached, match="not for you") as raised:
        connection.create_sender("forbidden")
    assert raised.value.condition == "amqp:unauthorized-access"
    with pytest.raises(LinkDetached):
        connection.create_receiver("forbidden")
    connection.create_sender("orders").send(Message(body="the connection goes on"))


def test_a_link_that_is_detached_raises(peer: Primary, connection: BlockingConnection) -> None:
    receiver = connection.create_receiver("orders")
    on_its_thread(peer, peer.detach, Condition("amqp:resource-deleted", "the queue is gone"))
    with pytest.raises(LinkDetached, match="the queue is gone"):
        receiver.receive()


def test_a_close_that_is_an_error_raises(peer: Primary, connection: BlockingConnection) -> None:
    receiver = connection.create_receiver("orders")
    on_its_thread(peer, peer.close, Condition("amqp:not-allowed", "go away"))
    with pytest.raises(ConnectionClosed, match="go away"):
        receiver.receive()


def test_waiting_too_long_raises(peer: Primary, connection: BlockingConnection) -> None:
    receiver = connection.create_receiver("orders")
    with pytest.raises(proton.Timeout):
        receiver.receive(timeout=TIMEOUT)
    peer.outcome = None
    sender = connection.create_sender("orders")
    with pytest.raises(proton.Timeout):
        sender.send(Message(body="one"), timeout=TIMEOUT)
    peer.outcome = ACCEPTED
    on_its_thread(peer, peer.drop)
    sender.send(Message(body="two"))
    assert (peer.bodies, peer.copies) == (["one", "two"], 0)


def test_without_a_primary_it_gives_up_in_time() -> None:
    with in_thread(primary()) as peer:
        address = peer.address
    with pytest.raises(proton.Timeout) as raised:
        BlockingConnection(address, timeout=TIMEOUT, **FAST)
    assert isinstance(raised.value, proton.ConnectionException)
    assert isinstance(raised.value, errors.DeadlineExceeded)
    with pytest.raises(proton.ConnectionException, match="Connect call failed"):
        BlockingConnection(address, timeout=PATIENCE, reconnect=False)


def test_calls_go_on_over_losses(peer: Primary, connection: BlockingConnection) -> None:
    sender, receiver = connection.create_sender("orders"), connection.create_receiver("news")
    for number in range(5):
        on_its_thread(peer, peer.drop)
        assert sender.send(Message(body=number)).remote_state == Delivery.ACCEPTED
        wait_until(lambda: peer.engines)
        on_its_thread(peer, peer.put, "news", f"news {number}")
        assert receiver.receive().body == f"news {number}"
        receiver.accept()
        wait_until(lambda: len(peer.outcomes) > number)  # noqa: B023 - called here
    assert peer.bodies == [0, 1, 2, 3, 4]


def test_a_plain_connection_raises_when_it_is_lost(peer: Primary) -> None:
    connection = BlockingConnection(url(peer), timeout=PATIENCE, reconnect=False)
    sender = connection.create_sender("orders")
    on_its_thread(peer, peer.drop)
    with pytest.raises(proton.ConnectionException):
        sender.send(Message(body="one"))
    connection.close()
    assert len(peer.accepted) == 1


def test_what_was_fetched_before_a_loss_is_received_once(
    peer: Primary, connection: BlockingConnection
) -> None:
    receiver = connection.create_receiver("news", credit=10)
    on_its_thread(peer, peer.put, "news", "one", "two", "three")
    assert receiver.receive().body == "one"
    receiver.accept()
    wait_until(lambda: len(peer.outcomes) == 1)
    on_its_thread(peer, peer.drop)
    peer.credit.clear()
    wait_until(lambda: peer.credit and not peer.queues["news"])
    assert [receiver.receive().body for _ in range(2)] == ["two", "three"]
    receiver.accept()
    receiver.accept()
    wait_until(lambda: len(peer.outcomes) == 3)
    assert peer.outcomes == [ACCEPTED] * 3


@pytest.mark.parametrize(
    ("settle", "state"),
    [
        (lambda receiver: receiver.accept(), OutcomeState.ACCEPTED),
        (lambda receiver: receiver.reject(), OutcomeState.REJECTED),
        (lambda receiver: receiver.release(), OutcomeState.MODIFIED),
        (lambda receiver: receiver.release(delivered=False), OutcomeState.RELEASED),
    ],
)
def test_every_way_to_settle(
    peer: Primary, connection: BlockingConnection, settle: Callable[[Any], None], state: OutcomeState
) -> None:
    receiver = connection.create_receiver("news")
    on_its_thread(peer, peer.put, "news", "one")
    receiver.receive()
    settle(receiver)
    wait_until(lambda: peer.outcomes)
    outcome = peer.outcomes[0]
    assert outcome is not None
    assert outcome.state is state


def test_heartbeats_go_on_while_the_application_computes() -> None:
    """proton's connection is closed by its peer."""
    with (
        in_thread(primary(heartbeat=2.0)) as peer,
        BlockingConnection(url(peer), heartbeat=2.0) as connection,
    ):
        sender = connection.create_sender("orders")
        time.sleep(6)  # the computing; a busy machine may stall for a part of the heartbeat
        sender.send(Message(body="still there"))
        assert len(peer.accepted) == 1


def test_a_failover_goes_on_while_the_application_computes(
    peer: Primary, connection: BlockingConnection
) -> None:
    connection.create_sender("orders")
    on_its_thread(peer, peer.drop)
    wait_until(lambda: len(peer.accepted) == 2 and peer.engines)


def test_options_reach_the_link(peer: Primary, connection: BlockingConnection) -> None:
    receiver = connection.create_receiver("news", options=Copy(), name="mine")
    assert receiver.source.distribution_mode == proton.Terminus.DIST_MODE_COPY
    assert receiver.name == "mine"
    sender = connection.create_sender("orders", options=[AtMostOnce()])
    assert sender.send(Message(body="settled already")) is not None
    wait_until(lambda: peer.received)


def test_a_container_lends_its_id_to_several_connections(peer: Primary) -> None:
    container = Container(container_id="mine")
    first = BlockingConnection(url(peer), timeout=PATIENCE, container=container)
    second = BlockingConnection(url(peer), timeout=PATIENCE, container=container)
    wait_until(lambda: len(peer.engines) == 2)
    assert {engine.connection.remote_container for engine in peer.engines} == {"mine"}
    first.close()
    second.create_sender("orders").send(Message(body="one"))
    second.close()
    assert not _keepers()


async def test_it_may_block_a_coroutine(peer: Primary) -> None:
    """As proton's does; the loop around stands still meanwhile."""
    with BlockingConnection(url(peer), timeout=PATIENCE) as connection:
        connection.create_sender("orders").send(Message(body="from a coroutine"))
        await asyncio.sleep(0)
    assert peer.bodies == ["from a coroutine"]
    assert await asyncio.to_thread(lambda: True)


def test_a_request_without_an_address_is_refused(connection: BlockingConnection) -> None:
    client = SyncRequestResponse.__new__(SyncRequestResponse)
    client.connection, client.address = connection, None
    with pytest.raises(ValueError, match="no address"):
        client.call(Message(body="to whom?"))


def test_many_connections_leave_nothing_behind(peer: Primary) -> None:
    def visit() -> None:
        with BlockingConnection(url(peer), timeout=PATIENCE) as connection:
            connection.create_sender("orders")

    visit()
    wait_until(lambda: not peer.transports)
    before = _resources()
    for _ in range(1000):
        visit()
    wait_until(lambda: not peer.transports)
    assert _resources() <= before


def _resources() -> tuple[int, int, int]:
    """File descriptors, threads, and objects of proton and of the drop-in that are alive."""
    gc.collect()
    kinds = (proton.Endpoint, proton.Transport, proton.Collector, Container)
    alive = sum(issubclass(type(each), kinds) for each in gc.get_objects())
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), alive


def _keepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "haclient keeper"]
