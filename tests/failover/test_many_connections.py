"""Thousands of simultaneous connections with heartbeats, from this process to one member process."""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from collections.abc import Iterator

import pytest

from haclient import Message, aio
from haclient.core.connection import State
from haclient.events import Disconnected, Event
from tests.members import Members

# 5,000 take half a minute: ``make soak-connections``.
CONNECTIONS = [1_000, pytest.param(5_000, marks=pytest.mark.soak)]
# Sockets of the test runner, the event loop and pipes.
SPARE = 1_000
# A peer that is silent for this long is lost, so each side sends at least once in this time on each
# connection.
# Long enough for a busy machine that stops both processes for some seconds.
HEARTBEAT = 10.0
INTERVALS = 1.5


@pytest.fixture
def many_files(count: int) -> Iterator[None]:
    """Allow that many sockets in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + SPARE
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.fail(f"this test needs {needed} open files, the hard limit is {hard}: raise it (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Watch:
    """Counts events, and signals when a connection is lost."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.lost: list[Disconnected] = []
        self.first_loss = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def put(self, event: Event) -> None:
        self.counts[type(event).__name__] += 1
        if isinstance(event, Disconnected):
            self.lost.append(event)
            self._loop.call_soon_threadsafe(self.first_loss.set)


@pytest.mark.slow
@pytest.mark.parametrize("count", CONNECTIONS)
async def test_the_connections_of_one_process_stay_up_and_heartbeat(
    members: Members, count: int, many_files: None
) -> None:
    # They connect at once on purpose: slots for all would take as long as a busy machine's rate demands.
    member = members.start(
        "primary", role="primary", heartbeat=HEARTBEAT, log_level="warning", accept_rate="unlimited"
    )
    watch = Watch()
    url = f"amqp://{member.address}?heartbeat={HEARTBEAT}"
    async with aio.ConnectionFactory(url, on_event=watch.put) as factory:
        connections = await asyncio.gather(*(factory.connect() for _ in range(count)))
        # Time must pass here: the peer drops a client that sends no heartbeat meanwhile.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(HEARTBEAT * INTERVALS):
                await watch.first_loss.wait()
        status = await asyncio.to_thread(member.status)
        assert status.connections == count + 1  # the status request has a connection too
        assert watch.lost == []
        assert {connection.state for connection in connections} == {State.CONNECTED}
        sender = await connections[-1].create_sender("still here")
        assert (await sender.send(Message(body="yes"), timeout=10)).accepted
    assert watch.counts["Connected"] == count
    assert watch.counts["Disconnected"] == 0
