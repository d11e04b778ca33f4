"""A request that a peer grants and does not apply fails before it does any harm.

The peer answers as RabbitMQ 4.0.5 does: it repeats the requested source unchanged, and then delivers every
message.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Described, symbol, ulong
from proton.handlers import MessagingHandler

from haclient import aio
from haclient.core.attach.source import SELECTOR
from haclient.core.attach.streams import OFFSET
from haclient.core.quirks.products import PRODUCTS, Quirk, quirks_of
from haclient.errors import (
    ConfirmNotSupported,
    ConnectionGaveUp,
    FilterNotSupported,
    LinkClosed,
    LinkRefused,
)
from haclient.reactor import Container, Copy
from haclient.testing.peers.listening import Peer, listening, url
from tests.broker_stub.raw_client import ATTACH, BEGIN, FLOW, OPEN
from tests.hostile.broker.connection import AMQP, INIT, Arrival, HostileConnection
from tests.hostile.broker.listening import HostileBrokers

RABBITMQ_4 = ("RabbitMQ", "4.0.5")
UNKNOWN = ("Some broker", "1.0")
# Indices of the fields of an Open, an Attach and a source.
_PROPERTIES, _SOURCE, _DISTRIBUTION_MODE = 9, 5, 6
_SOURCE_CODE = 0x28


@dataclass
class Seen:
    """The product of a peer, and a record of its Attaches.

    :ivar mode: the distribution-mode of its answers; by default the requested one.
    :ivar attached: the Attaches; ``credit``: the sum of the granted credit.
    """

    product: tuple[str, str]
    mode: str | None = None
    attached: int = 0
    credit: int = 0
    connections: list[Echoing] = field(default_factory=list)


class Echoing(HostileConnection):
    """Answers with the requested source."""

    def __init__(self, seen: Seen) -> None:
        super().__init__(HostileBrokers(0, ()), random.Random())
        name, version = seen.product
        self.fields[OPEN] = {_PROPERTIES: {symbol("product"): name, symbol("version"): version}}
        self.instead[ATTACH] = self._echo
        self.then[FLOW].append(self._granted)
        self._seen = seen
        seen.connections.append(self)

    def _echo(self, what: Arrival) -> None:
        self._seen.attached += 1
        asked = list(what.get(_SOURCE).value)
        source = [*asked, *[None] * (_DISTRIBUTION_MODE + 1 - len(asked))]
        if self._seen.mode is not None:
            source[_DISTRIBUTION_MODE] = symbol(self._seen.mode)
        self.fields[ATTACH] = {_SOURCE: Described(ulong(_SOURCE_CODE), source)}
        self.answer(what)

    def _granted(self, what: Arrival) -> None:
        self._seen.credit += 0 if what.get(4) is None else int(what.get(6))


@contextlib.asynccontextmanager
async def echoing(seen: Seen) -> AsyncIterator[Peer]:
    async with listening(lambda _: Echoing(seen)) as peer:
        yield peer


def by_hand(receiver: proton.Receiver) -> None:
    receiver.source.distribution_mode = proton.Terminus.DIST_MODE_COPY


BROWSES = [{"browse": True}, {"configure": by_hand}]


@pytest.mark.parametrize("browse", BROWSES, ids=["by the argument", "by hand"])
@pytest.mark.parametrize("version", ["3.10.8", "4.0.5", "4.2.0", ""])
async def test_a_browse_that_a_peer_is_known_to_ignore_is_never_attached(
    version: str, browse: dict[str, Any]
) -> None:
    seen = Seen(("RabbitMQ", version))
    async with echoing(seen) as peer, await aio.connect(url(peer)) as connection:
        with pytest.raises(LinkRefused, match="does not browse the messages of 'q'") as refused:
            await connection.create_receiver("q", **browse)
        assert refused.value.condition == "amqp:not-implemented"
        assert (seen.attached, seen.credit) == (0, 0)
        receiver = await connection.create_receiver("q")  # the connection goes on
        await receiver.receive(timeout=5)


@pytest.mark.parametrize("browse", BROWSES, ids=["by the argument", "by hand"])
async def test_a_browse_that_is_answered_with_move_gets_no_credit(browse: dict[str, Any]) -> None:
    seen = Seen(UNKNOWN, mode="move")
    async with echoing(seen) as peer, await aio.connect(url(peer)) as connection:
        with pytest.raises(LinkRefused, match="it answers with distribution-mode move"):
            await connection.create_receiver("q", **browse)
        assert seen.credit == 0


@pytest.mark.parametrize("mode", ["copy", None])
async def test_a_browse_that_is_granted_receives(mode: str | None) -> None:
    seen = Seen(UNKNOWN, mode=mode)
    async with echoing(seen) as peer, await aio.connect(url(peer)) as connection:
        receiver = await connection.create_receiver("q", browse=True)
        await receiver.receive(timeout=5)


async def receive_all(receiver: aio.Receiver) -> None:
    """Receive until the connection ends."""
    while True:
        await receiver.receive(timeout=10)


class Browsing(MessagingHandler):
    """A program for proton that browses."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(auto_accept=False)
        self._url = f"amqp://{peer.host}:{peer.port}"

    def on_start(self, event: proton.Event) -> None:
        self.connection = event.container.connect(self._url)
        event.container.create_receiver(self.connection, "q", options=Copy())

    def on_message(self, _: proton.Event) -> None:
        self.connection.close()


@pytest.mark.parametrize(("product", "warnings"), [(RABBITMQ_4, 1), (UNKNOWN, 0)])
async def test_a_program_for_proton_is_warned_of_such_a_browse(
    caplog: pytest.LogCaptureFixture, product: tuple[str, str], warnings: int
) -> None:
    async with echoing(Seen(product)) as peer, asyncio.timeout(10):
        await Container(Browsing(peer)).run_async()
    assert sum("does not browse the messages of 'q'" in text for text in caplog.messages) == warnings


async def test_a_browser_is_closed_when_the_next_primary_does_not_browse() -> None:
    seen = Seen(UNKNOWN)
    async with echoing(seen) as peer, await aio.connect(url(peer)) as connection:
        receiver = await connection.create_receiver("q", browse=True)
        await receiver.receive(timeout=5)
        seen.product, seen.attached = RABBITMQ_4, 0
        seen.connections.pop().transport.abort()
        with pytest.raises(LinkClosed, match="does not browse") as closed:
            await receive_all(receiver)
        assert (closed.value.condition, seen.attached) == ("amqp:not-implemented", 0)
        await connection.create_receiver("q")


@pytest.mark.parametrize("version", ["3.10.8", "4.0.5", "4.0", "4", "", "unknown"])
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"selector": "a = 1"}, (SELECTOR,)),
        ({"filters": {"amqp:sql-filter": "a = 1"}}, ("amqp:sql-filter",)),
        ({"filters": {OFFSET: "first", "x": 1}}, ("x",)),
    ],
    ids=["selector", "SQL", "beside a stream's"],
)
async def test_a_filter_that_is_echoed_and_not_applied_is_never_attached(
    version: str, arguments: dict[str, Any], named: tuple[str, ...]
) -> None:
    seen = Seen(("RabbitMQ", version))
    async with echoing(seen) as peer, await aio.connect(url(peer)) as connection:
        with pytest.raises(FilterNotSupported, match="and delivers every message") as caught:
            await connection.create_receiver("q", **arguments)
        assert (caught.value.filters, seen.attached, seen.credit) == (named, 0, 0)
        receiver = await connection.create_receiver("q", strict=False, **arguments)
        await receiver.receive(timeout=5)


@pytest.mark.parametrize("name", [OFFSET, "rabbitmq:stream-filter", "rabbitmq:stream-match-unfiltered"])
async def test_a_filter_of_streams_is_attached(name: str) -> None:
    seen = Seen(RABBITMQ_4)
    async with echoing(seen) as peer, await aio.connect(url(peer)) as connection:
        receiver = await connection.create_receiver("q", filters={name: "first"})
        await receiver.receive(timeout=5)


@pytest.mark.parametrize("product", [("RabbitMQ", "4.1.0"), ("RabbitMQ", "4.10"), UNKNOWN])
async def test_a_filter_that_a_peer_may_apply_is_attached(product: tuple[str, str]) -> None:
    seen = Seen(product)
    async with echoing(seen) as peer, await aio.connect(url(peer)) as connection:
        receiver = await connection.create_receiver("q", selector="a = 1")
        await receiver.receive(timeout=5)


async def test_a_receiver_that_asks_to_confirm_is_never_attached_where_that_ends_the_session() -> None:
    seen = Seen(RABBITMQ_4)
    async with echoing(seen) as peer, await aio.connect(url(peer)) as connection:
        with pytest.raises(ConfirmNotSupported, match="RabbitMQ has no rcv-settle-mode second"):
            await connection.create_receiver("q", confirm=True)
        assert seen.attached == 0


@given(st.one_of(st.text(), st.integers(), st.none(), st.binary(), st.from_regex(r"[0-9.]+", fullmatch=True)))
def test_the_quirks_of_any_version_are_those_of_a_row(version: object) -> None:
    rows = [product.quirks for product in PRODUCTS if product.announced == "RabbitMQ"]
    found = quirks_of({"product": "RabbitMQ", "version": version})
    assert any(found <= row and row - found <= {Quirk.ECHOES_FILTERS} for row in rows)
    assert Quirk.IGNORES_BROWSE in found


@pytest.mark.parametrize(
    ("product", "vhost", "warnings"),
    [
        (RABBITMQ_4, "team", 1),
        (("RabbitMQ", "3.10.8"), "team", 1),
        (RABBITMQ_4, "vhost:team", 0),
        (RABBITMQ_4, None, 0),
        (UNKNOWN, "team", 0),
    ],
)
async def test_a_virtual_host_that_is_ignored_is_warned_of(
    caplog: pytest.LogCaptureFixture, product: tuple[str, str], vhost: str | None, warnings: int
) -> None:
    options = {} if vhost is None else {"vhost": vhost}
    async with echoing(Seen(product)) as peer, await aio.connect(url(peer, **options)):
        pass
    assert sum("write vhost=vhost:team" in text for text in caplog.messages) == warnings


class Resetting(HostileConnection):
    """Accepts the user, and resets the connection at the Open."""

    def __init__(self, *, at: int, clean: bool) -> None:
        super().__init__(HostileBrokers(0, ()), random.Random())
        self._clean = clean
        self.instead[at] = self._reset

    def _reset(self, _: Arrival) -> None:
        self.is_silent = True
        (self.transport.close if self._clean else self.transport.abort)()


@pytest.mark.parametrize(
    ("at", "vhost", "is_named"),
    [
        (AMQP, "vhost:nope", True),
        (AMQP, None, False),
        (INIT, "vhost:nope", False),
        (BEGIN, "vhost:nope", False),
    ],
    ids=["at the Open", "without a virtual host", "at SASL", "after the Open"],
)
@pytest.mark.parametrize("clean", [True, False])
async def test_a_virtual_host_is_named_when_the_open_is_not_answered(
    at: int, vhost: str | None, is_named: bool, clean: bool
) -> None:
    options = {} if vhost is None else {"vhost": vhost}
    async with listening(lambda _: Resetting(at=at, clean=clean)) as peer:
        with pytest.raises(ConnectionGaveUp) as caught:
            await aio.connect(url(peer, max_attempts=1, **options))
    assert ("has it the virtual host 'vhost:nope'" in str(caught.value)) is is_named
