"""Clients for testing a broker: proton's own blocking one in a thread, and a bare engine."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, TypeVar

import proton
from proton.utils import BlockingConnection

from broker_stub.broker import Broker, BrokerOptions
from broker_stub.election.roles import Membership, Role
from broker_stub.local_cluster.member_process import free_addresses
from broker_stub.management.queues import queue_facts
from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.owner import CloseReason
from haclient.engine.protocol import Engine
from haclient.engine.settings import Settings
from haclient.outcome import ACCEPTED, Outcome
from tests.forked import ForkedMember

T = TypeVar("T")
PRIMARY = Membership(Role.PRIMARY, 1)


@asynccontextmanager
async def running(membership: Membership = PRIMARY, **options: Any) -> AsyncIterator[Broker]:
    async with Broker(BrokerOptions(membership=membership, **options)) as broker:
        yield broker


def queue_status(broker: Broker) -> list[dict[str, Any]]:
    """Return each queue with its depth and counters."""
    return [queue_facts(queue) for queue in broker.addresses]


@asynccontextmanager
async def member(directory: Path, *arguments: str) -> AsyncIterator[Endpoint]:
    """Run a member in its own process.

    Anonymous clients are admitted as well, unless the arguments say otherwise.
    """
    [address] = free_addresses((Endpoint("127.0.0.1", 0, tls="--tls-cert" in arguments),))
    process = ForkedMember(
        ("--listen", address.authority, "--anonymous", *arguments), directory / "member.log"
    )
    await process.start()
    try:
        yield address
    finally:
        await process.stop()


async def blocking(broker: Broker, use: Callable[[BlockingConnection], T], **options: Any) -> T:
    """Run ``use`` with proton's BlockingConnection in a thread."""

    def run() -> T:
        with closing(BlockingConnection(str(broker.address), timeout=5, **options)) as connection:
            return use(connection)

    return await asyncio.to_thread(run)


def offered_mechanisms(authority: str) -> bytes:
    """Read the frame with a member's SASL mechanisms from a bare socket."""
    host, _, port = authority.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as bare:
        bare.sendall(b"AMQP\x03\x01\x00\x00")
        stream = bare.makefile("rb")
        assert stream.read(8) == b"AMQP\x03\x01\x00\x00"
        size = int.from_bytes(stream.read(4))
        return stream.read(size - 4)


async def until(condition: Callable[[], bool]) -> None:
    """Poll a condition without an event: a counter, the end of a foreign process."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)


class Client:
    """A bare engine whose every event can be awaited."""

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.session: proton.Session | None = None
        self.received: asyncio.Queue[tuple[Any, Any, proton.Message]] = asyncio.Queue()
        self.outcomes: asyncio.Queue[Outcome | None] = asyncio.Queue()
        self.links: asyncio.Queue[tuple[str, Any, Any]] = asyncio.Queue()
        self.begun = asyncio.Event()
        self.properties: Any = None
        self.close_reason: asyncio.Future[CloseReason] = asyncio.get_running_loop().create_future()
        self.credit = asyncio.Event()
        self.close_condition: proton.Condition | None = None

    async def connect(
        self, address: Endpoint, *, tls: ssl.SSLContext | None = None, **settings: Any
    ) -> Client:
        loop = asyncio.get_running_loop()
        made = Settings(**{"container_id": "test", **settings})
        _, engine = await loop.create_connection(
            lambda: Engine(self, made, loop),
            address.host,
            address.port,
            ssl=tls,
            server_hostname=None if tls is None else made.tls_name,
        )
        self.engine = engine
        engine.open()
        self.session = engine.begin()
        return self

    async def attach(
        self,
        role: str,
        name: str,
        address: str | None = None,
        *,
        link_properties: dict[Any, Any] | None = None,
        **source: Any,
    ) -> Any:
        """Attach a link of that role; return it when it is answered, or raise its refusal."""
        assert self.engine is not None
        link = getattr(self.engine, role)(self.session, name, self)
        link.endpoint.properties = link_properties
        if role == "sender":
            link.endpoint.target.address = address
        else:
            link.endpoint.source.address = address
            for key, value in source.items():
                setattr(link.endpoint.source, key, value)
        self.engine.attach(link)
        return await self.answered(link)

    async def answered(self, link: Any) -> Any:
        async with asyncio.timeout(5):
            kind, which, condition = await self.links.get()
            assert which is link
            if kind == "refused":
                kind, which, condition = await self.links.get()
        if kind == "closed":
            raise LinkRefusedError(
                condition.name if condition else "", condition.description if condition else ""
            )
        return link

    async def send(self, link: Any, *messages: proton.Message, settled: bool = False) -> list[Outcome | None]:
        async with asyncio.timeout(5):
            for message in messages:
                while link.credit <= 0:
                    self.credit.clear()
                    await self.credit.wait()
                link.send(bytes(message.encode()), None, settled=settled)
            return [] if settled else [await self.outcomes.get() for _ in messages]

    async def receive(self, outcome: Outcome | None = ACCEPTED) -> proton.Message:
        async with asyncio.timeout(5):
            link, delivery, message = await self.received.get()
        if outcome is not None and delivery is not None:
            link.settle(delivery, outcome)
        return message

    async def end(self) -> CloseReason:
        async with asyncio.timeout(5):
            return await asyncio.shield(self.close_reason)

    async def close(self) -> None:
        assert self.engine is not None
        self.engine.close()
        await self.end()

    def opened(self, engine: Engine) -> None:
        self.properties = engine.connection.remote_properties

    def session_opened(self, engine: Engine, session: proton.Session) -> None:
        self.begun.set()

    def link_requested(self, engine: Engine, link: Any) -> None:
        raise AssertionError("a broker attaches no links")

    def link_opened(self, link: Any) -> None:
        remote = link.endpoint.remote_target if link.endpoint.is_sender else link.endpoint.remote_source
        # Without a terminus it is the first half of a refusal: AMQP 1.0 part 2, section 2.6.3.
        refused = remote.type == proton.Terminus.UNSPECIFIED
        self.links.put_nowait(("refused" if refused else "opened", link, None))

    def link_closed(self, link: Any, condition: proton.Condition | None) -> None:
        self.links.put_nowait(("closed", link, condition))

    def credit_given(self, link: Any) -> None:
        self.credit.set()

    def settled(self, link: Any, token: Any, outcome: Outcome | None) -> None:
        self.outcomes.put_nowait(outcome)

    def delivered(self, link: Any, delivery: Any, data: bytes) -> None:
        message = proton.Message()
        message.decode(data)
        self.received.put_nowait((link, delivery, message))

    def peer_closed(self, engine: Engine, condition: proton.Condition | None) -> None:
        self.close_condition = condition

    def writable_again(self, engine: Engine) -> None: ...

    def ended(self, engine: Engine, reason: CloseReason) -> None:
        if not self.close_reason.done():
            self.close_reason.set_result(reason)


class LinkRefusedError(Exception):
    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
