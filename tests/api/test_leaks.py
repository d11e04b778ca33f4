"""Hundreds of connections through each API, some lost in between, leave nothing behind.

The tests count file descriptors, threads, tasks, and the live objects of proton and of this package.  They
count after the peer has seen the end of the last connection.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import cproton
import proton
import psutil
import pytest
from proton import Message
from proton.handlers import MessagingHandler

import haclient
from haclient import aio
from haclient.core.connection import ConnectionCore
from haclient.engine.protocol import Engine
from haclient.errors import ConnectionGaveUp
from haclient.factory.factory_core import FactoryCore
from haclient.reactor import Container
from haclient.reactor.endpoints.binding import Binding
from haclient.testing.peers.listening import url
from haclient.testing.threads import in_thread
from haclient.utils import BlockingConnection
from tests.dropin.waiting import on_its_thread, wait_until
from tests.peers.primary import Primary, primary

# A thousand through each take two minutes: ``make soak-connections``.
MANY = [200, pytest.param(1000, marks=pytest.mark.soak)]
# One of this many connections is lost and found again before it is closed.
LOST = 10
FAST: dict[str, Any] = {"backoff_base": 0.001, "backoff_max": 0.001}
KINDS = (
    *(proton.Endpoint, proton.Transport, proton.Collector, proton.Delivery),
    *(Engine, ConnectionCore, FactoryCore, Binding, Container),
)


@dataclass(frozen=True, slots=True)
class Held:
    """The counted resources of a process."""

    descriptors: int
    threads: int
    objects: dict[str, int]
    retained: int

    @classmethod
    def now(cls, peer: Primary) -> Held:
        """Count this process's resources when the last connection is gone."""
        wait_until(lambda: not peer.transports)
        gc.collect()
        alive: dict[str, int] = {}
        for each in gc.get_objects():
            if issubclass(type(each), KINDS):
                alive[type(each).__name__] = alive.get(type(each).__name__, 0) + 1
        return cls(psutil.Process().num_fds(), threading.active_count(), alive, int(cproton.retained_count()))

    def more_than(self, before: Held) -> dict[str, int]:
        """Return the resources that have grown; an earlier test's leftovers may have gone meanwhile."""
        now, then = ({**each.objects, **vars_of(each)} for each in (self, before))
        return {name: count for name, count in now.items() if count > then.get(name, 0)}


def vars_of(held: Held) -> dict[str, int]:
    return {"descriptors": held.descriptors, "threads": held.threads, "retained": held.retained}


def drop(peer: Primary) -> None:
    """Reset every connection, as a dying process does."""
    on_its_thread(peer, peer.drop)


def through_asyncio(peer: Primary, numbers: Iterable[int]) -> None:
    async def visits() -> None:
        for number in numbers:
            async with aio.connect(url(peer), **FAST) as connection:
                sender = await connection.create_sender("orders")
                await connection.create_receiver("news")
                await sender.send(Message(body=number))
                if number % LOST == 0:
                    drop(peer)
                    await sender.send(Message(body=number))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(visits())


def visit(connection: haclient.Connection | BlockingConnection, peer: Primary, number: int) -> None:
    """Send a message, and another after a loss."""
    sender = connection.create_sender("orders")
    connection.create_receiver("news")
    sender.send(Message(body=number))
    if number % LOST == 0:
        drop(peer)
        sender.send(Message(body=number))


def through_blocking_calls(peer: Primary, numbers: Iterable[int]) -> None:
    for number in numbers:
        with haclient.connect(url(peer), **FAST) as connection:
            visit(connection, peer, number)


class Visitor(MessagingHandler):
    """Sends a message, and another after a loss, and closes."""

    def __init__(self, peer: Primary, number: int) -> None:
        super().__init__()
        self.peer = peer
        self.losses = int(number % LOST == 0)

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(url(self.peer), **FAST)
        self.sender = event.container.create_sender(connection, "orders")
        event.container.create_receiver(connection, "news")
        self.sender.send(Message(body="one"))

    def on_accepted(self, event: Any) -> None:
        if self.losses:
            self.losses -= 1
            drop(self.peer)
            self.sender.send(Message(body="another"))
        else:
            event.connection.close()


def through_containers(peer: Primary, numbers: Iterable[int]) -> None:
    for number in numbers:
        Container(Visitor(peer, number)).run()


def through_containers_in_a_loop(peer: Primary, numbers: Iterable[int]) -> None:
    async def visits() -> None:
        for number in numbers:
            await Container(Visitor(peer, number)).run_async()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(visits())


def through_blocking_connections(peer: Primary, numbers: Iterable[int]) -> None:
    for number in numbers:
        with BlockingConnection(url(peer), **FAST) as connection:
            visit(connection, peer, number)


APIS = [
    through_asyncio,
    through_blocking_calls,
    through_containers,
    through_containers_in_a_loop,
    through_blocking_connections,
]


@pytest.mark.slow
@pytest.mark.parametrize("many", MANY)
@pytest.mark.parametrize("visit", APIS)
def test_many_connections_leave_nothing_behind(
    visit: Callable[[Primary, Iterable[int]], None], many: int
) -> None:
    with in_thread(primary()) as peer:
        visit(peer, range(2 * LOST))
        before = Held.now(peer)
        visit(peer, range(many))
        assert Held.now(peer).more_than(before) == {}
        assert len(peer.accepted) >= many + many // LOST


class Hopeful(MessagingHandler):
    """Connects to a port without a listener."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address

    def on_start(self, event: Any) -> None:
        event.container.connect(self.address, reconnect=[0, 0.001, 0.001])


def give_up_in_a_container(address: str) -> None:
    Container(Hopeful(address)).run()


def give_up_in_a_blocking_connection(address: str) -> None:
    with pytest.raises(proton.ConnectionException):
        BlockingConnection(address, reconnect=[0, 0.001, 0.001])


def give_up_in_blocking_calls(address: str) -> None:
    with pytest.raises(ConnectionGaveUp):
        haclient.connect(f"amqp://{address}", max_attempts=3, **FAST)


@pytest.mark.slow
@pytest.mark.parametrize(
    "try_it", [give_up_in_a_container, give_up_in_a_blocking_connection, give_up_in_blocking_calls]
)
def test_attempts_that_fail_leave_nothing_behind(try_it: Callable[[str], None]) -> None:
    with in_thread(primary()) as peer:
        address = peer.address
    for _ in range(3):
        try_it(address)
    before = Held.now(peer)
    for _ in range(100):
        try_it(address)
    assert Held.now(peer).more_than(before) == {}
