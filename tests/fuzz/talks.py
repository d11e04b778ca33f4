"""Valid traffic for the seeds of the links: talks of clients, and the members that answer."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

import proton

from broker_stub.admission.user_file import DEFAULT_ADMIN
from broker_stub.amqp.node_names import QUEUE_TYPE
from broker_stub.broker import BrokerOptions
from broker_stub.election.roles import Membership, Role
from broker_stub.queueing.site_state import REPLICATION_QUEUE
from haclient import Token, aio
from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.settings import PARK
from haclient.errors import HaclientError
from tests.broker_stub import raw_client
from tests.fuzz import members, pair, script
from tests.fuzz.script import Step
from tests.fuzz.targets.client_users import USER
from tests.fuzz.targets.server_tokens import VALID
from tests.fuzz.targets.server_users import PASSWORDS

Talk = Callable[[aio.Connection], Awaitable[None]]


async def _send(connection: aio.Connection) -> None:
    sender = await connection.create_sender("orders")
    await sender.send(proton.Message(body="one", durable=True, subject="s"))
    await sender.send_many(
        [b"two", "three", proton.Message(body={"a": [1, 2]}, properties={"key": 1}, ttl=5)]
    )
    await sender.close()


async def _receive(connection: aio.Connection) -> None:
    await _send(connection)
    receiver = await connection.create_receiver("orders", credit=3)
    for settle in ("accept", "release", "reject"):
        delivery = await receiver.receive(timeout=5)
        await getattr(delivery, settle)()
    await receiver.drain()
    await receiver.close()


async def _large(connection: aio.Connection) -> None:
    sender = await connection.create_sender("large")
    await sender.send(b"x" * 3000)
    receiver = await connection.create_receiver("large", credit=1)
    await (await receiver.receive(timeout=5)).accept()


async def _anonymous(connection: aio.Connection) -> None:
    sender = await connection.create_sender(None)
    for address in ("orders", "topics/a.b", "topics"):
        await sender.send(proton.Message(address=address, body="one", subject="a.c"))
    with contextlib.suppress(HaclientError):
        await sender.send(proton.Message(address="topics/z", body="none wants it"))


async def _exchange(connection: aio.Connection) -> None:
    receiver = await connection.create_receiver("topics/#")
    sender = await connection.create_sender("topics")
    await sender.send(proton.Message(body="one", subject="a.b"))
    await (await receiver.receive(timeout=5)).accept()
    await receiver.close()


async def _browse(connection: aio.Connection) -> None:
    sender = await connection.create_sender("orders")
    await sender.send_many(["one", "two"])
    receiver = await connection.create_receiver("orders", browse=True, selector="a = 1", strict=False)
    await (await receiver.receive(timeout=5)).accept()


async def _temporary(connection: aio.Connection) -> None:
    receiver = await connection.create_receiver(None, dynamic=True)
    sender = await connection.create_sender(receiver.address)
    await sender.send("one")
    await (await receiver.receive(timeout=5)).release()


async def _subscribe(connection: aio.Connection) -> None:
    with contextlib.suppress(HaclientError):
        await connection.subscribe("topics", name="n", durable=True, shared=True)


async def _manage(connection: aio.Connection) -> None:
    receiver = await connection.create_receiver("orders")
    with contextlib.suppress(HaclientError):
        sender = await connection.create_sender("$management")
        properties = {"operation": "CREATE", "type": QUEUE_TYPE, "name": "made"}
        await sender.send(proton.Message(id=1, reply_to="orders", properties=properties, body={}))
        await receiver.receive(timeout=5)


async def _follow(connection: aio.Connection) -> None:
    sender = await connection.create_sender("sited")
    await sender.send_many(["one", "two"])
    consumer = await connection.create_receiver("sited", credit=1)
    await (await consumer.receive(timeout=5)).accept()
    follower = await connection.create_receiver(REPLICATION_QUEUE, credit=5)
    for settle in ("accept", "accept", "release"):
        await getattr(await follower.receive(timeout=5), settle)()


def _over(
    talk: Talk,
    capabilities: tuple[str, ...] = (),
    credentials: tuple[str, str] | Token | None = None,
    options: str = "",
) -> Callable[[str], Awaitable[None]]:
    async def run(url: str) -> None:
        wanted = f"{url}/?heartbeat=0&startup_deadline=5{options}"
        with contextlib.suppress(HaclientError):
            async with aio.connect(
                wanted, desired_capabilities=capabilities, credentials=credentials
            ) as connection:
                await talk(connection)

    return run


async def feed(url: str) -> None:
    """Send three messages for another site, and consume one."""
    async with aio.connect(url) as connection:
        sender = await connection.create_sender("sited")
        await sender.send_many(["one", proton.Message(body="two", ttl=60), "three"])
        consumer = await connection.create_receiver("sited", credit=1)
        await (await consumer.receive(timeout=5)).accept()


OF_CLIENTS: dict[str, Callable[[str], Awaitable[None]]] = {
    "send": _over(_send),
    "receive": _over(_receive),
    "large": _over(_large),
    "anonymous": _over(_anonymous),
    "exchange": _over(_exchange),
    "browse": _over(_browse),
    "temporary": _over(_temporary),
    "subscribe": _over(_subscribe),
    "manage": _over(_manage),
    "park": _over(_send, (PARK,)),
    "site": _over(_send, ("haclient:follow",)),
    "follow": _over(_follow, ("haclient:follow",)),
}
_ADMIN = DEFAULT_ADMIN, PASSWORDS[DEFAULT_ADMIN]
_GUEST = USER, PASSWORDS[USER]
OF_USERS: dict[str, Callable[[str], Awaitable[None]]] = {
    "send": _over(_receive, credentials=_GUEST),
    "manage": _over(_manage, credentials=_ADMIN),
    "guest-manages": _over(_manage, credentials=_GUEST),
    "wrong-password": _over(_send, credentials=(USER, "wrong")),
}


OF_TOKENS: dict[str, Callable[[str], Awaitable[None]]] = {
    mechanism.lower(): _over(_receive, credentials=Token(VALID), options=f"&sasl_mechanisms={mechanism}")
    for mechanism in ("OAUTHBEARER", "XOAUTH2", "PLAIN", "MSSBCBS")
}


def _again(attach: Callable[..., bytes], role: str) -> Callable[[], list[Step]]:
    """Detach and attach one name again in one loop iteration, with deliveries in flight."""

    def steps() -> Iterator[Step]:
        yield Step(script.Kind.RAW, b"AMQP\x00\x01\x00\x00")
        yield from script.of_wire(raw_client.frame(raw_client.OPEN, ["raw"]) + raw_client.begin())
        yield from script.of_wire(attach(role, 0, "orders"))
        if role == "receiver":
            yield from script.of_wire(raw_client.credit(0, 10))
        for number in range(2):
            frames = raw_client.detach(0) + attach(role, 0, "orders")
            if role == "sender":
                frames = raw_client.transfer(0, number, pair.MESSAGE) + frames
            for step in script.of_wire(frames):
                yield step._replace(at_once=True)

    return lambda: list(steps())


WRITTEN: dict[str, Callable[[], list[Step]]] = {
    "sender-again": _again(raw_client.attach_sender, "sender"),
    "receiver-again": _again(raw_client.attach_receiver, "receiver"),
}

_ELSEWHERE = Membership(role=Role.PASSIVE, generation=1, primary=Endpoint("127.0.0.1", 5672))
MEMBERS: dict[str, BrokerOptions] = {
    "primary": members.OPTIONS,
    "no-queue": replace(members.OPTIONS, auto_create=False),
    "redirect": replace(members.OPTIONS, membership=_ELSEWHERE),
    "passive": replace(members.OPTIONS, membership=Membership()),
}
