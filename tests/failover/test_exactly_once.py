"""10,000 numbered messages through a connection that is cut 20 times at random places."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import haclient
from haclient import Message, aio
from haclient.errors import DeliveryUnknown, ReceiveTimeout, StaleDelivery
from haclient.events import Disconnected, Event
from tests.failover.forwarder import Cuts, Forwarder
from tests.members import Member, Members

COUNT = 10_000
CUTS = 20
QUEUE = "numbers"
# Deliveries that a consumer holds before it accepts the first of them.
HELD = 10
# With this subject 10,000 messages are 1.6 MB. So all connections with a cut within this range are cut before
# the end, some of them before a window is settled.
SUBJECT = "numbered " * 12
SPAN = 60_000
# A broker that serves at once needs no pause; the default would only make the test longer.
OPTIONS = "backoff_base=0.002&backoff_max=0.02"
# Leaves enough messages after each cut for all later cuts, however many are unsettled.
WINDOW = "window=400"
APIS = pytest.mark.parametrize("api", ["asyncio", "blocking"])


def log(text: str) -> None:
    """Print a line that pytest shows with a failure."""
    print(text)  # noqa: T201 - pytest shows it when the test fails


@contextmanager
def cut_connections(member: Member, seed: int) -> Iterator[tuple[Forwarder, Cuts]]:
    """Open a route that cuts the member's connections; the printed seed reproduces a failure."""
    log(f"seed {seed}")
    cuts = Cuts(random.Random(seed), CUTS, SPAN)
    with Forwarder(member.address, cuts=cuts) as forwarder:
        yield forwarder, cuts


@pytest.fixture
def member(members: Members) -> Member:
    return members.start("primary", role="primary", log_level="warning")


def send_all(api: str, url: str, events: list[Event]) -> list[BaseException | None]:
    """Send all numbers at full speed; return the error of each, ``None`` if it was accepted."""
    return _send_all(url, events) if api == "blocking" else asyncio.run(_send_all_aio(url, events))


def _send_all(url: str, events: list[Event]) -> list[BaseException | None]:
    with haclient.connect(url, on_event=events.append) as connection:
        sender = connection.create_sender(QUEUE)
        futures = [sender.submit(Message(body=number, subject=SUBJECT)) for number in range(COUNT)]
        sender.flush(timeout=60)
        assert sender.unsettled == 0
        return [future.exception(timeout=0) for future in futures]


async def _send_all_aio(url: str, events: list[Event]) -> list[BaseException | None]:
    async with aio.connect(url, on_event=events.append) as connection:
        sender = await connection.create_sender(QUEUE)
        futures = [await sender.submit(Message(body=number, subject=SUBJECT)) for number in range(COUNT)]
        await sender.flush(timeout=60)
        assert sender.unsettled == 0
        assert all(future.done() for future in futures)
        return [future.exception() for future in futures]


def lost(events: list[Event]) -> int:
    return sum(isinstance(event, Disconnected) for event in events)


@pytest.mark.slow
@APIS
def test_every_number_arrives_exactly_once_and_in_order_through_twenty_cuts(api: str, member: Member) -> None:
    seed, events = random.randrange(2**32), list[Event]()
    with cut_connections(member, seed) as (forwarder, cuts):
        errors = send_all(api, f"amqp://{forwarder.address}?{OPTIONS}&{WINDOW}", events)
    assert errors == [None] * COUNT
    assert member.bodies(QUEUE) == list(range(COUNT))
    assert len(cuts.established) >= CUTS
    assert lost(events) >= CUTS


@pytest.mark.slow
@APIS
def test_without_duplicate_detection_every_number_arrives_at_least_once(api: str, member: Member) -> None:
    seed, events = random.randrange(2**32), list[Event]()
    with cut_connections(member, seed) as (forwarder, cuts):
        url = f"amqp://{forwarder.address}?{OPTIONS}&{WINDOW}&duplicate_detection=false"
        errors = send_all(api, url, events)
    arrived = member.bodies(QUEUE)
    assert errors == [None] * COUNT
    assert set(arrived) == set(range(COUNT))
    assert first_copies(arrived) == list(range(COUNT))
    assert lost(events) >= CUTS
    log(f"{len(arrived) - COUNT} second copies in {len(cuts.made)} cuts")


@pytest.mark.slow
@APIS
def test_at_most_once_never_arrives_twice_and_every_unknown_number_is_reported(
    api: str, member: Member
) -> None:
    seed, events = random.randrange(2**32), list[Event]()
    with cut_connections(member, seed) as (forwarder, _):
        # Without ids, so that the client itself must avoid copies, and not the broker drop them.
        options = f"{OPTIONS}&window=100&delivery=at-most-once&duplicate_detection=false"
        errors = send_all(api, f"amqp://{forwarder.address}?{options}", events)
    arrived = Counter(member.bodies(QUEUE))
    accepted = {number for number, error in enumerate(errors) if error is None}
    unknown = {number for number, error in enumerate(errors) if isinstance(error, DeliveryUnknown)}
    assert len(accepted) + len(unknown) == COUNT
    assert set(arrived.values()) == {1}
    assert accepted <= arrived.keys() <= accepted | unknown
    assert unknown
    assert lost(events) >= CUTS
    assert not any(error.safe_to_retry for error in errors if isinstance(error, DeliveryUnknown))


def first_copies(numbers: list[int]) -> list[int]:
    """Return the numbers without repetitions."""
    return list(dict.fromkeys(numbers))


class Consumption:
    """The deliveries of a consumer, and the results of its settlements.

    :ivar held: deliveries that the application still processes; it settles them later, in order.
    """

    def __init__(self) -> None:
        self.seen: Counter[int] = Counter()
        self.held: deque[Any] = deque()
        self.stale = 0

    @property
    def patience(self) -> float:
        """Wait: messages accepted just before the last cut are redelivered within moments."""
        return 0.5 if len(self.seen) == COUNT and not self.held else 30

    def take(self, delivery: Any) -> None:
        """Record a delivery."""
        self.seen[delivery.message.body] += 1
        self.held.append(delivery)

    def finished(self) -> Iterator[Any]:
        """Return the deliveries to accept now: all except the latest, and all at the end."""
        keep = 0 if len(self.seen) == COUNT else HELD
        while len(self.held) > keep:
            yield self.held.popleft()


async def fill(member: Member) -> None:
    async with aio.connect(member.url) as connection:
        sender = await connection.create_sender(QUEUE)
        for number in range(COUNT):
            await sender.submit(Message(body=number, subject=SUBJECT))
        await sender.flush(timeout=60)


@pytest.mark.slow
@APIS
def test_a_consumer_sees_every_number_through_twenty_cuts_and_leaves_the_queue_empty(
    api: str, member: Member
) -> None:
    seed, events = random.randrange(2**32), list[Event]()
    asyncio.run(fill(member))
    with cut_connections(member, seed) as (forwarder, cuts):
        url = f"amqp://{forwarder.address}?{OPTIONS}"
        found = consume(url, events) if api == "blocking" else asyncio.run(consume_aio(url, events))
    assert set(found.seen) == set(range(COUNT))
    assert found.stale > 0
    assert member.depth(QUEUE) == 0
    assert len(cuts.established) >= CUTS
    assert lost(events) >= CUTS
    log(f"{found.seen.total() - COUNT} came again, {found.stale} were stale")


def consume(url: str, events: list[Event]) -> Consumption:
    found = Consumption()
    with haclient.connect(url, on_event=events.append) as connection:
        receiver = connection.create_receiver(QUEUE)
        with suppress(ReceiveTimeout):
            while True:
                found.take(receiver.receive(timeout=found.patience))
                for delivery in found.finished():
                    try:
                        delivery.accept()
                    except StaleDelivery:
                        found.stale += 1
    return found


async def consume_aio(url: str, events: list[Event]) -> Consumption:
    found = Consumption()
    async with aio.connect(url, on_event=events.append) as connection:
        receiver = await connection.create_receiver(QUEUE)
        with suppress(ReceiveTimeout):
            while True:
                found.take(await receiver.receive(timeout=found.patience))
                for delivery in found.finished():
                    try:
                        await delivery.accept()
                    except StaleDelivery:
                        found.stale += 1
    return found
