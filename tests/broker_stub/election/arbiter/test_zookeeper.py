"""An arbiter in ZooKeeper: partitions, lost connections, lost nodes."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Self

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE

from broker_stub.election.arbiter import ArbiterUnavailableError, open_arbiter
from broker_stub.election.generation import ArbiterRecord
from tests.dnsmasq import free_port
from tests.zookeeper import ZooKeeper


class Cut:
    """A proxy that cuts the first connection at a request that contains a text.

    :param forwards: True if the server still gets that request.
    """

    def __init__(self, server: ZooKeeper, text: bytes, *, forwards: bool) -> None:
        self.cuts = 0
        self.port = 0
        self.requests = b""
        self._handlers: set[asyncio.Task[None]] = set()
        self._server = server
        self._text = text
        self._forwards = forwards

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._connected, "127.0.0.1")
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        await self._listener.wait_closed()
        # Each ends with the client's goodbye, which the client does not await: no socket may outlive the
        # test.
        async with asyncio.timeout(30):
            await asyncio.gather(*self._handlers, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.current_task()
        assert handler is not None
        self._handlers.add(handler)
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._server.port)
        answers = asyncio.create_task(self._answer(from_server, writer))
        while data := await reader.read(65536):
            if self._text in data and not self.cuts:
                self.cuts += 1
                await self._cut(answers, from_server, to_server, data)
                break
            self.requests += data
            to_server.write(data)
        answers.cancel()
        await asyncio.wait([answers])
        for each in (to_server, writer):
            each.close()
            await each.wait_closed()

    async def _cut(
        self,
        answers: asyncio.Task[None],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        data: bytes,
    ) -> None:
        answers.cancel()
        await asyncio.wait([answers])
        if self._forwards:
            writer.write(data)
            # The answer proves that the request was executed; the client does not get it.
            await reader.read(1)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)


FIRST, SECOND = ArbiterRecord(1, "a"), ArbiterRecord(2, "b")
# Types of requests (zookeeper.jute and ZooDefs.OpCode).
SYNC, GET_DATA = 9, 4


def types(requests: bytes) -> list[int]:
    """Return the types of the requests of one connection, after the session request."""
    found, at = [], 0
    while at < len(requests):
        length, _xid, kind = struct.unpack_from(">iii", requests, at)
        found.append(kind)
        at += 4 + length
    return found[1:]


async def test_a_reading_follows_a_sync(zookeeper: ZooKeeper, path: str) -> None:
    """A server may lag behind the ensemble: without it a primary would continue on an old record."""
    assert await open_arbiter(zookeeper.url(path)).compare_and_set(ArbiterRecord(), FIRST)
    async with Cut(zookeeper, b"nothing is cut", forwards=True) as proxy:
        assert await open_arbiter(f"zookeeper:127.0.0.1:{proxy.port}{path}").read() == FIRST
    assert [kind for kind in types(proxy.requests) if kind in (SYNC, GET_DATA)] == [SYNC, GET_DATA]


@pytest.fixture
def path(paths: Iterator[int]) -> str:
    return f"/haclient/alone-{next(paths)}"


@pytest.fixture
def client(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.address)
    client.start()
    with closing(client):
        yield client
        client.stop()


@pytest.mark.slow
async def test_a_server_that_does_not_answer_is_unavailable_in_time(zookeeper: ZooKeeper, path: str) -> None:
    arbiter = open_arbiter(zookeeper.url(path), timeout=1.5)
    assert await arbiter.compare_and_set(ArbiterRecord(), FIRST)
    zookeeper.pause()
    try:
        for call in (arbiter.read(), arbiter.compare_and_set(FIRST, SECOND)):
            started = time.monotonic()
            with pytest.raises(ArbiterUnavailableError, match=r"did not answer within 1.5 s"):
                await call
            assert time.monotonic() - started < 4.0
    finally:
        zookeeper.resume()
    assert await arbiter.read() in (FIRST, SECOND)


async def test_a_port_where_nobody_listens_is_unavailable_in_time() -> None:
    arbiter = open_arbiter(f"zookeeper:127.0.0.1:{free_port()}/haclient", timeout=0.5)
    with pytest.raises(ArbiterUnavailableError, match="did not answer within"):
        await arbiter.read()


async def test_another_server_is_asked_when_the_first_is_down(zookeeper: ZooKeeper, path: str) -> None:
    arbiter = open_arbiter(f"zookeeper:127.0.0.1:{free_port()},{zookeeper.address}{path}")
    assert await arbiter.compare_and_set(ArbiterRecord(), FIRST)


@pytest.mark.parametrize("forwards", [True, False])
async def test_when_the_connection_is_lost_in_a_set_the_record_shows_how_it_ended(
    zookeeper: ZooKeeper, path: str, *, forwards: bool
) -> None:
    assert await open_arbiter(zookeeper.url(path)).compare_and_set(ArbiterRecord(), FIRST)
    asked = ArbiterRecord(2, "in the middle")
    async with Cut(zookeeper, asked.claim.encode(), forwards=forwards) as proxy:
        arbiter = open_arbiter(f"zookeeper:127.0.0.1:{proxy.port}{path}")
        assert await arbiter.compare_and_set(FIRST, asked)
        assert proxy.cuts == 1
    assert await open_arbiter(zookeeper.url(path)).read() == asked


@pytest.mark.slow
async def test_a_server_that_is_killed_and_started_again_has_the_record(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with ZooKeeper(tmp_path_factory.mktemp("restarted")) as server:
        arbiter = open_arbiter(server.url("/haclient"))
        assert await arbiter.compare_and_set(ArbiterRecord(), FIRST)
        server.stop()
        server.start()
        assert await arbiter.read() == FIRST
        assert await arbiter.compare_and_set(FIRST, SECOND)


@pytest.mark.parametrize("call", ["read", "compare_and_set"])
async def test_a_deleted_record_is_no_new_cluster(
    zookeeper: ZooKeeper, client: KazooClient, path: str, call: str
) -> None:
    arbiter = open_arbiter(zookeeper.url(path))
    assert await arbiter.compare_and_set(ArbiterRecord(), FIRST)
    await asyncio.to_thread(client.delete, f"{path}/record")
    with pytest.raises(ArbiterUnavailableError, match="deleted"):
        await (arbiter.read() if call == "read" else arbiter.compare_and_set(ArbiterRecord(), FIRST))


async def test_a_corrupted_record_is_not_believed(
    zookeeper: ZooKeeper, client: KazooClient, path: str
) -> None:
    arbiter = open_arbiter(zookeeper.url(path))
    assert await arbiter.compare_and_set(ArbiterRecord(), FIRST)
    await asyncio.to_thread(client.set, f"{path}/record", b"")
    with pytest.raises(ArbiterUnavailableError, match="record is corrupted"):
        await arbiter.compare_and_set(FIRST, SECOND)


async def test_a_node_that_somebody_made_before_is_a_place_for_a_new_record(
    zookeeper: ZooKeeper, client: KazooClient, path: str
) -> None:
    await asyncio.to_thread(client.create, path, b"", makepath=True)
    arbiter = open_arbiter(zookeeper.url(path))
    assert await arbiter.read() == ArbiterRecord()
    assert await arbiter.compare_and_set(ArbiterRecord(), FIRST)


# -- credentials ------------------------------------------------------------------------------------


def with_credentials(zookeeper: ZooKeeper, path: str, user: str = "us%40er", word: str = "p%2Fw%3A") -> str:
    return f"zookeeper:{user}:{word}@{zookeeper.address}{path}"


def refused_to(client: KazooClient, path: str) -> None:
    """Assert that clients without the credentials can only see that a node exists."""
    for node in (f"{path}/record", f"{path}/initialised"):
        for call in (
            lambda node=node: client.get(node),
            lambda node=node: client.set(node, b"forged"),
            lambda node=node: client.delete(node),
            lambda node=node: client.set_acls(node, OPEN_ACL_UNSAFE),
        ):
            with pytest.raises(NoAuthError):
                call()
    with pytest.raises(NoAuthError):
        client.create(f"{path}/another", b"")


async def test_nobody_without_the_credentials_reads_or_writes_the_record(
    zookeeper: ZooKeeper, path: str, client: KazooClient
) -> None:
    arbiter = open_arbiter(with_credentials(zookeeper, path))
    assert await arbiter.compare_and_set(ArbiterRecord(), FIRST)
    assert await open_arbiter(with_credentials(zookeeper, path)).compare_and_set(FIRST, SECOND)
    refused_to(client, path)
    for url in (zookeeper.url(path), with_credentials(zookeeper, path, word="planted")):
        stranger = open_arbiter(url)
        for call in (stranger.read(), stranger.compare_and_set(SECOND, ArbiterRecord(3, "c"))):
            with pytest.raises(ArbiterUnavailableError, match=r"nodes in .* are another user's") as refused:
                await call
            assert "planted" not in str(refused.value)
    assert await arbiter.read() == SECOND


async def test_the_nodes_of_an_arbiter_without_credentials_become_theirs_who_bring_some(
    zookeeper: ZooKeeper, path: str, client: KazooClient
) -> None:
    assert await open_arbiter(zookeeper.url(path)).compare_and_set(ArbiterRecord(), FIRST)
    arbiter = open_arbiter(with_credentials(zookeeper, path))
    assert await arbiter.read() == FIRST
    assert await arbiter.compare_and_set(FIRST, SECOND)
    refused_to(client, path)
    assert await arbiter.read() == SECOND


async def test_clusters_with_different_credentials_are_side_by_side(
    zookeeper: ZooKeeper, paths: Iterator[int]
) -> None:
    parent = f"/shared-{next(paths)}"
    for name in ("one", "two"):
        arbiter = open_arbiter(with_credentials(zookeeper, f"{parent}/{name}", user=name))
        assert await arbiter.compare_and_set(ArbiterRecord(), FIRST)


async def test_a_connection_that_is_lost_in_a_set_with_credentials_is_no_refusal(
    zookeeper: ZooKeeper, path: str
) -> None:
    async with Cut(zookeeper, SECOND.claim.join('""').encode(), forwards=True) as proxy:
        arbiter = open_arbiter(f"zookeeper:u:p@127.0.0.1:{proxy.port}{path}")
        assert await arbiter.compare_and_set(ArbiterRecord(), FIRST)
        assert await arbiter.compare_and_set(FIRST, SECOND)
        assert proxy.cuts == 1
        assert await arbiter.read() == SECOND
