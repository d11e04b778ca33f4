from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import sys
from collections.abc import AsyncIterator
from types import ModuleType

import httpx
import pytest

from broker_stub.local_cluster.supervisor import LocalCluster, LocalClusterOptions
from haclient import aio
from haclient.errors import ClusterURLError
from tests.examples.program import EXAMPLES

TEA = {"item": "tea", "quantity": 2}


def load(url: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import the module as a server would."""
    monkeypatch.setenv("HACLIENT_URL", url)
    spec = importlib.util.spec_from_file_location("fastapi_app", EXAMPLES / "fastapi_app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fastapi_app", module)  # pydantic looks there
    spec.loader.exec_module(module)
    return module


@contextlib.asynccontextmanager
async def client_of(module: ModuleType) -> AsyncIterator[httpx.AsyncClient]:
    """Make a client of the application, which starts and stops as in a server."""
    transport = httpx.ASGITransport(module.app)
    async with (
        module.app.router.lifespan_context(module.app),
        httpx.AsyncClient(transport=transport, base_url="http://shop", timeout=30) as client,
    ):
        yield client


async def test_an_order_is_sent_and_answered_with_the_outcome(
    pair: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_of(load(pair.url, monkeypatch)) as client:
        answer = await client.post("/orders", json=TEA)
        assert (answer.status_code, answer.json()) == (202, {"outcome": "accepted"})
        assert (await client.post("/orders", json={"item": "tea"})).status_code == 422

    async with aio.connect(pair.url) as connection, await connection.create_receiver("orders") as orders:
        assert (await orders.receive(timeout=10)).message.body == TEA


async def test_without_a_url_the_application_does_not_start_and_says_which_variable_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = load("", monkeypatch)
    monkeypatch.delenv("HACLIENT_URL")
    with pytest.raises(ClusterURLError, match="HACLIENT_URL is missing"):
        async with client_of(module):
            pass


async def test_orders_during_a_failover_wait_for_the_new_primary(
    pair: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load(pair.url, monkeypatch)
    monkeypatch.setattr(module, "SEND_TIMEOUT", 30.0)
    async with client_of(module) as client:
        await client.post("/orders", json=TEA)
        await pair.kill_primary()
        answers = await asyncio.gather(*(client.post("/orders", json=TEA) for _ in range(20)))
        assert [answer.status_code for answer in answers] == [202] * 20


async def test_without_a_primary_an_order_is_answered_503_with_what_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with LocalCluster(LocalClusterOptions(restart=False)) as pair:
        module = load(pair.url, monkeypatch)
        monkeypatch.setattr(module, "SEND_TIMEOUT", 0.5)
        async with client_of(module) as client:
            first = await pair.kill_primary()
            await pair.wait_until(lambda pair: pair.primary not in (None, first))
            await pair.kill_primary()
            answer = await client.post("/orders", json=TEA)

    assert answer.status_code == 503
    facts = answer.json()
    assert "0.5 s" in facts["detail"]
    assert facts["safe_to_retry"] is (facts["delivered"] is False)
