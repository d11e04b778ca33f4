"""The programs of ``docs/receiving.md`` and ``docs/errors.md`` work as described, with real messages."""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import pytest

import haclient
from haclient.errors import LinkClosed, ReceiveTimeout, SendManyError, SendTimeout, StaleDelivery
from haclient.testing import Broker
from haclient.testing.threads import in_thread
from tests.docs.pages import DOCS, URL
from tests.peers import primary, url
from tests.peers.primary import Primary

PROGRAMS = [
    program
    for name in ("receiving.md", "errors.md")
    for program in re.findall(r"^```python\n(.*?)^```", (DOCS / name).read_text(), re.DOTALL | re.MULTILINE)
]
BODIES = ("one", "bad", "two")


class Database:
    """The applied changes, and their ids."""

    def __init__(self) -> None:
        self.applied: list[Any] = []
        self.asked: list[str] = []
        self.ids = set[str]()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        yield

    def has_seen(self, identity: str) -> bool:
        self.asked.append(identity)
        return identity in self.ids

    def remember(self, identity: str) -> None:
        self.ids.add(identity)

    def apply(self, body: object) -> None:
        self.applied.append(body)


class Page:
    """Runs programs of a page in one namespace, which defines the names that the page leaves to its
    reader.
    """

    def __init__(self, connection: haclient.Connection, where: str) -> None:
        self.where = where
        self.handled: list[Any] = []
        self.names: dict[str, Any] = {
            "haclient": haclient,
            "suppress": suppress,
            "StaleDelivery": StaleDelivery,
            "connection": connection,
            "handle": lambda message: self.handled.append(message.body),
        }

    def run(self, program: str) -> None:
        code = compile(program.replace(URL, self.where), "receiving.md", "exec")
        exec(code, self.names)  # noqa: S102

    def run_until(self, program: str, handled: Callable[[], bool]) -> None:
        """Run a program with an endless loop until ``handled`` returns true; then close its receiver."""

        def run() -> None:
            with suppress(LinkClosed):  # an accept awaits confirmation while the receiver closes
                self.run(program)

        thread = threading.Thread(target=run)
        thread.start()
        while thread.is_alive() and not handled():
            thread.join(0.01)
        self.names["receiver"].close()
        thread.join(30)
        assert not thread.is_alive()


@pytest.fixture
def connection(haclient_module_broker: Broker) -> Iterator[haclient.Connection]:
    haclient_module_broker.restore()
    with haclient.connect(haclient_module_broker.url) as connection:
        with connection.create_sender("orders") as orders:
            orders.send_many(haclient.Message(id=body, body=body) for body in BODIES)
        yield connection


@pytest.fixture
def page(haclient_module_broker: Broker, connection: haclient.Connection) -> Page:
    return Page(connection, haclient_module_broker.url)


def left(connection: haclient.Connection, address: str = "orders") -> list[Any]:
    """Return the bodies in a queue, without removing them."""
    with connection.create_receiver(address, browse=True) as browser:
        browser.drain()
        return [delivery.body for delivery in browser.receive_many(100, timeout=0)]


def program(part: str) -> str:
    """Return the program of the pages that contains this text."""
    (found,) = (each for each in PROGRAMS if part in each)
    return found


def test_the_loops_take_every_message(page: Page, connection: haclient.Connection) -> None:
    page.run_until(program("with haclient.connect"), lambda: len(page.handled) == len(BODIES))
    assert page.handled == list(BODIES)
    assert left(connection) == []


def test_a_message_that_fails_comes_three_times_and_is_put_aside(
    page: Page, connection: haclient.Connection
) -> None:
    def handle(message: haclient.Message) -> None:
        page.handled.append(message.body)
        if message.body == "bad":
            raise ValueError("no order")

    page.names |= {"handle": handle, "receiver": connection.create_receiver("orders")}
    page.run_until(
        program("orders.failed"),
        lambda: left(connection, "orders.failed") == ["bad"] and left(connection) == [],
    )
    assert page.handled.count("bad") == 3
    assert left(connection, "orders.failed") == ["bad"]
    assert left(connection) == []


def test_several_at_once(page: Page, connection: haclient.Connection) -> None:
    page.names |= {"receiver": connection.create_receiver("orders"), "store": list}
    page.run(program("store("))
    assert page.names["stale"] == []


def test_confirmed_accepts(page: Page, connection: haclient.Connection) -> None:
    page.run_until(program("confirm=True) as receiver"), lambda: len(page.handled) == len(BODIES))
    assert page.handled == list(BODIES)


def test_the_effect_of_a_message_is_stored_once(page: Page, connection: haclient.Connection) -> None:
    database = Database()
    database.remember("two")
    page.names |= {"receiver": connection.create_receiver("orders", confirm=True), "database": database}
    page.run_until(program("database.transaction"), lambda: len(database.asked) == len(BODIES))
    assert database.applied == ["one", "bad"]


def test_credit_for_one(page: Page, connection: haclient.Connection) -> None:
    connection.create_sender("jobs").send("job")
    page.run(program("add_credit(1)"))
    assert page.names["job"].body == "job"


def test_a_shutdown_gives_back_what_was_prefetched(page: Page, connection: haclient.Connection) -> None:
    stopping = threading.Event()

    def handle(message: haclient.Message) -> None:
        page.handled.append(message.body)
        stopping.set()

    receiver = connection.create_receiver("orders")
    page.names |= {"handle": handle, "receiver": receiver, "stopping": stopping}
    page.run(program("stopping.is_set()"))
    assert page.handled == ["one"]
    assert sorted(left(connection)) == ["bad", "two"]


def test_browsing_and_selecting(page: Page, connection: haclient.Connection) -> None:
    page.run(program("browse=True"))
    assert left(connection) == list(BODIES)
    page.run(program("colour = 'red'"))
    with pytest.raises(ReceiveTimeout):
        page.names["red"].receive(timeout=0.1)


@asynccontextmanager
async def publisher() -> AsyncIterator[Primary]:
    async with primary() as peer:
        yield peer


def test_subscriptions() -> None:
    with in_thread(publisher()) as peer, haclient.connect(url(peer), client_id="me") as connection:
        Page(connection, url(peer)).run(program('connection.subscribe("news")'))


def test_a_send_that_timed_out_is_repeated(page: Page, connection: haclient.Connection) -> None:
    names = {"sender": connection.create_sender("again"), "message": "one", "SendTimeout": SendTimeout}
    page.names |= names
    page.run(program("outcome = sender.send"))
    assert left(connection, "again") == ["one"]


def test_what_send_many_left_out_is_sent(page: Page, connection: haclient.Connection) -> None:
    """The first call fails as if its time had ended after two of three messages."""
    sender = connection.create_sender("many")

    class Sender:
        send = staticmethod(sender.send)
        calls = 0

        def send_many(self, messages: list[str], **arguments: float) -> None:
            Sender.calls += 1
            if Sender.calls == 1:
                taken = sender.send(messages[0])
                raise SendManyError("late", [taken, SendTimeout("late", duplicate_id="two")])
            sender.send_many(messages, **arguments)

    errors = {"SendTimeout": SendTimeout, "SendManyError": SendManyError}
    page.names |= {"sender": Sender(), "messages": ["one", "two", "three"], **errors}
    page.run(program("except SendManyError"))
    assert left(connection, "many") == ["one", "two", "three"]
