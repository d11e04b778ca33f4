"""A client's text that is not UTF-8 ends at most its connection, with a reason; the member goes on."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from proton import Described, Message, symbol, uint, ulong

from tests.broker_stub import raw_client as raw
from tests.broker_stub.clients import Client, running
from tests.peers.odd import (
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    END,
    NOT_ASCII,
    NOT_UTF8,
    OPEN,
    Fields,
    changed,
    error,
    frame,
)

BAD = error(symbol("amqp:not-found"), NOT_UTF8)
ENDS: dict[str, dict[int, Fields]] = {
    "a container id": {OPEN: {0: NOT_UTF8}},
    "a host name": {OPEN: {1: NOT_UTF8}},
    "a desired capability": {OPEN: {8: symbol(NOT_ASCII)}},
    "a property": {OPEN: {9: {symbol("haclient:client-id"): NOT_UTF8}}},
    "a name of a link": {ATTACH: {0: NOT_UTF8}},
    "a source": {ATTACH: {5: Described(ulong(0x28), [NOT_UTF8])}},
    "a target": {ATTACH: {6: Described(ulong(0x29), [NOT_UTF8])}},
    "a capability": {ATTACH: {6: Described(ulong(0x29), ["q", *[None] * 5, symbol(NOT_ASCII)])}},
    "a filter": {ATTACH: {5: Described(ulong(0x28), ["q", *[None] * 6, {symbol("f"): NOT_UTF8}])}},
    "the error of a Detach": {DETACH: {2: BAD}},
    "the error of an End": {END: {0: BAD}},
    "the error of a Close": {CLOSE: {0: error(symbol(NOT_ASCII))}},
}


@pytest.mark.parametrize("receives", [False, True], ids=["sender", "receiver"])
@pytest.mark.parametrize("odd", ENDS.values(), ids=ENDS.keys())
async def test_the_member_goes_on(
    odd: dict[int, Fields], receives: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ends = [Described(ulong(0x28), ["q"]), Described(ulong(0x29), ["q"])]
    fields: dict[int, list[Any]] = {
        OPEN: ["client", "host"],
        BEGIN: [None, uint(0), uint(2048), uint(2048)],
        ATTACH: ["link", uint(0), receives, None, None, *ends, None, None, uint(0)],
        DETACH: [uint(0), True],
        END: [],
        CLOSE: [],
    }
    with caplog.at_level(logging.DEBUG):
        async with running() as broker, raw.raw_client(broker.address) as client:
            await client.write(
                *(frame(code, changed(each, odd.get(code, {}))) for code, each in fields.items())
            )
            await client.ended()
            again = await Client().connect(broker.address)
            [outcome] = await again.send(await again.attach("sender", "s", "alive"), Message(body="x"))
            assert outcome is not None
            assert outcome.accepted
            await again.close()
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


async def test_a_message_is_rejected_with_a_reason_that_is_not_utf_8() -> None:
    """The message becomes a dead letter, and is not redelivered."""
    async with running() as broker, raw.raw_client(broker.address) as client:
        sender = await Client().connect(broker.address)
        await sender.send(await sender.attach("sender", "s", "q"), Message(body="x"))
        await client.open(raw.begin(), raw.attach_receiver("r", 0, "q"), raw.credit(0, 1))
        await client.next(raw.TRANSFER)
        rejected = Described(ulong(0x25), [BAD])
        await client.write(frame(raw.DISPOSITION, [True, uint(0), uint(0), True, rejected]))
        await client.write(raw.attach_sender("next", 1, "q"))
        await client.next(raw.ATTACH)
        queue = broker.addresses.find_queue("q")
        assert queue is not None
        assert queue.depth == 0
        await sender.close()
