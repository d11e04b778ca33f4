"""Objects to be opened: by ``await``, ``async with`` or a task, and the warning if they are not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from haclient import Message, aio
from haclient.errors import ConnectionClosed
from tests.peers import Primary
from tests.peers import primary as scripted_primary


@pytest.fixture
async def peer() -> AsyncIterator[Primary]:
    async with scripted_primary() as peer:
        yield peer


async def test_links_are_awaited_or_entered(peer: Primary) -> None:
    async with aio.connect(f"amqp://{peer.address}") as connection:
        sender = await connection.create_sender("a")
        async with connection.create_sender("b") as other, connection.create_receiver("c") as receiver:
            await sender.send(Message(body=1))
            await other.submit(Message(body=2))
            peer.put("c", "one")
            assert (await receiver.receive()).message.body == "one"
        assert peer.bodies == [1, 2], "the block flushes"
        with pytest.raises(Exception, match="closed"):
            await other.send(Message(body=3))
        await sender.send(Message(body=4))


async def test_tasks_take_them(peer: Primary) -> None:
    connection = await asyncio.create_task(aio.connect(f"amqp://{peer.address}"))
    senders = await asyncio.gather(*(connection.create_sender(name) for name in "abc"))
    assert [each.address for each in senders] == ["a", "b", "c"]
    receiver = await asyncio.wait_for(connection.create_receiver("d"), 10)
    assert receiver.address == "d"
    await connection.close()
    with pytest.raises(ConnectionClosed):
        await connection.create_sender("e")


@pytest.mark.filterwarnings("ignore:.* was never awaited:RuntimeWarning")
async def test_what_is_not_awaited_says_so(peer: Primary) -> None:
    async with aio.connect(f"amqp://{peer.address}") as connection:
        with pytest.raises(AttributeError, match="'send' before it is opened: await it"):
            connection.create_sender("a").send(Message(body=1))  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="await it"):
            async for _ in connection.create_receiver("a"):
                pass
        with pytest.raises(TypeError, match="async with"), aio.connect("amqp://nowhere"):
            pass
        assert peer.attaches == []


def test_what_is_never_awaited_is_a_warning() -> None:
    opening = aio.connect("amqp://nowhere")
    with pytest.warns(RuntimeWarning, match=r"connect\(\) was never awaited"):
        del opening


async def test_one_is_awaited_once(peer: Primary) -> None:
    async with aio.connect(f"amqp://{peer.address}") as connection:
        opening = connection.create_sender("a")
        await opening
        with pytest.raises(RuntimeError, match="awaited already"):
            await opening
        assert not hasattr(opening, "__fspath__")
