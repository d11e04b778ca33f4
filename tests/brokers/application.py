"""One running cluster for a test, or the reason to skip it; and the steps of an application on haclient."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from haclient import aio
from haclient.errors import HaclientError, ReceiveTimeout
from tests.brokers import clusters
from tests.brokers.topology import BrokerCluster
from tests.peers.recorded_refusals import Refusal

C = TypeVar("C", bound=BrokerCluster)
SEND_SECONDS = 10.0
# Seconds. An accepted message that is stored arrives far sooner.
_RECEIVE_SECONDS = 2.0
BODY = "x" * 1000


@asynccontextmanager
async def running(name: str, cluster: C) -> AsyncIterator[C]:
    """Start a cluster, and stop it at the end of the context.

    :param name: the cluster's name in ``clusters.NAMES``.
    """
    if reason := clusters.missing(name):
        pytest.skip(reason)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()


async def refused(call: Awaitable[Any]) -> tuple[str, str]:
    """Return the class of the error and its first line, or two empty strings without an error."""
    try:
        await call
    except HaclientError as error:
        return type(error).__name__, str(error).splitlines()[0]
    return "", ""


def check(refusal: Refusal, seen: tuple[str, str], endpoint: object) -> None:
    """Check that a broker refused as recorded, ignoring numbers."""
    shown = refusal.shown.replace("{endpoint}", str(endpoint)).replace("{timeout}", f"{SEND_SECONDS:g}")
    assert (seen[0], _without_numbers(seen[1])) == (refusal.error or "", _without_numbers(shown))


def _without_numbers(text: str) -> str:
    return re.sub(r"[\d.]+", "#", text)


async def connect(url: str) -> None:
    """Connect and close."""
    async with await aio.connect(url):
        pass


async def attach(url: str, address: str, *, receive: bool = False, **how: Any) -> None:
    """Attach a link and close."""
    async with await aio.connect(url) as connection:
        await (connection.create_receiver if receive else connection.create_sender)(address, **how)


async def send(url: str, address: str, count: int, *, timeout: float = SEND_SECONDS, **how: Any) -> None:
    """Send ``count`` messages; each must be accepted.

    :param timeout: seconds for each message.
    """
    connection = await aio.connect(url)
    try:
        sender = await connection.create_sender(address, **how)
        for _ in range(count):
            await sender.send(BODY, timeout=timeout)
    finally:
        await connection.close()


async def received(url: str, address: str, **how: Any) -> int:
    """Return the number of messages that a new receiver gets."""
    connection = await aio.connect(url)
    count = 0
    try:
        receiver = await connection.create_receiver(address, **how)
        while True:
            delivery = await receiver.receive(timeout=_RECEIVE_SECONDS)
            await delivery.accept()
            count += 1
    except ReceiveTimeout:
        return count
    finally:
        await connection.close()
