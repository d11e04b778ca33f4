"""Log records and error texts are printable lines, whatever a peer puts into its fields."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import proton
import pytest

from haclient import aio
from haclient.errors import HaclientError
from haclient.outcome import Outcome, OutcomeState
from tests.cli.hostile import EVIL, assert_printable
from tests.peers import primary, url
from tests.peers.primary import Primary

CONDITION = proton.Condition(f"amqp:{EVIL}", EVIL)
FINAL = proton.Condition("amqp:not-allowed", EVIL)
REDIRECT = proton.Condition(
    "amqp:connection:redirect", EVIL, {proton.symbol("network-host"): EVIL, proton.symbol("port"): 5672}
)
LINK_REDIRECT = proton.Condition("amqp:link:redirect", EVIL, {proton.symbol("address"): EVIL})
PROPERTIES = {
    **dict.fromkeys(("product", "version", "haclient:cluster", "haclient:role"), EVIL),
    "failover-server-list": [{proton.symbol("network-host"): EVIL, proton.symbol("port"): 5672}],
}
Case = Callable[[Primary, str], Coroutine[Any, Any, object]]


async def open_refused(peer: Primary, where: str, refusal: proton.Condition) -> None:
    peer.refuses_opens = refusal
    await aio.connect(where, timeout=0.3)


async def attach_refused(peer: Primary, where: str, refusal: proton.Condition, by: Any = "detach") -> None:
    peer.refuses["q"], peer.refuses_by = refusal, by
    async with aio.connect(where) as connection:
        await connection.create_sender("q", timeout=0.3)


async def follow_link_redirect(peer: Primary, where: str) -> None:
    await attach_refused(peer, where, LINK_REDIRECT)


async def rejected(peer: Primary, where: str) -> None:
    peer.outcome = Outcome(OutcomeState.REJECTED, f"amqp:{EVIL}", EVIL)
    async with aio.connect(where) as connection, connection.create_sender("q") as sender:
        await sender.send("one")


async def rejected_many(peer: Primary, where: str) -> None:
    peer.outcome = Outcome(OutcomeState.REJECTED, f"amqp:{EVIL}", EVIL)
    async with aio.connect(where) as connection, connection.create_sender("q") as sender:
        await sender.send_many(["one", "two"])


async def detached(peer: Primary, where: str) -> None:
    async with aio.connect(where) as connection:
        receiver = await connection.create_receiver("q")
        peer.detach(CONDITION)
        await receiver.receive(timeout=5)


async def closed(peer: Primary, where: str, condition: proton.Condition) -> None:
    async with aio.connect(where) as connection:
        sender = await connection.create_sender("q")
        peer.refuses_opens = condition
        peer.close(condition)
        await sender.send("one", timeout=1)


async def names_of_its_own(_peer: Primary, where: str) -> None:
    """The application takes a name from a message."""
    async with aio.connect(where) as connection:
        await connection.create_sender(EVIL.replace("\0", ""), name=EVIL.replace("\0", ""))
        await connection.create_sender(EVIL.replace("\0", ""), name=EVIL.replace("\0", ""))


@pytest.mark.parametrize(
    "case",
    [
        lambda peer, where: open_refused(peer, where, CONDITION),
        lambda peer, where: open_refused(peer, where, FINAL),
        lambda peer, where: open_refused(peer, where, REDIRECT),
        lambda peer, where: attach_refused(peer, where, CONDITION),
        follow_link_redirect,
        lambda peer, where: attach_refused(peer, where, CONDITION, "end"),
        lambda peer, where: attach_refused(peer, where, CONDITION, "close"),
        rejected,
        rejected_many,
        detached,
        lambda peer, where: closed(peer, where, CONDITION),
        lambda peer, where: closed(peer, where, REDIRECT),
        names_of_its_own,
    ],
)
async def test_no_log_record_and_no_error_holds_what_a_peer_wants_to_show(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with primary(container_id=EVIL, properties=PROPERTIES) as peer:
        where = url(peer, backoff_base=0.01, deadline=0.3, refusal_timeout=0.1)
        error: BaseException | None = None
        try:
            async with asyncio.timeout(20):
                await case(peer, where)
        except (HaclientError, ValueError) as raised:
            error = raised
    assert error is not None or case is follow_link_redirect
    while error is not None:
        if type(error).__module__.startswith("haclient"):
            assert_printable(str(error))
        error = error.__cause__
    for record in caplog.records:
        if record.name.startswith("haclient"):
            assert record.getMessage().isprintable()
            assert_printable(logging.Formatter().format(record))
