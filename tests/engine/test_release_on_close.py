"""The outcome that a closed receiver sends for the deliveries that have no outcome."""

from __future__ import annotations

import re

import proton
import pytest
from cproton_ffi import lib

from haclient.engine import protocol
from haclient.engine.protocol import Engine
from tests.engine.pair import pair


async def test_deliveries_without_an_outcome_are_released(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proton alone settles them without a state, which ends the session of a RabbitMQ."""
    async with pair() as both:

        def answer(engine: Engine, event: proton.Event) -> None:
            if engine is both.client.engine:
                Engine._on_link_close(engine, event)
            else:  # a peer that does not settle by itself when a link is closed
                event.link.close()
                engine.wake()

        monkeypatch.setitem(protocol._RARE_EVENTS, lib.PN_LINK_REMOTE_CLOSE, answer)
        receiver, sender = await both.receiver()
        for token in range(3):
            sender.send(b"x", token)
        await both.client.until(lambda: len(both.client.deliveries) == 3)
        receiver.settle(both.client.deliveries[0][1])
        assert both.client.engine is not None
        both.client.engine.transport.trace(proton.Transport.TRACE_FRM)
        receiver.close()
        await both.client.until(lambda: both.client.links_closed)
        await both.sender()  # a round trip: the dispositions were sent
    dispositions = re.findall(r"-> @disposition\(21\) \[(.*)\]", capfd.readouterr().err)
    assert dispositions == [
        "role=true, first=0x0, settled=true, state=@accepted(36) []",
        "role=true, first=0x1, last=0x2, settled=true, state=@released(38) []",
    ]
