"""A call that is cancelled, interrupted or timed out leaves no partial work behind."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

import haclient
from haclient import Message, State, aio
from haclient.errors import ReceiveTimeout, SendTimeout
from haclient.events import AttemptStarted, Closed
from haclient.testing.threads import in_thread
from tests.peers import BEHAVIOURS, Peer, primary, url
from tests.peers.apis import API
from tests.peers.process import primary_process
from tests.peers.watch import Watch

NOBODY = Peer("127.0.0.1", 1)


# -- asyncio: cancellation --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["syn_drop", "silence", "refused", "redirect_loop"])
async def test_a_cancelled_connect_leaves_no_task_and_no_socket(name: str) -> None:
    watch = Watch()
    async with BEHAVIOURS[name](NOBODY) as peer:
        connecting = asyncio.ensure_future(aio.connect(url(peer), on_event=watch))
        await watch.until(AttemptStarted)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await watch.until(Closed)
        ours = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("haclient")]
        assert ours == []


async def test_a_cancelled_send_is_withdrawn_when_it_has_not_left() -> None:
    async with primary(grants=0) as peer, aio.connect(url(peer)) as connection:
        sender = await connection.create_sender("q")
        sending = asyncio.ensure_future(sender.send(Message(body="cancelled")))
        await asyncio.sleep(0)
        assert sender.unsettled == 1
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert sender.unsettled == 0
        after = await sender.submit(Message(body="after"))
        peer.grant(10)
        await after
        assert peer.bodies == ["after"]


async def test_a_cancelled_wait_for_the_window_gives_its_place_to_the_next() -> None:
    async with primary(grants=0) as peer, aio.connect(url(peer, window=1)) as connection:
        sender = await connection.create_sender("q")
        first = await sender.submit(Message(body=1))
        waiting = [asyncio.ensure_future(sender.send(Message(body=body))) for body in (2, 3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        peer.grant(10)
        await asyncio.wait_for(asyncio.gather(first, waiting[1]), 5)
        assert peer.bodies == [1, 3]


async def test_a_cancelled_receive_loses_no_message() -> None:
    async with primary() as peer, aio.connect(url(peer)) as connection:
        receiver = await connection.create_receiver("q")
        receiving = [asyncio.ensure_future(receiver.receive()) for _ in range(2)]
        await asyncio.sleep(0)
        peer.put("q", "one")
        while not receiver._core.inbox:  # noqa: ASYNC110 - the very turn in which it wakes the first
            await asyncio.sleep(0)
        receiving[0].cancel()
        delivery = await asyncio.wait_for(receiving[1], 5)
        assert delivery.message.body == "one"


# -- both APIs ---------------------------------------------------------------------------------


async def test_a_cancelled_future_withdraws_a_message_that_has_not_left(api: API) -> None:
    async with primary(grants=0) as peer:
        connection = await api.connect(url(peer))
        sender = await connection.create_sender("q")
        futures = [await sender.submit(Message(body=body)) for body in range(3)]
        futures[1].cancel()
        peer.grant(10)
        await asyncio.gather(futures[0], futures[2])
        await sender.flush(timeout=5)
        assert peer.bodies == [0, 2]
        await connection.close()


async def test_a_send_that_times_out_before_it_left_never_leaves(api: API) -> None:
    async with primary(grants=0) as peer:
        connection = await api.connect(url(peer))
        sender = await connection.create_sender("q")
        with pytest.raises(SendTimeout) as caught:
            await sender.send(Message(body="too late"), timeout=0.05)
        assert caught.value.delivered is False
        assert caught.value.safe_to_retry
        assert sender.unsettled == 0
        after = await sender.submit(Message(body="after"))
        peer.grant(10)
        assert (await after).accepted
        assert peer.bodies == ["after"]
        await connection.close()


async def test_a_send_that_times_out_on_the_wire_is_not_sent_again(api: API) -> None:
    async with primary(outcome=None) as peer:
        connection = await api.connect(url(peer))
        sender = await connection.create_sender("q")
        with pytest.raises(SendTimeout) as caught:
            await sender.send(Message(body="unsettled"), timeout=0.05)
        assert caught.value.delivered is None
        assert not caught.value.safe_to_retry
        peer.outcome = haclient.outcome.ACCEPTED
        peer.drop()
        assert (await sender.send(Message(body="after"))).accepted
        assert peer.bodies == ["unsettled", "after"]
        assert peer.copies == 0
        await connection.close()


async def test_a_full_window_and_an_empty_queue_time_out(api: API) -> None:
    async with primary(grants=0) as peer:
        connection = await api.connect(url(peer, window=1, send_timeout=0.05))
        sender = await connection.create_sender("q")
        receiver = await connection.create_receiver("q")
        await sender.submit(Message(body="fills the window"))
        for call in (sender.send, sender.submit):
            with pytest.raises(SendTimeout) as caught:
                await call(Message(body="no room"))
            assert caught.value.delivered is False
        with pytest.raises(SendTimeout):
            await sender.flush(timeout=0.05)
        with pytest.raises(ReceiveTimeout):
            await receiver.receive(timeout=0.05)
        assert connection.state is State.CONNECTED
        await connection.close()


# -- blocking: an interrupt in the main thread ------------------------------------------------


class Interrupt(KeyboardInterrupt):
    """The error that Ctrl-C raises, distinct from an interrupt by a person."""


@contextmanager
def interrupted_when(ready: Callable[[], bool]) -> Iterator[None]:
    """Interrupt the main thread once, as soon as a condition is true."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        raise Interrupt

    def watch() -> None:
        while not ready() and not over.wait(0.005):
            pass
        if not over.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    over = threading.Event()
    before = signal.signal(signal.SIGUSR1, handle)
    watcher = threading.Thread(target=watch, name="interrupter")
    try:
        watcher.start()
        with pytest.raises(Interrupt):
            yield
    finally:
        over.set()
        watcher.join()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("name", ["syn_drop", "silence", "refused"])
def test_an_interrupted_connect_ends_its_thread_and_its_sockets(name: str) -> None:
    events: list[object] = []
    before = set(threading.enumerate())
    with in_thread(BEHAVIOURS[name](NOBODY)) as peer:
        with interrupted_when(lambda: bool(events)):
            haclient.connect(url(peer), on_event=events.append)
        ours = [t for t in set(threading.enumerate()) - before if t.name.startswith("haclient")]
        for thread in ours:
            thread.join(5)
            assert not thread.is_alive()


def test_an_interrupted_close_publishes_closed_and_ends_its_thread() -> None:
    events: list[object] = []
    before = set(threading.enumerate())
    with primary_process() as process:
        connection = haclient.connect(url(*process.peers, close_timeout=600), on_event=events.append)
        process.signal(signal.SIGSTOP)
        with interrupted_when(lambda: connection.state is State.CLOSED):
            connection.close()
        for thread in set(threading.enumerate()) - before:
            thread.join(5)
            assert not thread.is_alive(), thread
    assert isinstance(events[-1], Closed)


def test_an_interrupted_send_is_withdrawn_and_the_connection_goes_on() -> None:
    with in_thread(primary(grants=0)) as peer, haclient.connect(url(peer)) as connection:
        sender = connection.create_sender("q")
        with interrupted_when(lambda: sender.unsettled == 1):
            sender.send(Message(body="interrupted"))
        assert sender.unsettled == 0
        assert connection.state is State.CONNECTED


def test_an_interrupted_send_many_is_withdrawn_and_the_connection_goes_on() -> None:
    with in_thread(primary(grants=0)) as peer, haclient.connect(url(peer, window=3)) as connection:
        sender = connection.create_sender("q")
        with interrupted_when(lambda: sender.unsettled == 3):
            sender.send_many(str(number) for number in range(10))
        assert sender.unsettled == 0
        assert connection.state is State.CONNECTED
        peer.grants = 10
        peer.drop()
        sender.send("next", timeout=30)
        assert peer.bodies == ["next"]


def test_an_interrupted_receive_loses_no_message() -> None:
    with in_thread(primary()) as peer, haclient.connect(url(peer)) as connection:
        receiver = connection.create_receiver("q")
        with interrupted_when(lambda: bool(receiver._core._waiting)):
            receiver.receive()
        connection.create_sender("q")  # a round trip: the wait that was interrupted has ended
        engine, _ = next(iter(peer.engines.items()))
        engine._loop.call_soon_threadsafe(peer.put, "q", "one")
        assert receiver.receive(timeout=5).message.body == "one"


@pytest.mark.parametrize("create", ["create_sender", "create_receiver"])
def test_an_interrupt_just_after_a_link_was_attached_leaves_no_link(
    monkeypatch: pytest.MonkeyPatch, create: str
) -> None:
    with in_thread(primary()) as peer, haclient.connect(url(peer)) as connection:
        call = connection._thread.call

        def interrupted(coroutine: Coroutine[Any, Any, object]) -> None:
            call(coroutine)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(connection._thread, "call", interrupted)
            with pytest.raises(KeyboardInterrupt):
                getattr(connection, create)("q", name="mine")
        getattr(connection, create)("q", name="mine").close()
