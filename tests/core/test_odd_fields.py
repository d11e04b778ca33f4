"""A field of an unexpected type fails one attempt at most, and never the connection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import pytest
from proton import symbol, ulong

from haclient import State, aio
from haclient.errors import LinkRefused
from tests.peers import primary, url
from tests.peers.odd import ATTACH, CLOSE, OPEN, VALUES, Fields, error, odd_peer

OPTIONS = {"attempt_timeout": 2, "startup_deadline": 10, "backoff_base": 0.001, "backoff_max": 0.01}
PROPERTIES = [
    "product",
    "version",
    "haclient:generation",
    "haclient:ids-live-with-messages",
    "haclient:cluster",
    "haclient:connections",
    "haclient:setup-rate",
    "failover-server-list",
    "amqp:connection-establishment-failed",
]
INFO = ["network-host", "hostname", "scheme", "port", "retry-after"]


async def reach_the_primary(
    caplog: pytest.LogCaptureFixture,
    changes: Callable[[Any], dict[int, Fields]],
    closes_after: int = ATTACH,
) -> None:
    """Meet an odd peer before a good one, which is used in the end; once for each value, all at once."""
    with caplog.at_level(logging.ERROR):
        async with asyncio.TaskGroup() as cases:
            for name, value in VALUES.items():
                cases.create_task(_one(name, changes(value), closes_after))
    assert [record.getMessage() for record in caplog.records] == []


async def _one(name: str, changes: dict[int, Fields], closes_after: int) -> None:
    try:
        async with (
            asyncio.timeout(60),
            odd_peer(changes, closes_after=closes_after) as strange,
            primary() as good,
            aio.connect(url(strange, good, **OPTIONS)) as connection,
        ):
            with contextlib.suppress(LinkRefused):
                await connection.create_sender("q")
            receiver = await connection.create_receiver("q")
            assert connection.state is State.CONNECTED
            good.put("q", "one")
            assert (await receiver.receive()).message.body == "one"
    except BaseException as error:
        error.add_note(f"where the value is {name}")
        raise


@pytest.mark.parametrize("index", range(10))
async def test_each_field_of_an_open(caplog: pytest.LogCaptureFixture, index: int) -> None:
    await reach_the_primary(caplog, lambda value: {OPEN: {index: value}})


@pytest.mark.parametrize("key", PROPERTIES)
async def test_each_property_of_an_open_that_the_client_reads(
    caplog: pytest.LogCaptureFixture, key: str
) -> None:
    # the client spreads its attempts over their quotient, in seconds
    both = {symbol("haclient:connections"): ulong(20), symbol("haclient:setup-rate"): 200.0}
    await reach_the_primary(caplog, lambda value: {OPEN: {9: {**both, symbol(key): value}}})


@pytest.mark.parametrize("key", INFO)
async def test_each_key_of_a_pushed_member(caplog: pytest.LogCaptureFixture, key: str) -> None:
    member = {symbol("network-host"): "127.0.0.1", symbol("port"): 1}
    await reach_the_primary(
        caplog,
        lambda value: {OPEN: {9: {symbol("failover-server-list"): [{**member, symbol(key): value}]}}},
    )


@pytest.mark.parametrize("index", range(14))
async def test_each_field_of_an_attach(caplog: pytest.LogCaptureFixture, index: int) -> None:
    await reach_the_primary(caplog, lambda value: {ATTACH: {index: value}})


async def test_each_generation_in_an_attach(caplog: pytest.LogCaptureFixture) -> None:
    await reach_the_primary(caplog, lambda value: {ATTACH: {13: {symbol("haclient:generation"): value}}})


@pytest.mark.parametrize("after", [OPEN, ATTACH], ids=["of an attempt", "of a connection"])
async def test_the_error_of_a_close(caplog: pytest.LogCaptureFixture, after: int) -> None:
    await reach_the_primary(caplog, lambda value: {CLOSE: {0: value}}, closes_after=after)


@pytest.mark.parametrize("after", [OPEN, ATTACH], ids=["of an attempt", "of a connection"])
@pytest.mark.parametrize("field", ["condition", "description", "info"])
async def test_each_field_of_the_error_of_a_close(
    caplog: pytest.LogCaptureFixture, after: int, field: str
) -> None:
    await reach_the_primary(caplog, lambda value: {CLOSE: {0: error(**{field: value})}}, closes_after=after)


@pytest.mark.parametrize("key", INFO)
async def test_each_key_of_a_redirect(caplog: pytest.LogCaptureFixture, key: str) -> None:
    target = {symbol("network-host"): "127.0.0.1", symbol("port"): 1}
    await reach_the_primary(
        caplog,
        lambda value: {
            CLOSE: {0: error(symbol("amqp:connection:redirect"), None, {**target, symbol(key): value})}
        },
        closes_after=OPEN,
    )
