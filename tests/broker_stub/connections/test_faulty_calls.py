"""A message is in a queue, its store, its replica and its events for another site, or in none of them.

Any call may fail between reading the id of a message and storing and feeding the message.  The client
then sends every unaccepted message again, and it is stored once.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import proton
import pytest

from broker_stub.connections.incoming_links import AnonymousIncomingLink, IncomingLink
from broker_stub.queueing.message import MessageState
from broker_stub.replication.replica import Phase
from broker_stub.sites.event import Op, decode
from tests.broker_stub.connections.faulty_calls import FaultyCalls
from tests.broker_stub.connections.unconnected import (
    Primary,
    contents,
    contents_after_restart,
    to_anywhere,
    to_exchange,
    to_queue,
)
from tests.broker_stub.queueing.takers import Taker

# More calls than any of the messages here needs.
MOST_CALLS = 1000


@dataclass(frozen=True)
class Way:
    """One way to send a message: the options of its link, and the content of the message."""

    link: Callable[[Primary], IncomingLink | AnonymousIncomingLink]
    annotations: dict[str, Any] | None = None
    taken: bool = True


WAYS = {
    "a message that a consumer waits for": Way(to_queue),
    "a message for later": Way(to_queue, {"x-opt-delivery-delay": 60_000}, taken=False),
    "a message of an exchange": Way(to_exchange),
    "a message that names its queue": Way(to_anywhere),
}


def message(name: str, annotations: dict[str, Any] | None) -> bytes:
    symbols = {proton.symbol(key): value for key, value in (annotations or {}).items()}
    made = proton.Message(
        body=name,
        address="q",
        ttl=3600,
        priority=7,
        group_id="g",
        properties={"_AMQ_DUPL_ID": name},
        annotations=symbols or None,
    )
    return bytes(made.encode())


async def attempt(way: Way, number: int) -> FaultyCalls:
    """Send a message while one call fails, and again until it is accepted; then it is everywhere, once."""
    primary = Primary()
    taker = Taker(primary.queue)
    link = way.link(primary)
    link.start()
    data = message("m", way.annotations)
    faulty = FaultyCalls(number)
    with faulty.within("_take"):
        first = primary.client.send(link, data)
    await primary.quiet()
    where = faulty.names[-1:]
    outcome = primary.client.outcomes.get(first)
    if outcome is None or not outcome.accepted:
        assert faulty.raised, where
        # A rejected message is nowhere, or it is everywhere and known: both cases pass the next lines.
        again = primary.client.send(link, data)
        await primary.quiet()
        assert primary.client.outcomes[again].accepted, where
    if primary.replica.phase is Phase.DROPPED:
        primary.join()
        await primary.quiet()
    other = primary.client.send(link, message("another", None))
    await primary.quiet()
    assert primary.client.outcomes[other].accepted, where
    check(primary, way, taker, where)
    await check_copies(primary, where)
    return faulty


def check(primary: Primary, way: Way, taker: Taker, where: list[str]) -> None:
    queue = primary.queue
    assert queue.depth == 2, where
    assert sorted(number for _, number in queue.duplicates.pairs()) == queue.ids(), where
    assert queue.held == 0, where
    assert len(taker.got) == 1 + way.taken, where
    assert queue.size == sum(len(each.data) for number in queue.ids() if (each := queue.message(number)))
    events = [primary.log.message(number) for number in primary.log.ids()]
    assert all(each is not None and each.state is MessageState.AVAILABLE for each in events), where
    read = [decode(each.data) for each in events if each is not None]
    assert [event.sequence for event in read] == [1, 2], where
    assert [(event.op, event.position) for event in read] == [(Op.ENQUEUE, number) for number in queue.ids()]


async def check_copies(primary: Primary, where: list[str]) -> None:
    own = contents(primary.addresses)
    assert contents(primary.backup.addresses) == own, where
    for store in (primary.store, primary.backup.store):
        assert await contents_after_restart(store) == own, where


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    """Silence the log: each fault is logged with its traceback."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
async def test_whichever_call_fails_a_message_is_lost_nowhere_and_nothing_waits_for_it(
    way: str,
) -> None:
    for number in itertools.count():
        faulty = await attempt(WAYS[way], number)
        if not faulty.raised:
            break
    assert 20 < number < MOST_CALLS
