"""Each program of ``docs/recipes.md`` does its job."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from haclient import Message, aio
from haclient.errors import ReceiveTimeout
from haclient.outcome import ACCEPTED
from haclient.testing import Broker, HAPair
from tests.docs.pages import URL, sections
from tests.examples.program import Program
from tests.peers import primary, url
from tests.peers.primary import Primary

pytestmark = pytest.mark.slow

pytest_plugins = ["pytester"]

RECIPES = sections("recipes.md")


@pytest.fixture
async def peer() -> AsyncIterator[Primary]:
    """A scripted member that records requests."""
    async with primary() as peer:
        yield peer


@pytest.fixture
async def connection(haclient_module_broker: Broker) -> AsyncIterator[aio.Connection]:
    """A connection to the member that the recipes use."""
    async with aio.connect(haclient_module_broker.url) as connection:
        yield connection


# An interrupt before this line may hit between the work and the accept. The message is then delivered again.
SAYS_ACCEPTED = {
    "import haclient\n": """\
import contextlib

import haclient


@contextlib.contextmanager
def says():
    yield
    print("accepted")


""",
    "with delivery:": "with says(), delivery:",
}

Start = Callable[..., AbstractAsyncContextManager[Program]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a recipe as a separate process, with the broker's URL instead of its own."""

    def start(heading: str, where: str, **replaced: str) -> Program:
        (program,) = RECIPES[heading]
        for old, new in {URL: where, **replaced}.items():
            assert old in program
            program = program.replace(old, new)
        path = tmp_path / f"{heading.replace(' ', '_').lower()}.py"
        path.write_text(program)
        return Program.of(sys.executable, "-u", "-W", "error", path)

    return start


def test_there_are_twelve() -> None:
    assert [len(programs) for programs in RECIPES.values()] == [1] * 12


async def put(connection: aio.Connection, address: str, *bodies: object) -> None:
    """Send messages to a queue."""
    async with connection.create_sender(address) as sender:
        for body in bodies:
            await sender.submit(Message(body=body))


async def take(connection: aio.Connection, address: str, count: int) -> list[Any]:
    """Receive and accept exactly ``count`` messages."""
    async with connection.create_receiver(address) as receiver:
        deliveries = [await receiver.receive(timeout=20) for _ in range(count)]
        for delivery in deliveries:
            await delivery.accept()
        with pytest.raises(ReceiveTimeout):
            await receiver.receive(timeout=0.05)
        return [delivery.message.body for delivery in deliveries]


async def interrupted(program: Program) -> None:
    """Interrupt the program as Ctrl-C does."""
    program.signal(signal.SIGINT)
    await program.line("^KeyboardInterrupt")


async def test_produce(start: Start, haclient_module_broker: Broker, connection: aio.Connection) -> None:
    async with start("Produce", haclient_module_broker.url) as program:
        assert await program.end() == "all settled\n"
    orders = await take(connection, "orders", 99)
    assert [order["order"] for order in orders] == list(range(1, 100))


async def test_consume(start: Start, haclient_module_broker: Broker, connection: aio.Connection) -> None:
    await put(connection, "orders", "one", "two")
    async with start("Consume", haclient_module_broker.url, **SAYS_ACCEPTED) as program:
        for body in ("one", "two"):
            await program.line(f"^{body}$")
            await program.line("^accepted$")
        await interrupted(program)
    await take(connection, "orders", 0)


async def test_retry(start: Start, peer: Primary) -> None:
    """The first send gets no outcome in time. The broker sees the retry as a duplicate of the same
    message.
    """
    peer.outcome = None
    async with start("Retry", url(peer), **{"timeout=10": "timeout=0.2"}) as program:
        await peer.until(lambda: peer.copies)
        peer.outcome = ACCEPTED
        await program.end()
    assert peer.bodies == [{"payment": 17}]


async def test_forward(start: Start, haclient_module_broker: Broker, connection: aio.Connection) -> None:
    await put(connection, "orders.in", 1, 2, 3)
    async with start("Forward", haclient_module_broker.url, **SAYS_ACCEPTED) as program:
        assert await take(connection, "orders.out", 3) == [1, 2, 3]
        for _ in range(3):
            await program.line("^accepted$")
        await interrupted(program)
    await take(connection, "orders.in", 0)


async def test_forward_over_a_failover(start: Start, haclient_pair: HAPair) -> None:
    async with aio.connect(haclient_pair.url) as connection, start("Forward", haclient_pair.url):
        incoming = await connection.create_sender("orders.in")
        outgoing = await connection.create_receiver("orders.out", credit=1000)
        await incoming.send_many(range(50), timeout=20)
        await asyncio.to_thread(haclient_pair.kill_primary)
        await incoming.send_many(range(50, 100), timeout=20)
        seen = set[int]()
        while len(seen) < 100:
            deliveries = await outgoing.receive_many(100, timeout=20)
            seen |= {delivery.body for delivery in deliveries}
            await outgoing.accept_many(deliveries)


async def test_request_and_reply(start: Start, haclient_module_broker: Broker) -> None:
    async with start("Request and reply", haclient_module_broker.url) as program:
        assert await program.end() == "144\n"


async def test_thread_pool(start: Start, haclient_module_broker: Broker, connection: aio.Connection) -> None:
    await put(connection, "jobs", *range(30))
    async with start("Thread pool", haclient_module_broker.url) as program:
        results = await take(connection, "results", 30)
        assert sorted(result["done"] for result in results) == list(range(30))
        await interrupted(program)
    await take(connection, "jobs", 0)


async def test_asyncio_service(
    start: Start, haclient_module_broker: Broker, connection: aio.Connection
) -> None:
    await put(connection, "jobs", *range(30))
    async with start("Asyncio service", haclient_module_broker.url) as program:
        results = await take(connection, "results", 30)
        assert sorted(result["done"] for result in results) == list(range(30))
        program.signal(signal.SIGTERM)
        assert await program.end() == "stopped\n"
    await take(connection, "jobs", 0)


@pytest.mark.parametrize(("seconds", "done"), [(0.3, 20), (1000, 0)], ids=["in time", "too late"])
async def test_asyncio_service_finishes_what_is_in_hand_and_gives_back_the_rest(
    start: Start, haclient_module_broker: Broker, connection: aio.Connection, seconds: float, done: int
) -> None:
    await put(connection, "jobs", *range(60))
    slow = f'print("job", delivery.body); await asyncio.sleep({seconds}); await results.send('
    replaced = {"await results.send(": slow, "GRACE = 5": f"GRACE = {5 if done else 0.2}"}
    async with start("Asyncio service", haclient_module_broker.url, **replaced) as program:
        await program.line("^job 19$")
        program.signal(signal.SIGTERM)
        assert (await program.end()).endswith("stopped\n")
    assert len(await take(connection, "results", done)) == done
    assert len(await take(connection, "jobs", 60 - done)) == 60 - done


async def test_batch_job(start: Start, haclient_module_broker: Broker, connection: aio.Connection) -> None:
    await put(connection, "readings", *range(1200))
    async with start("Batch job", haclient_module_broker.url, **{"timeout=2": "timeout=0.5"}) as program:
        assert await program.end() == f"1200 readings, sum {sum(range(1200))}\n"
    await take(connection, "readings", 0)


async def test_selector(start: Start, peer: Primary) -> None:
    peer.put("orders", "one")
    async with start("Selector", url(peer), **{"timeout=5": "timeout=0.5"}) as program:
        assert await program.end() == "one None\n"
    (source,) = peer.sources
    assert "region = 'eu' AND amount > 100" in str(source.filters)


async def test_selector_of_our_broker(
    start: Start, haclient_module_broker: Broker, connection: aio.Connection
) -> None:
    async with connection.create_sender("orders") as sender:
        for region, amount in (("eu", 200), ("us", 300), ("eu", 50), ("eu", 101)):
            properties = {"region": region, "amount": amount}
            await sender.submit(Message(body=f"{region} {amount}", properties=properties))
    async with start("Selector", haclient_module_broker.url, **{"timeout=5": "timeout=0.5"}) as program:
        for body in ("eu 200", "eu 101"):
            await program.line(f"^{body} ")
        await program.end()
    assert await take(connection, "orders", 2) == ["us 300", "eu 50"]


async def test_durable_subscription(start: Start, peer: Primary) -> None:
    peer.put("news", "one", "two")
    async with start("Durable subscription", url(peer), **{"timeout=5": "timeout=0.5"}) as program:
        assert await program.end() == "one\ntwo\n"
    assert peer.subscriptions


async def test_rotating_password(
    start: Start, tmp_path: Path, haclient_pair_factory: Callable[..., AbstractContextManager[HAPair]]
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("right-password\n")
    with haclient_pair_factory(users={"orders": "right-password"}) as pair:
        where = pair.url.replace("orders:right-password@", "")
        async with start("Rotating password", where, **{"/run/secrets/broker": str(secret)}) as program:
            assert await program.end() == ""


def test_pytest(pytester: pytest.Pytester) -> None:
    (program,) = RECIPES["Pytest"]
    pytester.makepyfile(program)
    loop_scope = "asyncio_default_fixture_loop_scope=function"
    pytester.runpytest_subprocess("-W", "error", "-o", loop_scope).assert_outcomes(passed=1)
