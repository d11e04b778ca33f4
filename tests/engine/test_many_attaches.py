"""A peer that opens many links with one write: each Attach is read once, and no NUL hides behind another."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haclient.engine.protocol import Engine
from haclient.engine.wire import attach_frame
from haclient.engine.wire.attach_frame import AttachFrame
from haclient.testing.peers.listening import settings
from tests.broker_stub.raw_client import OPEN, attach_receiver, attach_sender, begin, frame
from tests.engine.pair import Owner
from tests.engine.test_hostile_peers import AMQP_HEADER, Wire

_LINKS = 200
_MOST_SESSIONS = 4


async def _server(sessions: int) -> tuple[Owner, Engine]:
    owner = Owner(server=True)
    engine = Engine(owner, settings(), asyncio.get_running_loop())
    engine.connection_made(Wire())
    begins = b"".join(begin(channel=channel) for channel in range(sessions))
    engine.data_received(AMQP_HEADER + frame(OPEN, ["peer"]) + begins)
    await asyncio.sleep(0)
    return owner, engine


async def test_each_attach_of_a_chunk_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand in one chunk kept a member busy for longer than its supervisor waits."""
    reads: list[AttachFrame | None] = []
    read = attach_frame.read

    def counted(data: bytes) -> AttachFrame | None:
        reads.append(read(data))
        return reads[-1]

    monkeypatch.setattr(attach_frame, "read", counted)
    owner, engine = await _server(sessions=1)
    makers = (attach_sender, attach_receiver)
    attaches = [makers[handle % 2](f"l-{handle}", handle, "q") for handle in range(_LINKS)]
    for chunk in (attaches[: _LINKS // 2], attaches[_LINKS // 2 :]):
        engine.data_received(b"".join(chunk))
        await asyncio.sleep(0)
    assert len(owner.links) == _LINKS
    assert len(reads) == _LINKS
    assert None not in reads
    engine.abort()


_TEXTS = st.sampled_from(["a", "b", "a\0", "a\0b", "\0"])


@given(st.lists(st.tuples(st.sampled_from("lm"), _TEXTS, st.booleans()), max_size=_MOST_SESSIONS))
def test_a_link_whose_address_has_a_nul_is_cut_whatever_other_sessions_attach(
    drawn: list[tuple[str, str, bool]],
) -> None:
    """Each session has one link; sessions may use the same name, and send their Attaches in one chunk."""
    asyncio.run(_check_cut(drawn))


async def _check_cut(drawn: list[tuple[str, str, bool]]) -> None:
    owner, engine = await _server(sessions=_MOST_SESSIONS)
    engine.data_received(
        b"".join(
            (attach_receiver if receives else attach_sender)(name, 0, address, channel=channel)
            for channel, (name, address, receives) in enumerate(drawn)
        )
    )
    await asyncio.sleep(0)
    with_nul = {(name, receives) for name, address, receives in drawn if "\0" in address}
    found = [(link.endpoint.name, link.endpoint.is_sender, link.is_cut) for link in owner.links]
    assert sorted(found) == sorted((name, end, (name, end) in with_nul) for name, _, end in drawn)
    engine.abort()
