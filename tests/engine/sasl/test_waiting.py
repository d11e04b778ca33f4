"""While SASL is not over, an engine neither sends AMQP nor keeps the loop busy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from haclient.engine.protocol import Engine
from haclient.engine.settings import Settings
from haclient.testing.peers.deaf import silence


class _Owner:
    """Handles nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


@pytest.mark.parametrize("heartbeat", [0.0, 10.0])
async def test_a_client_of_a_silent_peer_waits(monkeypatch: pytest.MonkeyPatch, heartbeat: float) -> None:
    writes: list[Engine] = []
    write = Engine.write

    def counted(engine: Engine) -> None:
        writes.append(engine)
        write(engine)

    monkeypatch.setattr(Engine, "write", counted)
    loop = asyncio.get_running_loop()
    async with silence() as peer:
        settings = Settings(container_id="c", heartbeat=heartbeat)
        _, engine = await loop.create_connection(
            lambda: Engine(_Owner(), settings, loop), peer.host, peer.port
        )
        engine.open()
        engine.begin()
        for _ in range(100):  # turns of the loop
            await asyncio.sleep(0)
        assert len(writes) < 5
        assert engine._outgoing.taken == 0
        engine.abort()
