"""A link takes events, holds a bounded number of them, and restarts if necessary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import proton
import pytest

from broker_stub.broker import Broker
from broker_stub.queueing.exchanges import Exchange, ExchangeType
from broker_stub.queueing.site_state import SiteMode
from broker_stub.sites import site_link
from broker_stub.sites.event import decode
from broker_stub.sites.source_config import FROM
from haclient import aio
from tests.broker_stub.clients import running, until
from tests.broker_stub.sites.watching import PATIENCE

_SOON = "backoff_base=0.02&backoff_max=0.2&heartbeat=2"


async def send(broker: Broker, *bodies: int) -> None:
    async with aio.connect(str(broker.address)) as connection:
        sender = await connection.create_sender("orders")
        for body in bodies:
            await sender.send(proton.Message(body=body), timeout=PATIENCE)


def follow(broker: Broker, source: Broker) -> Exchange:
    options = {FROM: f"{source.address}/?{_SOON}"}
    return broker.addresses.declare_exchange("from-a", ExchangeType.REPLICATION, options=options)


def facts(broker: Broker) -> dict[str, Any]:
    [found] = broker.site.status()["links"]
    return dict(found)


async def test_no_more_events_are_taken_than_may_be_unsafe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_link, "_CREDIT", 10)
    held: list[tuple[Callable[[Any], None], Any]] = []
    most = came = 0

    def apply_event(_data: bytes, done: Callable[[Any], None], token: Any) -> None:
        nonlocal most, came
        held.append((done, token))
        most, came = max(most, len(held)), came + 1

    async with running() as source, running(cluster="east") as other:
        source.addresses.declare("orders", site=SiteMode.ALL)
        await send(source, *range(35))
        follow(other, source).apply_event = apply_event
        while came < 35:
            await until(lambda: len(held) == min(10, 35 - came + len(held)))
            done, token = held.pop(0)
            done(token)
        for done, token in held:
            done(token)
        await until(lambda: source.site.status()["source"]["lag_events"] == 0)
    assert most == 10


async def test_an_event_that_fails_is_logged_and_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(site_link, "_PAUSE", 0.01)
    failures = 2

    async with running() as source, running(cluster="east") as other:
        source.addresses.declare("orders", site=SiteMode.ALL)
        exchange = follow(other, source)
        apply_event = exchange.apply_event
        assert apply_event is not None

        def fail_at_first(data: bytes, done: Callable[[Any], None], token: Any) -> None:
            nonlocal failures
            if decode(data).sequence == 2 and failures:
                failures -= 1
                raise RuntimeError("the second event is odd")
            apply_event(data, done, token)

        exchange.apply_event = fail_at_first
        await send(source, 1, 2, 3)
        await until(lambda: source.site.status()["source"]["lag_events"] == 0)
        assert [facts(other)[name] for name in ("applied", "gaps")] == [3, 0]
        assert other.addresses.queue("orders").depth == 3
    assert [record.message for record in caplog.records].count("link from-a failed") == 2


async def test_why_it_is_not_connected_is_reported_until_it_is() -> None:
    async with running(cluster="east") as other:
        async with running() as source:
            address = source.address
            source.addresses.declare("orders", site=SiteMode.ALL)
            follow(other, source)
            await until(lambda: facts(other)["state"] == "connected" and not facts(other)["error"])
        await until(lambda: "refused" in facts(other)["error"])
        assert facts(other)["state"] == "reconnecting"
        async with running(listen=address):
            await until(lambda: facts(other)["state"] == "connected")
            await until(lambda: not facts(other)["error"])
