"""The program of ``docs/health.md`` answers its probes as the page says."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import httpx
import proton
import pytest

from haclient import State, events
from haclient.testing.peers.listening import bound
from tests.docs.pages import DOCS, sections
from tests.peers import Primary, primary, url

NOT_FOUND = proton.Condition("amqp:not-found", "no queue here")
NOT_NOW = proton.Condition("amqp:connection:forced", "no primary here")


def where(peer: Primary) -> str:
    """Return the peer's endpoint as the client formats it."""
    return f"amqp://{peer.host}:{peer.port}"


class Application:
    """The program of the page, run as by a server, and the events it received."""

    def __init__(self, module: ModuleType, client: httpx.AsyncClient, given: asyncio.Queue[Any]) -> None:
        self.module = module
        self.client = client
        self._given = given

    async def get(self, path: str) -> tuple[int, dict[str, Any]]:
        answer = await self.client.get(path)
        return answer.status_code, answer.json()

    async def until(self, kind: type) -> None:
        """Wait until the program has received an event of this kind."""
        async with asyncio.timeout(10):
            while not isinstance(await self._given.get(), kind):
                pass


def the_program() -> str:
    (program,) = sections("health.md")["The program"]
    return program


def with_the_variant() -> str:
    """Return the program with the functions of the page's variant instead of its own."""
    (variant,) = sections("health.md")["Start without a broker"]
    functions = {
        node.name: node for node in ast.parse(variant).body if isinstance(node, ast.AsyncFunctionDef)
    }
    program = ast.parse(the_program())
    for at, node in enumerate(program.body):
        if isinstance(node, ast.AsyncFunctionDef) and node.name in functions:
            program.body[at] = functions.pop(node.name)
    new = "\n".join(ast.unparse(node) for node in functions.values())
    imports = [ast.unparse(node) for node in ast.parse(variant).body if isinstance(node, ast.Import)]
    return "\n".join([*imports, ast.unparse(program), new])


@asynccontextmanager
async def application(
    peer: Primary, monkeypatch: pytest.MonkeyPatch, **options: float
) -> AsyncIterator[Application]:
    async with running(the_program(), url(peer, **options), monkeypatch) as shop:
        yield shop


@asynccontextmanager
async def running(program: str, cluster: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Application]:
    monkeypatch.setenv("HACLIENT_URL", cluster)
    module = ModuleType("orders")
    exec(compile(program, "health.md", "exec"), vars(module))  # noqa: S102
    given, loop = asyncio.Queue[Any](), asyncio.get_running_loop()
    note = module.health.on_event

    def on_event(event: events.Event) -> None:
        note(event)
        loop.call_soon_threadsafe(given.put_nowait, event)

    module.health.on_event = on_event
    transport = httpx.ASGITransport(module.app)
    async with (
        module.app.router.lifespan_context(module.app),
        httpx.AsyncClient(transport=transport, base_url="http://shop", timeout=30) as client,
    ):
        yield Application(module, client, given)


async def test_with_a_primary_it_is_alive_and_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    async with primary() as peer, application(peer, monkeypatch) as shop:
        assert (await shop.client.post("/orders/tea")).json() == "ACCEPTED"
        facts = {"searching": 0.0, "state": "connected", "last_primary": where(peer), "failures": {}}
        for path in ("/alive", "/ready"):
            assert await shop.get(path) == (200, facts)


async def test_a_search_makes_it_unready_after_a_while_and_never_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with primary() as peer, application(peer, monkeypatch) as shop:
        peer.refuses_opens = NOT_NOW
        peer.drop()
        await shop.until(events.BackingOff)
        await peer.until(lambda: peer.refused)
        await shop.until(events.BackingOff)
        status, facts = await shop.get("/ready")
        assert (status, facts["state"], facts["last_primary"]) == (200, "reconnecting", where(peer))
        assert facts["searching"] > 0
        assert list(facts["failures"]) == [where(peer)]

        shop.module.PATIENCE = facts["searching"] / 2  # type: ignore[attr-defined]
        assert (await shop.get("/ready"))[0] == 503
        assert (await shop.get("/alive"))[0] == 200

        peer.refuses_opens = None
        await shop.until(events.Reconnected)
        status, facts = await shop.get("/ready")
        assert (status, facts["state"], facts["searching"]) == (200, "connected", 0.0)


async def test_a_connection_that_gave_up_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    async with primary() as peer, application(peer, monkeypatch, deadline=0.1) as shop:
        peer.refuses_opens = NOT_NOW
        peer.drop()
        await shop.until(events.GaveUp)
        for path in ("/alive", "/ready"):
            status, facts = await shop.get(path)
            assert (status, facts["state"]) == (503, "failed")


async def test_a_service_that_starts_before_its_broker_is_alive_and_later_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with bound() as reserved:
        host, port = reserved.getsockname()
    cluster = f"amqp://{host}:{port}/?backoff_max=0.05&startup_deadline=0.01"
    async with running(with_the_variant(), cluster, monkeypatch) as shop:
        await shop.until(events.BackingOff)
        assert await shop.get("/alive") == (200, {"state": "starting"})
        assert await shop.get("/ready") == (503, {"state": "starting"})
        assert (await shop.client.post("/orders/tea")).status_code == 503

        async with primary(host=host, port=port):
            await shop.until(events.Connected)
            await shop.module.app.state.start
            assert (await shop.get("/ready"))[0] == 200
            assert (await shop.get("/alive"))[0] == 200
            assert (await shop.client.post("/orders/tea")).json() == "ACCEPTED"


async def test_a_service_whose_start_failed_for_good_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        primary(refuses={"orders": NOT_FOUND}) as peer,
        running(with_the_variant(), url(peer), monkeypatch) as shop,
    ):
        await asyncio.wait([shop.module.app.state.start])
        status, facts = await shop.get("/alive")
        assert status == 503
        assert "no queue here" in facts["detail"]
        assert (await shop.get("/ready"))[0] == 503


async def test_a_service_that_never_had_a_broker_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(with_the_variant(), "amqp://127.0.0.1:1", monkeypatch) as shop:
        await shop.until(events.BackingOff)
    with pytest.raises(asyncio.CancelledError):
        await shop.module.app.state.start


def test_the_table_has_every_state() -> None:
    table = (DOCS / "health.md").read_text().split("\n\n## ")[0]
    assert [state.name for state in State if f"| `{state.name}` |" not in table] == []
