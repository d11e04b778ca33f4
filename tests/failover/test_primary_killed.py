"""Two real members; SIGKILL ends the primary while messages flow, and the other one takes over."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

import haclient
from haclient import Message, aio
from haclient.cluster_url.endpoint import Endpoint
from haclient.errors import AuthenticationFailed, StaleDelivery
from haclient.events import Event, GaveUp, Reconnected, Redirected
from tests.failover.waiting import next_of
from tests.members import Member, Members

QUEUE = "orders"
OPTIONS = "backoff_base=0.01&backoff_max=0.1"
# With this many messages through, the stream is in full flow.
SOME = 300
# The body of the last message.
END = "the end"


def take_over(old: Member, new: Member) -> None:
    """Kill the primary, and promote the other member."""
    old.kill()
    new.promote()


def hand_over(old: Member, new: Member) -> None:
    """Promote the other member; the primary steps down and redirects to it."""
    new.promote()
    old.demote(new)


class Stream:
    """A stream of numbers: the settled ones, and the received ones."""

    def __init__(self) -> None:
        self.settled: list[int] = []
        self.came: list[int] = []
        self._over = False
        self._changed = threading.Condition()

    def numbers(self) -> Iterator[int]:
        """Yield numbers until the stream ends."""
        return itertools.takewhile(lambda _: not self._over, itertools.count())

    def note(self, book: list[int], number: int) -> None:
        with self._changed:
            book.append(number)
            self._changed.notify_all()

    def wait(self, true: Callable[[], bool]) -> None:
        """Wait until a condition of the stream is true."""
        with self._changed:
            assert self._changed.wait_for(true, timeout=30)

    def end(self) -> None:
        self._over = True

    # -- the story ----------------------------------------------------------------------------

    def watch(self, old: Member, new: Member, change: Callable[[Member, Member], object] = take_over) -> int:
        """Change the primary while messages flow, and wait until the stream flows again.

        :returns: a number above which all were settled by the new primary.
        """
        flowing = len(self.settled) + SOME
        self.wait(lambda: len(self.settled) > flowing and len(self.came) > SOME)
        change(old, new)
        last = len(self.settled)
        self.wait(lambda: len(self.settled) > last + SOME and self.came[-1] > last + SOME)
        return last


def produce(connection: haclient.Connection, stream: Stream) -> None:
    sender = connection.create_sender(QUEUE)
    for number in stream.numbers():
        assert sender.send(Message(body=number), timeout=30).accepted
        stream.note(stream.settled, number)
    sender.send(Message(body=END), timeout=30)


def consume(connection: haclient.Connection, stream: Stream) -> None:
    receiver = connection.create_receiver(QUEUE, credit=10)
    while True:
        delivery = receiver.receive(timeout=30)
        with suppress(StaleDelivery):
            delivery.accept()
        if delivery.message.body == END:
            return
        stream.note(stream.came, delivery.message.body)


async def produce_aio(connection: aio.Connection, stream: Stream) -> None:
    sender = await connection.create_sender(QUEUE)
    for number in stream.numbers():
        assert (await sender.send(Message(body=number), timeout=30)).accepted
        stream.note(stream.settled, number)
    await sender.send(Message(body=END), timeout=30)


async def consume_aio(connection: aio.Connection, stream: Stream) -> None:
    receiver = await connection.create_receiver(QUEUE, credit=10)
    while True:
        delivery = await receiver.receive(timeout=30)
        with suppress(StaleDelivery):
            await delivery.accept()
        if delivery.message.body == END:
            return
        stream.note(stream.came, delivery.message.body)


def run_blocking(url: str, story: Callable[[Stream], int], on_event: Callable[[Event], object]) -> Stream:
    stream = Stream()
    with haclient.ConnectionFactory(url, on_event=on_event) as factory:
        connections = [factory.connect() for _ in range(2)]
        threads = [
            threading.Thread(target=half, args=(connection, stream))
            for half, connection in zip((produce, consume), connections, strict=True)
        ]
        for thread in threads:
            thread.start()
        try:
            story(stream)
        finally:
            stream.end()
            for thread in threads:
                thread.join(60)
    return stream


async def run_asyncio(
    url: str, story: Callable[[Stream], int], on_event: Callable[[Event], object]
) -> Stream:
    stream = Stream()
    async with (
        aio.ConnectionFactory(url, on_event=on_event) as factory,
        factory.connect() as producing,
        factory.connect() as consuming,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(produce_aio(producing, stream))
        group.create_task(consume_aio(consuming, stream))
        try:
            await asyncio.to_thread(story, stream)
        finally:
            stream.end()
    return stream


def run(api: str, url: str, story: Callable[[Stream], int], on_event: Callable[[Event], object]) -> Stream:
    if api == "blocking":
        return run_blocking(url, story, on_event)
    return asyncio.run(run_asyncio(url, story, on_event))


def reconnections(events: list[Event]) -> list[Endpoint]:
    return [event.endpoint for event in events if isinstance(event, Reconnected)]


@pytest.mark.parametrize("api", ["asyncio", "blocking"])
def test_producer_and_consumer_go_on_when_the_primary_is_killed_in_mid_stream(
    api: str, members: Members
) -> None:
    primary, passive = members.pair()
    events, last = list[Event](), 0

    def story(stream: Stream) -> int:
        nonlocal last
        last = stream.watch(primary, passive)
        return last

    stream = run(api, f"amqp://{primary.address},{passive.address}?{OPTIONS}", story, events.append)
    # Messages that the dead primary had settled and not delivered are lost: members keep nothing yet.
    assert stream.settled == list(range(len(stream.settled)))
    assert set(range(last + 1, len(stream.settled))) <= set(stream.came)
    assert reconnections(events) == [passive.endpoint] * 2
    assert passive.depth(QUEUE) == 0


@pytest.mark.slow
@pytest.mark.parametrize("api", ["asyncio", "blocking"])
def test_a_killed_member_comes_back_as_backup_and_takes_over_in_its_turn(api: str, members: Members) -> None:
    first, second = members.pair()
    events, last = list[Event](), 0

    def story(stream: Stream) -> int:
        nonlocal last
        stream.watch(first, second)
        first.start(role="passive", primary=second.url, generation=2)
        last = stream.watch(second, first)
        return last

    stream = run(api, f"amqp://{first.address},{second.address}?{OPTIONS}", story, events.append)
    assert stream.settled == list(range(len(stream.settled)))
    assert set(range(last + 1, len(stream.settled))) <= set(stream.came)
    assert reconnections(events) == [second.endpoint] * 2 + [first.endpoint] * 2
    assert first.status().generation == 3


@pytest.mark.parametrize("credentials", [None, haclient.Credentials(user="app", password="its password")])
async def test_the_redirect_of_a_passive_member_is_followed_to_a_primary_that_is_not_listed(
    credentials: haclient.Credentials | None, members: Members
) -> None:
    primary, passive = members.pair(advertised=credentials is not None, users={"app": "its password"})
    events = list[Event]()
    # No member can vouch for another one: an option allows credentials for hosts that the URL does not list.
    url = f"amqp://{passive.address}?{OPTIONS}{'&redirects=any' if credentials else ''}"
    async with aio.connect(url, credentials=credentials, on_event=events.append) as connection:
        sender = await connection.create_sender(QUEUE)
        await sender.send(Message(body=1), timeout=10)
        assert connection.endpoint == primary.endpoint
        assert connection.generation == 1
    (redirected,) = [event for event in events if isinstance(event, Redirected)]
    assert (redirected.by, redirected.target) == (passive.endpoint, primary.endpoint)
    assert redirected.followed
    assert await asyncio.to_thread(primary.bodies, QUEUE) == [1]


async def test_credentials_do_not_go_to_a_redirect_target_that_no_member_vouches_for(
    members: Members,
) -> None:
    users = {"app": "its password"}
    primary = members.start("primary", role="primary", users=users, listen="127.0.0.2:0")
    passive = members.start("passive", users=users, primary=primary.url, generation=1)
    events = list[Event]()
    with pytest.raises(haclient.errors.ConnectionGaveUp, match="credentials must not go there"):
        await aio.connect(
            f"amqp://app:its%20password@{passive.address}?{OPTIONS}&max_attempts=2&standby=none",
            on_event=events.append,
        )
    assert not any(event.followed for event in events if isinstance(event, Redirected))


def test_the_blocking_api_follows_a_redirect_too(members: Members) -> None:
    primary, passive = members.pair()
    with haclient.connect(f"amqp://{passive.address}") as connection:
        assert connection.create_sender(QUEUE).send(Message(body=1), timeout=10).accepted
        assert connection.endpoint == primary.endpoint


@pytest.mark.slow
@pytest.mark.parametrize("api", ["asyncio", "blocking"])
def test_producer_and_consumer_follow_a_primary_that_is_demoted_to_its_successor(
    api: str, members: Members
) -> None:
    first, second = members.pair()
    events, last = list[Event](), 0

    def story(stream: Stream) -> int:
        nonlocal last
        last = stream.watch(first, second, hand_over)
        return last

    # The successor is in no list: only the redirect in the primary's Close leads there.
    stream = run(api, f"amqp://{first.address}?{OPTIONS}", story, events.append)
    assert stream.settled == list(range(len(stream.settled)))
    assert set(range(last + 1, len(stream.settled))) <= set(stream.came)
    assert reconnections(events) == [second.endpoint] * 2
    assert all(event.followed for event in events if isinstance(event, Redirected))


async def test_a_password_that_the_new_primary_does_not_take_ends_the_connection_and_its_sends(
    members: Members,
) -> None:
    primary = members.start("primary", role="primary", users={"app": "its password"}, anonymous=False)
    passive = members.start("passive", users={"app": "another"}, anonymous=False, generation=1)
    url = f"amqp://app:its%20password@{primary.address},{passive.address}?{OPTIONS}"
    async with aio.connect(url, refusal_timeout=1) as connection:
        sender, live = await connection.create_sender(QUEUE), connection.events()
        await asyncio.to_thread(primary.kill)
        waiting = await sender.submit(Message(body=1))
        await asyncio.to_thread(passive.promote)
        await next_of(live, GaveUp)
        with pytest.raises(AuthenticationFailed) as raised:
            await waiting
        assert raised.value.endpoint == passive.endpoint
        assert raised.value.delivered is not True
        assert connection.state is haclient.State.FAILED
        with pytest.raises(AuthenticationFailed):
            await sender.send(Message(body=2))
