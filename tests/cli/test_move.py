"""``haclient move``: when it accepts messages, across failovers on either side, refusals and signals."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import proton
import pytest

from haclient import Message, aio
from haclient.engine import codec
from haclient.engine.links import ReceiverLink
from haclient.outcome import ACCEPTED, RELEASED, Outcome, OutcomeState
from haclient.testing.proxy import proxy
from tests.broker_stub.replication.cluster import Cluster
from tests.cli.command import PATIENCE, Running, run
from tests.members import Member, Members
from tests.peers import Primary
from tests.peers import primary as scripted_primary

OLD, NEW = "old", "new"
QUICK = "backoff_base=0.02&backoff_max=0.2"
REJECTED = Outcome(OutcomeState.REJECTED, "amqp:resource-limit-exceeded", "the queue is full")


@pytest.fixture
def primary(members: Members) -> Member:
    return members.start("primary", role="primary")


@asynccontextmanager
async def two(**facts: Any) -> AsyncIterator[tuple[Primary, Primary]]:
    """Start a source, and a target with these facts."""
    async with scripted_primary() as source, scripted_primary(**facts) as target:
        yield source, target


@contextmanager
def moving(source: Primary, target: Primary, *options: str) -> Iterator[Running]:
    urls = [f"amqp://{peer.address}?{QUICK}" for peer in (source, target)]
    with Running("move", urls[0], OLD, urls[1], NEW, *options) as command:
        yield command


async def ended(command: Running) -> int:
    return await asyncio.to_thread(command.wait)


def put(peer: Primary, *bodies: object, **fields: Any) -> None:
    """Put durable messages into the source queue, each with an id."""
    for body in bodies:
        message = Message(body=body, durable=True, id=f"id of {body}", **fields)
        peer.queues[OLD].append(bytes(message.encode()))
    peer._deliver()


def settle(peer: Primary, outcome: Outcome = ACCEPTED) -> None:
    """Settle every delivery that has no outcome yet."""
    for links in peer.engines.values():
        for link in (each for each in links if isinstance(each, ReceiverLink)):
            for delivery in tuple(link.unsettled):
                link.settle(delivery, outcome)


# -- moved messages ------------------------------------------------------------------------------


def test_messages_are_moved_in_their_order_and_unchanged(primary: Member) -> None:
    line = {
        "id": "m-1", "subject": "new", "durable": True, "priority": 7, "ttl": 3600.0,
        "properties": {"n": 1, "raw": {"$bytes": "AP8="}}, "annotations": {"x-opt-a": [1, None]},
        "body": {"a": {"$map": [[1, "one"]]}},
    }  # fmt: skip
    run("send", primary.url, OLD, "--json", text=f'{json.dumps(line)}\n{{"body": 2}}\n{{"body": 3}}\n')
    before = primary.messages(OLD)[0]
    moved = run("move", primary.url, OLD, NEW, "--timeout", "0.5", "--json")
    assert moved.returncode == 0, moved.stderr
    assert {"moved": 3, "not_accepted": 0, "unsettled": 0, "again": 0, "failovers": 0}.items() <= json.loads(
        moved.stdout
    ).items()
    assert (primary.depth(OLD), [m.body for m in primary.messages(NEW)]) == (0, [before.body, 2, 3])
    after = primary.messages(NEW)[0]
    for name in ("id", "subject", "durable", "priority", "annotations", "user_id", "creation_time"):
        assert getattr(after, name) == getattr(before, name), name
    assert 0 < after.ttl <= before.ttl, "what is left of it"
    assert after.properties["raw"] == b"\x00\xff"


@pytest.mark.slow
def test_a_count_moves_so_many_and_leaves_the_rest(primary: Member) -> None:
    run("send", primary.url, OLD, text="".join(f"{n}\n" for n in range(300)))
    moved = run("move", primary.url, OLD, NEW, "-n", "120")
    assert (moved.returncode, moved.stdout) == (0, "")
    assert moved.stderr.startswith("moved 120 in ")
    assert primary.bodies(NEW) == [str(n) for n in range(120)]
    assert primary.bodies(OLD) == [str(n) for n in range(120, 300)]
    less = run("move", primary.url, OLD, NEW, "-n", "300", "--timeout", "0.5")
    assert (less.returncode, primary.depth(NEW)) == (1, 300)


@pytest.mark.slow
def test_a_message_may_go_back_and_forth(primary: Member) -> None:
    """Each queue has seen the message before and detects duplicates."""
    run("send", primary.url, OLD, text="one\n")
    for route in ((OLD, NEW), (NEW, OLD), (OLD, NEW), (NEW, OLD)):
        assert run("move", primary.url, *route, "-n", "1").returncode == 0
    assert primary.bodies(OLD) == ["one"]
    assert primary.depth(NEW) == 0


async def test_a_message_is_accepted_when_the_target_has_settled_it() -> None:
    async with two(outcome=None) as (source, target):
        put(source, *range(20))
        with moving(source, target, "-n", "20") as command:
            await target.until(lambda: len(target.received) == 20)
            assert source.outcomes == []
            settle(target)
            assert await ended(command) == 0, command.errors
        assert source.outcomes == [ACCEPTED] * 20
        assert target.bodies == [*range(20)]


@pytest.mark.parametrize("option", ["credit=7", "window=7"])
async def test_what_is_under_way_has_a_bound(option: str) -> None:
    async with two(outcome=None) as (source, target):
        put(source, *range(100))
        with moving(source, target, "-o", option, "--timeout", "1") as command:
            await target.until(lambda: len(target.received) == 7)
            settle(target)
            await target.until(lambda: len(target.received) == 14)
            command.process.kill()
            await ended(command)
        assert len(target.received) == 14


# -- connection losses ---------------------------------------------------------------------------


@pytest.mark.slow
async def test_what_the_source_delivers_again_is_at_the_target_once() -> None:
    """The source is lost after the target received the messages, before the command accepted them."""
    async with two(outcome=None, grants=1000) as (source, target):
        put(source, *range(10))
        with moving(source, target, "--timeout", "2") as command:
            await target.until(lambda: len(target.received) == 10)
            source.drop()
            await target.until(lambda: target.copies == 10)
            target.outcome = ACCEPTED
            settle(target)
            assert await ended(command) == 0, command.errors
        assert target.bodies == [*range(10)]
        assert (source.outcomes, source.queues[OLD]) == ([ACCEPTED] * 10, source.queues[NEW])
        assert "10 of them come again" in command.errors[-1]


async def test_two_at_once_move_each_message_once() -> None:
    """One command is killed. The other gets its messages again, with ids that the target knows."""
    async with two(outcome=None, grants=1000) as (source, target):
        put(source, *range(30))
        options = ("-o", "credit=10")
        with (
            moving(source, target, *options) as one,
            moving(source, target, *options, "-n", "30") as other,
        ):
            await target.until(lambda: len(target.received) == 20)
            one.process.kill()
            await ended(one)
            target.outcome = ACCEPTED
            settle(target)
            assert await ended(other) == 0, other.errors
        assert sorted(target.bodies) == [*range(30)]
        assert target.copies == 10
        assert not source.queues[OLD]


async def test_another_process_moves_what_is_left_once() -> None:
    """The first process is killed once the target has the messages."""
    async with two(outcome=None, grants=1000) as (source, target):
        put(source, *range(10))
        with moving(source, target) as command:
            await target.until(lambda: len(target.received) == 10)
            command.process.kill()
            await ended(command)
        target.outcome = ACCEPTED
        with moving(source, target, "-n", "10") as command:
            assert await ended(command) == 0, command.errors
        assert (target.bodies, target.copies) == ([*range(10)], 10)


@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
async def test_what_the_target_had_not_settled_is_sent_to_the_next_one_first(delivery: str) -> None:
    """Also if the URL says ``at-most-once``: a message with an unknown outcome could not be accepted."""
    async with two(outcome=None, grants=1000) as (source, target):
        put(source, *range(10))
        with moving(source, target, "-n", "10", "-o", f"delivery={delivery}") as command:
            await target.until(lambda: len(target.received) == 10)
            target.outcome = ACCEPTED
            target.drop()
            assert await ended(command) == 0, command.errors
        assert (target.bodies, target.copies) == ([*range(10)], 10)
        assert source.outcomes == [ACCEPTED] * 10


async def test_messages_that_come_again_after_the_last_silence_are_moved_too() -> None:
    """``--timeout`` expires before the target has settled anything. Then the source is lost."""
    async with two(outcome=None, grants=1000) as (source, target):
        put(source, *range(5))
        with moving(source, target, "--timeout", "0.5") as command:
            await target.until(lambda: len(target.received) == 5)
            while not any("5 messages wait" in line for line in command.errors):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            source.drop()
            await source.until(lambda: source.unsettled == 5)
            target.outcome = ACCEPTED
            settle(target)
            assert await ended(command) == 0, command.errors
        assert source.outcomes == [ACCEPTED] * 5
        assert (target.bodies, target.copies) == ([*range(5)], 5)


@pytest.mark.parametrize("lost", ["source", "target"])
async def test_a_connection_that_does_not_come_back_is_exit_code_4(lost: str) -> None:
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(scripted_primary())
        target = await stack.enter_async_context(scripted_primary(outcome=None))
        route = await stack.enter_async_context(proxy(source if lost == "source" else target))
        put(source, "one")
        ends = (route, target) if lost == "source" else (source, route)
        with moving(*ends, "--timeout", "20", "--reconnect-timeout", "0.3") as command:  # type: ignore[arg-type]
            await target.until(lambda: target.received)
            route.refuse()
            assert await ended(command) == 4
        assert command.errors[-1] == "Error: no connection for 0.3 s"
        await source.until(lambda: not source.engines)
        assert [codec.decode(data).body for data in source.queues[OLD]] == ["one"]


@pytest.mark.slow
async def test_nothing_is_lost_or_doubled_when_the_primary_is_killed(tmp_path: Path) -> None:
    """Source and target are queues of one pair. The queues' contents decide, not the command's output."""
    async with Cluster(tmp_path) as cluster:
        first, second = await cluster.pair()
        url = f"{cluster.url}?{QUICK}"
        async with aio.connect(url) as connection:
            sender = await connection.create_sender(OLD)
            for number in range(600):
                await sender.submit(Message(body=number), durable=number % 2 == 0)
            await sender.flush()
        with Running("move", url, OLD, NEW, "--timeout", "2", "--rate", "600") as command:
            async with aio.connect(url) as connection:
                receiver = await connection.create_receiver(NEW, browse=True)
                for _ in range(150):
                    await receiver.receive(timeout=PATIENCE)
            await first.kill()
            await second.promote()
            assert await ended(command) == 0, command.errors
        assert any("  reconnected " in line for line in command.errors)
        async with aio.connect(url) as connection:
            old, new = [await drained(connection, queue) for queue in (OLD, NEW)]
        assert (old, sorted(new)) == ([], [*range(600)])


async def drained(connection: aio.Connection, queue: str) -> list[Any]:
    receiver, found = await connection.create_receiver(queue), []
    while True:
        try:
            delivery = await receiver.receive(timeout=1)
        except TimeoutError:
            return found
        found.append(delivery.message.body)
        await delivery.accept()


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [REJECTED, RELEASED, Outcome(OutcomeState.MODIFIED)])
async def test_what_the_target_does_not_accept_stays_at_the_source(outcome: Outcome) -> None:
    async with two(outcome=outcome, grants=1000) as (source, target):
        put(source, "one", "two")
        with moving(source, target, "--timeout", "0.5", "--json") as command:
            assert await ended(command) == 1
            figures = json.loads(command.line())
        assert (figures["moved"], figures["not_accepted"]) == (0, 2)
        assert len(target.received) + target.copies == 2, "a message came round again"
        assert source.outcomes == [RELEASED] * 2
        assert sorted(codec.decode(data).body for data in source.queues[OLD]) == ["one", "two"]
        assert f"not moved: the message was {outcome.state.name.lower()}" in command.errors[0]


async def test_what_is_refused_does_not_hold_up_the_others() -> None:
    async with two(outcome=None, grants=1000) as (source, target):
        put(source, "one")
        with moving(source, target, "--timeout", "1") as command:
            await target.until(lambda: target.received)
            settle(target, REJECTED)
            target.outcome = ACCEPTED
            put(source, "two")
            assert await ended(command) == 1
        assert source.outcomes == [ACCEPTED, RELEASED]
        assert target.bodies == ["one", "two"]
        assert "1 not accepted" in command.errors[-1]


async def test_what_is_too_large_for_the_target_stays_at_the_source() -> None:
    async with two(max_message_size=1000, grants=1000) as (source, target):
        put(source, "one", "x" * 1000, "two")
        with moving(source, target, "--timeout", "0.5", "--json") as command:
            assert await ended(command) == 1
            figures = json.loads(command.line())
        assert (figures["moved"], figures["not_accepted"]) == (2, 1)
        assert source.outcomes.count(ACCEPTED) == 2
        assert target.bodies == ["one", "two"]
        assert "not moved: the message has " in command.errors[0]


async def test_a_target_that_refuses_everything_ends_it() -> None:
    async with two(outcome=REJECTED, grants=1000) as (source, target):
        put(source, *range(400))
        with moving(source, target) as command:
            assert await ended(command) == 1
        assert 100 <= len(target.received) < 400
        await source.until(lambda: not source.engines)
        assert len(source.queues[OLD]) == 400
        assert sum("not moved: " in line for line in command.errors) == 5


async def test_bytes_that_are_no_message_stay_at_the_source() -> None:
    async with two() as (source, target):
        source.queues[OLD].append(b"no message")
        put(source, "one")
        with moving(source, target, "--timeout", "0.5") as command:
            assert await ended(command) == 1
        assert (target.bodies, source.outcomes) == (["one"], [ACCEPTED, RELEASED])


async def test_a_link_that_is_refused_or_detached_is_an_error() -> None:
    async with two(refuses={NEW: proton.Condition("amqp:not-found", "no such queue")}) as (source, target):
        with moving(source, target) as command:
            assert await ended(command) == 5
        assert "no such queue" in command.errors[-2]
    async with two(outcome=None) as (source, target):
        put(source, "one")
        with moving(source, target) as command:
            await target.until(lambda: target.received)
            target.detach(proton.Condition("amqp:resource-deleted", "the queue is gone"))
            assert await ended(command) == 5
        assert "the queue is gone" in command.errors[-2]
        assert command.errors[-1] == "More: haclient help link-closed"
        await source.until(lambda: not source.engines)
        assert len(source.queues[OLD]) == 1


# -- signals and arguments ------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_with_what_is_under_way_settled(number: int) -> None:
    async with two(outcome=None) as (source, target):
        put(source, "one", "two")
        with moving(source, target) as command:
            await target.until(lambda: len(target.received) == 2)
            command.process.send_signal(number)
            put(source, "three")
            settle(target)
            assert await ended(command) == 0, command.errors
        assert source.outcomes.count(ACCEPTED) == 2
        assert [codec.decode(data).body for data in source.queues[OLD]] == ["three"]


@pytest.mark.slow
async def test_a_signal_leaves_what_the_target_does_not_settle() -> None:
    async with two(outcome=None) as (source, target):
        put(source, "one")
        with moving(source, target) as command:
            await target.until(lambda: target.received)
            assert await asyncio.to_thread(command.interrupt) == 1
        assert "1 not settled" in command.errors[-1]
        assert [codec.decode(data).body for data in source.queues[OLD]] == ["one"]


@pytest.mark.slow
def test_the_help_shows_no_pipe_that_loses_messages() -> None:
    assert "haclient receive" not in run("send", "--help").stdout
    assert "haclient move" in run("move", "--help").stdout
    assert "\n  move " in run("--help").stdout


def test_a_signal_ends_the_search_too() -> None:
    with Running("move", "amqp://127.0.0.1:1", OLD, NEW, "-v") as command:
        while not command.errors:
            command.process.poll()
        assert command.interrupt() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([OLD], "write [URL] FROM [URL] TO"),
        (["amqp://a", OLD], "FROM is missing"),
        ([OLD, "amqp://a"], "TO is missing"),
        (["amqp://a", OLD, "amqp://b", NEW, "more"], "write [URL] FROM [URL] TO"),
        (["amqp://a", OLD, ""], "TO is empty"),
        (["amqp://a", OLD, OLD], "FROM and TO are the same"),
        (["amqp://a", OLD, "amqp://a", OLD], "FROM and TO are the same"),
        (["amqp://a", OLD, "amqp://b:port", OLD], "port"),
    ],
)
def test_wrong_arguments_are_exit_code_2(arguments: list[str], reason: str) -> None:
    done = run("move", *arguments, HACLIENT_URL="amqp://127.0.0.1:1")
    assert (done.returncode, reason in done.stderr) == (2, True), done.stderr


@pytest.mark.slow
async def test_the_url_of_the_environment_is_that_of_an_address_without_one() -> None:
    async with two() as (source, target):
        for route in ((OLD, f"amqp://{target.address}", NEW), (f"amqp://{target.address}", OLD, NEW)):
            put(source, "one")
            done = await asyncio.to_thread(
                run, "move", *route, "--timeout", "0.5", HACLIENT_URL=f"amqp://{source.address}"
            )
            assert done.returncode == 0, done.stderr
        assert target.bodies == ["one"]
        assert len(source.queues[OLD]) == 1
