"""A peer that opens many links with one write costs one look at each Attach."""

from __future__ import annotations

import asyncio

import pytest

from haclient.engine.protocol import Engine
from haclient.engine.wire import attach_frame
from haclient.engine.wire.attach_frame import AttachFrame
from haclient.testing.peers.listening import settings
from tests.broker_stub.raw_client import OPEN, attach_receiver, attach_sender, begin, frame
from tests.engine.pair import Owner
from tests.engine.test_hostile_peers import AMQP_HEADER, Wire

_LINKS = 200


async def test_each_attach_of_a_chunk_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand in one chunk kept a member busy for longer than its supervisor waits."""
    reads: list[AttachFrame | None] = []
    read = attach_frame.read

    def counted(data: bytes) -> AttachFrame | None:
        reads.append(read(data))
        return reads[-1]

    monkeypatch.setattr(attach_frame, "read", counted)
    owner = Owner(server=True)
    engine = Engine(owner, settings(), asyncio.get_running_loop())
    engine.connection_made(Wire())
    engine.data_received(AMQP_HEADER + frame(OPEN, ["peer"]) + begin())
    await asyncio.sleep(0)
    makers = (attach_sender, attach_receiver)
    attaches = [makers[handle % 2](f"l-{handle}", handle, "q") for handle in range(_LINKS)]
    for chunk in (attaches[: _LINKS // 2], attaches[_LINKS // 2 :]):
        engine.data_received(b"".join(chunk))
        await asyncio.sleep(0)
    assert len(owner.links) == _LINKS
    assert len(reads) == _LINKS
    assert None not in reads
    engine.abort()
