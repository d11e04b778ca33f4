"""A single broker makes events of the changes to its queues."""

from __future__ import annotations

from collections.abc import Callable

import proton
import pytest

from broker_stub.broker import Broker
from broker_stub.queueing.message import Replicate
from broker_stub.queueing.nodes import AddressRefusedError
from broker_stub.queueing.site_state import REPLICATION_QUEUE, SITE_PROPERTY, SiteMode
from broker_stub.sites.event import Op
from haclient import aio
from haclient.errors import LinkClosed, LinkRefused
from tests.broker_stub.clients import running, until
from tests.broker_stub.sites.watching import PATIENCE, check_sequence, read_events, replay


def asking(mode: str) -> Callable[[proton.Sender], None]:
    def configure(link: proton.Sender) -> None:
        link.target.properties.put_object({proton.symbol(SITE_PROPERTY): mode})

    return configure


async def send(broker: Broker, queue: str, *bodies: object, **fields: object) -> None:
    async with aio.connect(str(broker.address)) as connection:
        sender = await connection.create_sender(queue)
        for body in bodies:
            await sender.send(proton.Message(body=body, **fields), timeout=PATIENCE)


async def exhaust(receiver: aio.Receiver) -> None:
    while True:
        await receiver.receive(timeout=PATIENCE)


def status(broker: Broker) -> dict[str, object]:
    found: dict[str, object] = broker.site.status()["source"]
    return found


async def test_each_message_is_an_event_with_its_place() -> None:
    async with running() as broker:
        queue = broker.addresses.declare("orders", site=SiteMode.ENQUEUES)
        await send(broker, "orders", "a", "b", "c")
        events = await read_events(str(broker.address), 3)
        check_sequence(events)
        assert [event.position for event in events] == queue.ids()
        assert {event.queue for event in events} == {"orders"}
        message = proton.Message()
        message.decode(events[1].data)
        assert message.body == "b"


async def test_only_in_mode_all_there_is_an_event_for_what_leaves_for_whatever_reason() -> None:
    async with running() as broker:
        for mode in SiteMode:
            broker.addresses.declare(str(mode), site=mode)
            await send(broker, str(mode), 1, 2, 3, 4)
            await send(broker, str(mode), "soon gone", ttl=0.01)
        async with aio.connect(str(broker.address)) as connection:
            for mode in SiteMode:
                receiver = await connection.create_receiver(str(mode), credit=3)
                await (await receiver.receive(timeout=PATIENCE)).accept()
                await (await receiver.receive(timeout=PATIENCE)).reject()
                await (await receiver.receive(timeout=PATIENCE)).release()
        await until(lambda: all(broker.addresses.queue(str(mode)).depth == 2 for mode in SiteMode))
        events = await read_events(str(broker.address), 13)
        check_sequence(events)
        left = replay(events)
        assert left["all"] == broker.addresses.queue("all").ids()
        assert len(left["enqueues"]) == 5
        assert "none" not in left
        assert sum(event.op is Op.DEQUEUE for event in events) == 3


async def test_a_client_asks_for_events_when_its_attach_makes_the_queue() -> None:
    async with running() as broker, aio.connect(str(broker.address)) as connection:
        await connection.create_sender("orders", configure=asking("all"))
        assert broker.addresses.queue("orders").site is SiteMode.ALL


async def test_another_value_is_refused_as_an_invalid_field() -> None:
    async with running() as broker, aio.connect(str(broker.address)) as connection:
        with pytest.raises(LinkRefused, match="none, enqueues, all, and not 'some'") as refused:
            await connection.create_sender("orders", configure=asking("some"))
        assert refused.value.condition == "amqp:invalid-field"
        assert broker.addresses.find_queue("orders") is None


async def test_what_the_backups_lack_has_no_events() -> None:
    async with running() as broker:
        with pytest.raises(AddressRefusedError, match="needs x-qpid-replicate all"):
            broker.addresses.declare("orders", replicate=Replicate.CONFIGURATION, site=SiteMode.ALL)


async def test_no_client_sends_to_the_replication_queue() -> None:
    async with running() as broker, aio.connect(str(broker.address)) as connection:
        with pytest.raises(LinkRefused, match="only the site itself"):
            await connection.create_sender(REPLICATION_QUEUE)


async def test_a_second_reader_takes_over_and_gets_what_the_first_had_not_settled() -> None:
    async with running() as broker, aio.connect(str(broker.address)) as connection:
        broker.addresses.declare("orders", site=SiteMode.ALL)
        await send(broker, "orders", *range(10))
        first = await connection.create_receiver(REPLICATION_QUEUE)
        for _ in range(3):
            await (await first.receive(timeout=PATIENCE)).accept()
        await until(lambda: status(broker)["lag_events"] == 7)
        check_sequence(await read_events(str(broker.address), 7), first=4)
        with pytest.raises(LinkClosed, match="taken over"):
            await exhaust(first)


async def test_the_status_has_last_sequence_and_lag() -> None:
    async with running() as broker:
        assert broker.site.status() == {}
        broker.addresses.declare("orders", site=SiteMode.ALL)
        await send(broker, "orders", 1, 2)
        await read_events(str(broker.address), 1, accept=True)
        await until(lambda: status(broker)["lag_events"] == 1)
        assert status(broker)["last_sequence"] == 2
        assert float(str(status(broker)["lag_seconds"])) >= 0


async def test_a_deleted_replication_queue_begins_a_new_stream() -> None:
    async with running() as broker:
        broker.addresses.declare("orders", site=SiteMode.ENQUEUES)
        await send(broker, "orders", 1)
        [before] = await read_events(str(broker.address), 1)
        broker.addresses.delete(broker.addresses.queue(REPLICATION_QUEUE))
        await send(broker, "orders", 2)
        [after] = await read_events(str(broker.address), 1)
        assert (before.sequence, after.sequence) == (1, 1)
        assert before.stream != after.stream
