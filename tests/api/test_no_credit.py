"""If a primary gives a sender no credit, the error says so, instead of that the message was not settled."""

from __future__ import annotations

import asyncio

import pytest

from haclient import Message
from haclient.errors import LinkTimeout, SendTimeout
from haclient.events import Disconnected
from tests.cli.command import run
from tests.peers import primary, url
from tests.peers.apis import API, connected
from tests.peers.watch import Watch

SHORT = 0.05
QUESTION = "the primary gives no credit: is the queue full?"
FAST = {"backoff_base": 0.001, "backoff_max": 0.01}


async def test_a_send_without_credit_was_not_sent(api: API) -> None:
    async with primary(grants=0) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        with pytest.raises(SendTimeout) as caught:
            await sender.send(Message(body="one"), timeout=SHORT)
        assert str(caught.value) == f"{QUESTION} The message was not sent within {SHORT} s"
        assert caught.value.code == "no-credit"
        assert (caught.value.delivered, caught.value.safe_to_retry) == (False, True)
        assert caught.value.connection_usable
        peer.grant(10)
        assert (await sender.send(Message(body="two"), timeout=10)).accepted
    assert peer.bodies == ["two"]


async def test_credit_that_runs_out_is_said_of_the_message_that_it_misses(api: API) -> None:
    """The first message is on the wire and unsettled, which is another error."""
    async with primary(grants=1, outcome=None) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        with pytest.raises(SendTimeout, match="the primary did not settle the message") as caught:
            await sender.send(Message(body="one"), timeout=1)
        assert (caught.value.code, caught.value.delivered) == ("send-timeout", None)
        with pytest.raises(SendTimeout, match="gives no credit") as caught:
            await sender.send(Message(body="two"), timeout=SHORT)
        assert (caught.value.code, caught.value.delivered) == ("no-credit", False)


async def test_a_full_window_and_a_flush_say_it_too(api: API) -> None:
    async with primary(grants=0) as peer, connected(api, peer, window=1) as connection:
        sender = await connection.create_sender("q")
        future = await sender.submit(Message(body="one"))
        with pytest.raises(SendTimeout) as caught:
            await sender.submit(Message(body="two"), timeout=SHORT)
        assert str(caught.value) == f"the window of 1 messages stayed full for {SHORT} s: {QUESTION}"
        assert caught.value.code == "no-credit"
        with pytest.raises(SendTimeout) as caught:
            await sender.flush(timeout=SHORT)
        assert str(caught.value) == f"1 messages are not settled after {SHORT} s: {QUESTION}"
        assert caught.value.code == "no-credit"
        peer.grant(1)
        assert (await future).accepted


async def test_without_a_primary_it_is_another_error(api: API) -> None:
    watch = Watch()
    async with primary() as peer:
        connection = await api.connect(url(peer, **FAST), on_event=watch)
        sender = await connection.create_sender("q")
    await watch.until(Disconnected)
    with pytest.raises(SendTimeout, match="the connection has no primary") as caught:
        await sender.send(Message(body="one"), timeout=1)
    assert (caught.value.code, caught.value.delivered) == ("no-primary", False)
    with pytest.raises(LinkTimeout, match="the connection has no primary") as late:
        await connection.create_sender("q", timeout=SHORT)
    assert late.value.code == "no-primary"
    await connection.close()


async def test_the_command_says_it_and_ends_with_1() -> None:
    async with primary(grants=0) as peer:
        text = url(peer, window=1, send_timeout=0.2)
        done = await asyncio.to_thread(run, "send", text, "q", "-m", "x", "-n", "2")
    assert done.returncode == 1
    assert QUESTION in done.stderr
    assert done.stderr.endswith("More: haclient help no-credit\n")
