"""A field of an odd type in what a peer sends fails that attempt at most, and never the connection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import pytest
from proton import symbol

from haclient import State, aio
from haclient.errors import LinkRefused
from tests.peers import primary, url
from tests.peers.odd import ATTACH, CLOSE, OPEN, VALUES, Fields, error, odd_peer

OPTIONS = {"attempt_timeout": 2, "startup_deadline": 10, "backoff_base": 0.001, "backoff_max": 0.01}
PROPERTIES = [
    "product",
    "version",
    "haclient:generation",
    "haclient:cluster",
    "failover-server-list",
    "amqp:connection-establishment-failed",
]
INFO = ["network-host", "hostname", "scheme", "port", "retry-after"]
odd = pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())


async def reaches_the_primary(
    caplog: pytest.LogCaptureFixture, changes: dict[int, Fields], closes_after: int = ATTACH
) -> None:
    """Meet the odd peer before a good one, which is used in the end."""
    async with odd_peer(changes, closes_after=closes_after) as strange, primary() as good:
        with caplog.at_level(logging.ERROR):
            async with aio.connect(url(strange, good, **OPTIONS)) as connection, asyncio.timeout(30):
                with contextlib.suppress(LinkRefused):
                    await connection.create_sender("q")
                receiver = await connection.create_receiver("q")
                assert connection.state is State.CONNECTED
                good.put("q", "one")
                assert (await receiver.receive()).message.body == "one"
    assert [record.getMessage() for record in caplog.records] == []


@odd
@pytest.mark.parametrize("index", range(10))
async def test_each_field_of_an_open(caplog: pytest.LogCaptureFixture, index: int, value: Any) -> None:
    await reaches_the_primary(caplog, {OPEN: {index: value}})


@odd
@pytest.mark.parametrize("key", PROPERTIES)
async def test_each_property_of_an_open_that_the_client_reads(
    caplog: pytest.LogCaptureFixture, key: str, value: Any
) -> None:
    await reaches_the_primary(caplog, {OPEN: {9: {symbol(key): value}}})


@odd
@pytest.mark.parametrize("key", INFO)
async def test_each_key_of_a_pushed_member(caplog: pytest.LogCaptureFixture, key: str, value: Any) -> None:
    entry = {symbol("network-host"): "127.0.0.1", symbol("port"): 1, symbol(key): value}
    await reaches_the_primary(caplog, {OPEN: {9: {symbol("failover-server-list"): [entry]}}})


@odd
@pytest.mark.parametrize("index", range(14))
async def test_each_field_of_an_attach(caplog: pytest.LogCaptureFixture, index: int, value: Any) -> None:
    await reaches_the_primary(caplog, {ATTACH: {index: value}})


@odd
async def test_each_generation_in_an_attach(caplog: pytest.LogCaptureFixture, value: Any) -> None:
    await reaches_the_primary(caplog, {ATTACH: {13: {symbol("haclient:generation"): value}}})


@odd
@pytest.mark.parametrize("after", [OPEN, ATTACH], ids=["of an attempt", "of a connection"])
async def test_the_error_of_a_close(caplog: pytest.LogCaptureFixture, after: int, value: Any) -> None:
    await reaches_the_primary(caplog, {CLOSE: {0: value}}, closes_after=after)


@odd
@pytest.mark.parametrize("after", [OPEN, ATTACH], ids=["of an attempt", "of a connection"])
@pytest.mark.parametrize("field", ["condition", "description", "info"])
async def test_each_field_of_the_error_of_a_close(
    caplog: pytest.LogCaptureFixture, after: int, field: str, value: Any
) -> None:
    await reaches_the_primary(caplog, {CLOSE: {0: error(**{field: value})}}, closes_after=after)


@odd
@pytest.mark.parametrize("key", INFO)
async def test_each_key_of_a_redirect(caplog: pytest.LogCaptureFixture, key: str, value: Any) -> None:
    info = {symbol("network-host"): "127.0.0.1", symbol("port"): 1, symbol(key): value}
    changes = {CLOSE: {0: error(symbol("amqp:connection:redirect"), None, info)}}
    await reaches_the_primary(caplog, changes, closes_after=OPEN)
