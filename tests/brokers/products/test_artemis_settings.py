"""Artemis in several configurations: full addresses, a small id cache, a router, a mirror, odd connectors."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from haclient import Message, aio
from haclient.errors import AuthenticationFailed, HaclientError, MessageNotAccepted, SendTimeout
from haclient.testing.peers.deaf import refused, stopped_process, syn_drop
from haclient.testing.peers.listening import Peer
from haclient.testing.proxy import proxy
from tests.brokers.products import installed
from tests.brokers.products.artemis import Artemis
from tests.brokers.products.artemis_config import PASSWORD, USER, Kind, Limit, Settings
from tests.brokers.products.flow import flowing
from tests.brokers.topology import Fault, Launch

_MISSING = installed.missing("Artemis", installed.ARTEMIS)
pytestmark = [
    pytest.mark.brokers,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(_MISSING), reason=_MISSING or "it is there"),
]

_KIBIBYTES_100 = 100 * 1024
_LIMITS = tuple(Limit(f"{name.lower()}.#", name, _KIBIBYTES_100) for name in ("BLOCK", "DROP", "FAIL"))
_BODY = "x" * 10_000
_MORE_THAN_FIT = 30


@asynccontextmanager
async def _running(
    kind: Kind, folder: Path, settings: Settings, fault: Fault = Fault.KILL
) -> AsyncIterator[Artemis]:
    cluster = Artemis(kind, Launch(folder, fault), settings)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()


async def _stored(cluster: Artemis, queue: str) -> Counter[object]:
    return Counter(stored.body for stored in await cluster.drain(queue))


def _url(*addresses: str, **options: str) -> str:
    asked = "&".join(f"{name}={value}" for name, value in options.items())
    return f"amqp://{USER}:{quote(PASSWORD)}@{','.join(addresses)}?{asked}"


async def test_a_full_address_and_a_wrong_password_say_what_is_wrong(tmp_path: Path) -> None:
    """All checks share one broker, since each start takes seconds."""
    async with _running(Kind.SINGLE, tmp_path, Settings(limits=_LIMITS)) as broker:
        with pytest.raises(AuthenticationFailed, match="it does not accept the user and the password"):
            await aio.connect(broker.url, user=USER, password="wrong")
        async with aio.connect(broker.url) as connection:
            await _blocks(connection, broker)
            await _fails(connection, broker)
            await _drops(connection, broker)


async def _fill(sender: aio.Sender) -> tuple[int, HaclientError | None]:
    """Send until a send fails. Return the number of accepted messages and the error."""
    for number in range(_MORE_THAN_FIT):
        try:
            await sender.send(Message(body=_BODY), timeout=10)
        except HaclientError as error:
            return number, error
    return _MORE_THAN_FIT, None


async def _blocks(connection: aio.Connection, broker: Artemis) -> None:
    """A full address gives no credit: the send is withdrawn, and a later one succeeds."""
    sender = await connection.create_sender("block.q")
    # Artemis accepts messages for granted credit however full the address is. A new link gets no credit.
    assert await _fill(sender) == (_MORE_THAN_FIT, None)
    late = await connection.create_sender("block.q")
    with pytest.raises(SendTimeout, match="gives no credit: is the queue full") as error:
        await late.send(Message(body="late"), timeout=2)
    assert error.value.delivered is False
    assert (await _stored(broker, "block.q"))[_BODY] == _MORE_THAN_FIT
    await late.send(Message(body="later"), timeout=30)
    assert await _stored(broker, "block.q") == {"later": 1}


async def _fails(connection: aio.Connection, broker: Artemis) -> None:
    sender = await connection.create_sender("fail.q")
    accepted, error = await _fill(sender)
    assert 0 < accepted < _MORE_THAN_FIT
    assert isinstance(error, MessageNotAccepted)
    assert error.outcome.condition == "amqp:resource-limit-exceeded"
    # From now on there is no credit until a client receives.
    with pytest.raises(SendTimeout, match="gives no credit: is the queue full"):
        await sender.send(Message(body="late"), timeout=2)
    assert await _stored(broker, "fail.q") == {_BODY: accepted}
    await sender.send(Message(body="later"), timeout=30)
    assert await _stored(broker, "fail.q") == {"later": 1}


async def _drops(connection: aio.Connection, broker: Artemis) -> None:
    """The message is accepted and dropped, without a sign to the client."""
    sender = await connection.create_sender("drop.q")
    assert await _fill(sender) == (_MORE_THAN_FIT, None)
    assert 0 < (await _stored(broker, "drop.q"))[_BODY] < _MORE_THAN_FIT


async def test_nothing_is_doubled_while_the_id_cache_is_as_large_as_the_window(tmp_path: Path) -> None:
    settings = Settings(id_cache=100)
    async with _running(Kind.SINGLE, tmp_path, settings) as broker:
        async with aio.connect(broker.url, window=100) as connection, flowing(connection, "q") as flow:
            for _ in range(3):
                await flow.goes_on()
                await broker.inject(Fault.KILL)
                await flow.goes_on()
        stored = await _stored(broker, "q")
    assert flow.settled <= stored.keys()
    assert set(stored.values()) == {1}


async def _opened(url: str) -> object:
    """Return the endpoint of a new connection."""
    async with aio.connect(url, timeout=120) as connection:
        return connection.endpoint


@pytest.mark.parametrize("fault", [Fault.KILL, Fault.STOP], ids=str)
async def test_a_router_redirects_to_the_primary_before_while_and_after_it_fails_over(
    tmp_path: Path, fault: Fault
) -> None:
    """A client that connects while its target is down gets in as well.

    After a graceful stop the router redirects to the stopped target for over two minutes. A client whose
    URL also names the brokers gets in.
    """
    async with _running(Kind.SHARED, tmp_path / "pair", Settings()) as pair:
        targets = tuple(member.endpoint.authority for member in pair.members)
        settings = Settings(redirects_to=targets)
        router = Artemis(Kind.SINGLE, Launch(tmp_path / "router"), settings)
        try:
            await router.start_process()
            alone = router.members[0].endpoint.authority
            url = _url(alone, redirects="any")
            entrance = url if fault is Fault.KILL else _url(alone, *targets, redirects="any")
            async with aio.connect(url, timeout=60) as connection:
                assert connection.endpoint == pair.members[0].endpoint
                async with flowing(connection, "q") as flow:
                    await flow.goes_on()
                    await pair.inject(fault)
                    meanwhile = asyncio.create_task(_opened(entrance))
                    await flow.goes_on()
                    assert connection.endpoint == pair.members[1].endpoint
                    assert await meanwhile == pair.members[1].endpoint
            assert await _opened(entrance) == pair.members[1].endpoint
        finally:
            await router.stop()
        stored = await _stored(pair, "q")
    assert flow.settled <= stored.keys()
    assert set(stored.values()) == {1}


async def test_a_mirror_has_everything_that_was_settled(tmp_path: Path) -> None:
    """The mirror has ``sync`` on, and the clients know both brokers."""
    async with _running(Kind.SINGLE, tmp_path / "copy", Settings()) as copy:
        there = copy.members[0].endpoint.authority
        async with _running(Kind.SINGLE, tmp_path / "first", Settings(mirror_to=there)) as first:
            here = first.members[0].endpoint.authority
            async with aio.connect(_url(here, there), timeout=60) as connection:
                assert connection.endpoint == first.members[0].endpoint
                async with flowing(connection, "q") as flow:
                    await flow.goes_on()
                    await first.members[0].process.kill()
                    await flow.goes_on()
        stored = await _stored(copy, "q")
    assert flow.settled <= stored.keys()


_AnyPeer = Callable[[Peer], AbstractAsyncContextManager[Peer]]


@pytest.mark.parametrize("advertised", [refused, syn_drop, stopped_process])
async def test_a_backup_that_is_advertised_where_nobody_answers_is_found_by_the_url(
    advertised: _AnyPeer, tmp_path: Path
) -> None:
    async with advertised(Peer("127.0.0.1", 1)) as wrong:
        settings = Settings(advertised=("", wrong.address))
        async with _running(Kind.SHARED, tmp_path, settings) as pair:
            async with aio.connect(pair.url) as connection, flowing(connection, "q") as flow:
                await flow.goes_on()
                await pair.inject(Fault.KILL)
                await flow.goes_on()
            assert flow.settled <= (await _stored(pair, "q")).keys()


async def test_a_backup_that_is_advertised_at_another_port_is_found_there(tmp_path: Path) -> None:
    """The URL names only the primary."""
    async with proxy(Peer("127.0.0.1", 1)) as other_port:
        settings = Settings(advertised=("", other_port.address))
        async with _running(Kind.SHARED, tmp_path, settings) as pair:
            primary, backup = (member.endpoint for member in pair.members)
            other_port.target = Peer(backup.host, backup.port)
            # The primary announces the backup once the backup has registered.
            url = _url(primary.authority, redirects="any")
            async with aio.connect(url) as connection, flowing(connection, "q") as flow:
                await flow.goes_on()
                await pair.inject(Fault.KILL)
                await flow.goes_on()
                assert connection.endpoint is not None
                assert connection.endpoint.authority == other_port.address
            assert flow.settled <= (await _stored(pair, "q")).keys()
