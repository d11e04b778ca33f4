"""The client names a missing capability where the broker then makes a topic: scripted peers."""

from __future__ import annotations

import logging
from typing import Any

import proton
import pytest

from tests.peers import primary
from tests.peers.apis import API, connected

ARTEMIS = {"product": "apache-activemq-artemis"}


@pytest.fixture
def advice(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="haclient.advice")
    return caplog


def texts(advice: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in advice.records if record.name == "haclient.advice"]


async def test_a_sender_without_a_capability_is_named_once(
    api: API, advice: pytest.LogCaptureFixture
) -> None:
    async with primary(properties=ARTEMIS) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("orders")
        peer.drop()
        await sender.send("after a failover")
        (text,) = texts(advice)
    assert "apache-activemq-artemis makes a topic" in text
    assert "'orders'" in text


@pytest.mark.parametrize("capability", ["queue", "topic"])
async def test_a_sender_with_a_capability_is_not(
    api: API, advice: pytest.LogCaptureFixture, capability: str
) -> None:
    async with primary(properties=ARTEMIS) as peer, connected(api, peer) as connection:
        await connection.create_sender("orders", capabilities=(capability,))
    assert texts(advice) == []


async def test_a_capability_that_configure_writes_counts(api: API, advice: pytest.LogCaptureFixture) -> None:
    def configure(link: proton.Link) -> None:
        link.target.capabilities.put_object(proton.symbol("queue"))

    async with primary(properties=ARTEMIS) as peer, connected(api, peer) as connection:
        await connection.create_sender("orders", configure=configure)
    assert texts(advice) == []


@pytest.mark.parametrize("properties", [{"product": "other"}, {"product": 5}, {}])
async def test_other_brokers_are_not(
    api: API, advice: pytest.LogCaptureFixture, properties: dict[str, Any]
) -> None:
    async with primary(properties=properties) as peer, connected(api, peer) as connection:
        await connection.create_sender("orders")
    assert texts(advice) == []
