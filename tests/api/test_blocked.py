"""A primary in an alarm takes no messages: a send that gives up was not sent, and is not sent later.

The peer acts as RabbitMQ 4.0.5 in a memory or disk alarm (``tests.peers.alarms``).
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import pytest

from haclient import aio
from haclient.errors import SendManyError, SendTimeout
from haclient.events import Blocked, Disconnected, Unblocked
from haclient.testing.peers.listening import url
from tests.certificates import Authority
from tests.peers.alarms import Alarming, AlarmingBroker, until_blocked
from tests.peers.apis import API, connected
from tests.peers.watch import Watch

SHORT = 0.05
REASON = "the primary takes nothing: its session window is closed, as in a memory or disk alarm"


async def _refused(sender: Any, body: object) -> SendTimeout:
    with pytest.raises(SendTimeout) as caught:
        await sender.send(body, timeout=SHORT)
    return caught.value


async def test_the_documented_retry_makes_no_copy(api: API) -> None:
    """Each try of a send in the alarm reports that it was not sent; only the successful try is stored."""
    broker = AlarmingBroker(credit=2)
    async with broker.listening() as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        await sender.send("before", timeout=10)
        broker.set_alarm(True)
        await until_blocked(sender)
        errors = [await _refused(sender, "one") for _ in range(6)]  # more than there is credit for
        broker.set_alarm(False)
        await sender.send("one", timeout=10)
        await sender.send("two", timeout=10)
    assert broker.bodies == ["before", "one", "two"]
    assert {(error.delivered, error.safe_to_retry) for error in errors} == {(False, True)}
    assert (errors[-1].code, str(errors[-1])) == (
        "blocked",
        f"{REASON}. The message was not sent within {SHORT} s",
    )


async def test_within_tls_a_send_that_gives_up_was_not_sent(
    authority: Authority,
) -> None:
    broker, mine = AlarmingBroker(alarm=True), authority.issue("client.test")

    def make() -> Alarming:
        connection = Alarming(broker)
        connection.mechanisms = ("EXTERNAL",)
        return connection

    context = authority.issue("localhost").server_context()
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0, ssl=context)
    where = f"amqps://127.0.0.1:{server.sockets[0].getsockname()[1]}/?tls_server_name=localhost"
    tls = f"tls_ca={authority.file}&tls_cert={mine.chain}&tls_key={mine.key}&sasl_mechanisms=EXTERNAL"
    async with server, aio.connect(f"{where}&{tls}") as connection:
        sender = await connection.create_sender("q")
        error = await _refused(sender, "one")
        assert (error.delivered, error.safe_to_retry) == (False, True)
        assert "the primary takes nothing" in str(error)
        broker.set_alarm(False)
        await sender.send("one", timeout=10)
    assert broker.bodies == ["one"]


async def test_a_connection_that_begins_in_the_alarm_is_no_different(api: API) -> None:
    broker = AlarmingBroker(alarm=True)
    async with broker.listening() as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        error = await _refused(sender, "one")
        assert (error.code, error.delivered) == ("blocked", False)
        waiting = asyncio.ensure_future(sender.send("two", timeout=10))
        await asyncio.sleep(SHORT)
        broker.set_alarm(False)
        await waiting
    assert broker.bodies == ["two"]


async def test_what_is_on_its_way_when_the_alarm_begins_may_have_arrived(api: API) -> None:
    broker = AlarmingBroker()
    async with broker.listening() as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        broker.connections[0].instead.clear()  # it takes messages, and never settles them
        broker.connections[0].is_silent = True
        error = await _refused(sender, "one")
    assert (error.code, error.delivered) == ("send-timeout", None)


async def test_futures_that_are_cancelled_and_send_many_are_withdrawn_too(api: API) -> None:
    broker = AlarmingBroker(credit=10)
    async with broker.listening() as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        broker.set_alarm(True)
        await until_blocked(sender)
        futures = [await sender.submit(f"future {number}") for number in range(4)]
        await asyncio.sleep(SHORT)
        assert futures[1].cancel()
        with pytest.raises(SendManyError) as caught:
            await sender.send_many(["many"] * 20, timeout=SHORT)
        assert [(each.code, each.delivered) for each in caught.value.results] == [("blocked", False)] * 20
        broker.set_alarm(False)
        await sender.flush(timeout=10)
        await sender.send_many(["after"] * 20, timeout=10)
    assert broker.bodies == ["future 0", "future 2", "future 3"] + ["after"] * 20


async def test_a_full_window_and_a_flush_say_it_too(api: API) -> None:
    broker = AlarmingBroker(alarm=True)
    async with broker.listening() as peer, connected(api, peer, window=1) as connection:
        sender = await connection.create_sender("q")
        future = await sender.submit("one")
        with pytest.raises(SendTimeout, match=REASON) as caught:
            await sender.submit("two", timeout=SHORT)
        assert caught.value.code == "blocked"
        with pytest.raises(SendTimeout, match=REASON) as caught:
            await sender.flush(timeout=SHORT)
        assert caught.value.code == "blocked"
        broker.set_alarm(False)
        assert (await future).accepted


async def test_a_message_that_was_sent_before_a_loss_may_have_arrived() -> None:
    """The message was on the wire of the connection before, and never on this one."""
    broker = AlarmingBroker()
    async with broker.listening() as peer, await aio.connect(url(peer, backoff_base=0.001)) as connection:
        sender = await connection.create_sender("q")
        broker.connections[0].is_silent = True
        sent = asyncio.ensure_future(sender.send("one", timeout=1))
        await asyncio.sleep(SHORT)
        broker.set_alarm(True)
        for transport in peer.transports:
            transport.abort()
        with pytest.raises(SendTimeout) as caught:
            await sent
        broker.set_alarm(False)
        await sender.send("two", timeout=10)
    assert (caught.value.code, caught.value.delivered) == ("send-timeout", None)
    assert broker.bodies[-1:] == ["two"]


async def test_an_alarm_is_one_event_and_one_warning_and_its_end_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker, watch = AlarmingBroker(), Watch()
    with caplog.at_level(logging.WARNING, "haclient"):
        async with broker.listening() as peer, await aio.connect(url(peer), on_event=watch) as connection:
            await connection.create_sender("q")
            for alarm in (True, False, True):  # the first alarm is so short that no client notices it
                broker.set_alarm(alarm)
                await asyncio.sleep(0.01)
            await watch.until(Blocked)
            broker.connections[0].send_windows()
            broker.set_alarm(False)
            (unblocked,) = await watch.until(Unblocked)
    assert unblocked.duration >= 1
    assert len(watch.of(Blocked)) == 1
    messages = [record.getMessage().partition(f"{peer.address} ")[2] for record in caplog.records]
    assert messages[0] == "takes no messages: its session window is closed, as in a memory or disk alarm"
    assert messages[1].startswith("takes messages again, after 1.")
    assert len(messages) == 2


async def test_a_loss_ends_it_and_the_next_session_begins_anew() -> None:
    broker, watch = AlarmingBroker(alarm=True), Watch()
    async with broker.listening() as peer, await aio.connect(url(peer, backoff_base=0.001), on_event=watch):
        await watch.until(Blocked)
        for transport in peer.transports:
            transport.abort()
        await watch.until(Disconnected)
        await watch.until(Blocked, count=2)
    assert watch.of(Unblocked) == []


@pytest.mark.parametrize("size", [10, 70_000, 600_000])
async def test_alarms_at_any_moment_lose_and_double_nothing(size: int) -> None:
    """Messages that their error reports as unsent are sent again, as docs/producing.md says; each is stored
    once.
    """
    broker, rng = AlarmingBroker(credit=random.randint(1, 20)), random.Random()
    unknown: list[str] = []

    async def send(sender: aio.Sender, body: str) -> None:
        while True:
            try:
                await sender.send(body, timeout=rng.uniform(0.001, 0.05))
            except SendTimeout as error:
                if error.delivered is None:
                    unknown.append(body)
                    return
            else:
                return

    async def flap() -> None:
        while True:
            broker.set_alarm(not broker.alarm)
            await asyncio.sleep(rng.uniform(0, 0.03))

    async with broker.listening() as peer, await aio.connect(url(peer)) as connection:
        sender = await connection.create_sender("q")
        flapping = asyncio.ensure_future(flap())
        bodies = [f"{number:04}" + "x" * size for number in range(60 if size < 100_000 else 12)]
        async with asyncio.timeout(20):
            await asyncio.gather(*(send(sender, body) for body in bodies))
        flapping.cancel()
        broker.set_alarm(False)
        await sender.send("last", timeout=10)
    stored = broker.bodies[:-1]
    assert len(stored) == len(set(stored))
    assert set(bodies) - set(unknown) <= set(stored) <= set(bodies)


async def test_after_an_alarm_a_peer_may_drain_and_grant_anew() -> None:
    broker = AlarmingBroker(credit=5)
    async with broker.listening() as peer, await aio.connect(url(peer)) as connection:
        sender = await connection.create_sender("q")
        broker.set_alarm(True)
        await until_blocked(sender)
        for _ in range(3):
            await _refused(sender, "one")
        broker.set_alarm(False)
        broker.connections[0].grant_all(drain=True)
        await asyncio.sleep(0)
        broker.connections[0].grant_all()
        for number in range(12):
            await sender.send(number, timeout=10)
    assert broker.bodies == list(range(12))
