"""The table of docs/brokers.md: messages to Artemis with and without a capability."""

from __future__ import annotations

from pathlib import Path

import pytest

from haclient import aio
from tests.brokers.application import attach, check, received, refused, running, send
from tests.brokers.products.artemis import Artemis
from tests.brokers.products.artemis_config import Kind, Settings
from tests.brokers.topology import Launch
from tests.cli.command import run
from tests.peers.recorded_refusals import ADDRESS, Product, refusal

pytestmark = [pytest.mark.brokers, pytest.mark.timeout(600)]
QUEUE, TOPIC = ("queue",), ("topic",)


async def test_the_capability_decides_whether_accepted_messages_are_there(tmp_path: Path) -> None:
    artemis = Artemis(Kind.SINGLE, Launch(tmp_path), Settings(anycast=False))
    async with running("artemis-single", artemis) as broker:
        url, endpoint = broker.url, broker.members[0].endpoint
        # Unknown addresses.
        await send(url, "bare", 10)
        assert await received(url, "bare") == 0
        await send(url, "made-queue", 10, capabilities=QUEUE)
        assert await received(url, "made-queue", capabilities=QUEUE) == 10
        # An existing queue.
        await send(url, "made-queue", 10)
        assert await received(url, "made-queue") == 10
        await send(url, "made-queue", 10, capabilities=TOPIC)
        assert await received(url, "made-queue") == 0
        # An existing topic.
        await send(url, ADDRESS, 1)
        silent = refusal(Product.ARTEMIS, "a MULTICAST address without a receiver")
        check(silent, await refused(send(url, ADDRESS, 1)), endpoint)
        refusing = refusal(Product.ARTEMIS, "a receiver with the capability queue at a MULTICAST address")
        check(refusing, await refused(attach(url, ADDRESS, receive=True, capabilities=QUEUE)), endpoint)
        await send(url, "bare", 10, capabilities=QUEUE)
        assert await received(url, "bare", capabilities=QUEUE) == 10
        await _a_receiver_that_is_there_gets_what_is_sent(url)
        _the_command_stores_with_the_option(url)
        assert await received(url, "by-command", capabilities=QUEUE) == 1


async def _a_receiver_that_is_there_gets_what_is_sent(url: str) -> None:
    async with await aio.connect(url) as connection:
        receiver = await connection.create_receiver("news")
        sender = await connection.create_sender("news")
        await sender.send("news")
        delivery = await receiver.receive(timeout=60)
        await delivery.accept()


def _the_command_stores_with_the_option(url: str) -> None:
    done = run("send", url, "by-command", "-m", "hello")
    assert "makes a topic" in done.stderr
    done = run("send", url, "by-command", "-m", "hello", "--capability", "queue")
    assert (done.returncode, "makes a topic" in done.stderr) == (0, False)
