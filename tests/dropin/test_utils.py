"""Blocking calls: their errors, the failures that they survive, and the activity between two calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import proton
import pytest
from proton import Condition, Delivery, Message
from proton import utils as proton_utils
from proton.reactor import AtMostOnce, Copy

from haclient import errors
from haclient.outcome import ACCEPTED, RELEASED, Outcome, OutcomeState
from haclient.reactor import Container
from haclient.testing.peers.listening import url
from haclient.testing.threads import in_thread
from haclient.utils import (
    BlockingConnection,
    ConnectionClosed,
    LinkDetached,
    SendException,
    SyncRequestResponse,
)
from tests.dropin.recorder import FAST, PATIENCE
from tests.dropin.waiting import on_its_thread, wait_until
from tests.peers.primary import Primary, primary

TIMEOUT = 0.2


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


def test_a_tuple_in_a_message_arrives_as_a_list(peer: Primary, connection: BlockingConnection) -> None:
    connection.create_sender("orders").send(Message(body=(1, {"pair": (2, ())})))  # type: ignore[arg-type]
    assert peer.bodies == [[1, {"pair": [2, []]}]]


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


def test_a_link_may_be_made_again_when_the_peer_detached_it(
    peer: Primary, connection: BlockingConnection
) -> None:
    sender = connection.create_sender("orders")
    on_its_thread(peer, peer.detach, Condition("amqp:resource-deleted", "the queue is gone"))
    with pytest.raises(LinkDetached):
        sender.send(Message(body="one"))
    connection.create_sender("orders").send(Message(body="two"))  # its link has the same name
    assert peer.bodies[-1] == "two"


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


def test_a_plain_connection_raises_when_it_is_lost(peer: Primary) -> None:
    connection = BlockingConnection(url(peer), timeout=PATIENCE, reconnect=False)
    sender = connection.create_sender("orders")
    on_its_thread(peer, peer.drop)
    with pytest.raises(proton.ConnectionException):
        sender.send(Message(body="one"))
    connection.close()
    assert len(peer.accepted) == 1


@pytest.mark.parametrize(
    ("settle", "state"),
    [
        (lambda receiver: receiver.accept(), OutcomeState.ACCEPTED),
        (lambda receiver: receiver.reject(), OutcomeState.REJECTED),
        (lambda receiver: receiver.release(), OutcomeState.MODIFIED),
        (lambda receiver: receiver.release(delivered=False), OutcomeState.RELEASED),
    ],
)
def test_every_outcome(
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
    """proton's call blocks the loop too; the surrounding loop stops meanwhile."""
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


def _keepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "haclient background loop"]
