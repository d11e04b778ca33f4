"""A plan's calls over the asyncio API: many at once, on one connection."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

from haclient import State, aio
from haclient.errors import HaclientError, ReceiveTimeout, SendTimeout, StaleDelivery
from tests.failover.calls import book
from tests.failover.calls.plan import Kind, Step
from tests.peers.cutting import cut

_AT_ONCE = 40

Scene = book.Scene[aio.Connection, aio.Sender, aio.Receiver]


def run(setting: book.Setting, plan: list[Step] | None) -> None:
    """Run a plan, or without one the directed cases, over a new connection."""
    asyncio.run(_run(setting, plan))


async def _run(setting: book.Setting, plan: list[Step] | None) -> None:
    async with aio.ConnectionFactory(setting.url, **setting.options) as factory:
        connection = await factory.connect()
        sender = await connection.create_sender(setting.queue)
        receiver = await connection.create_receiver(setting.feed, credit=10)
        setting.book.watch(sender._core)
        scene = Scene(setting, connection, sender, receiver)
        with setting.book.watching_same_turns():
            await (_directed(scene) if plan is None else _chance(scene, plan))
        scene.route.heal()
        await _settled(scene)
        scene.book.left = book.leftovers(factory._core, sender._core, receiver._core)
        await _close(scene)


async def _settled(scene: Scene) -> None:
    """Wait for the outcome of a message that was on the wire when its future was cancelled."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(book.HUNG):
            while scene.sender.unsettled or scene.connection.state is not State.CONNECTED:  # noqa: ASYNC110
                await asyncio.sleep(0.002)


async def _close(scene: Scene) -> None:
    """Close with unsettled messages: each of their futures resolves."""
    futures = []
    for _ in range(book.AT_CLOSE):
        number, message = scene.message()
        try:
            futures.append((number, await scene.sender.submit(message, timeout=0)))
        except SendTimeout as error:
            scene.book.failed(number, error)
    await scene.connection.close()
    for number, future in futures:
        await _outcome(scene, number, future)


# -- by chance ------------------------------------------------------------------------------------


async def _chance(scene: Scene, plan: list[Step]) -> None:
    tasks: dict[asyncio.Task[None], Step] = {}
    for step in plan:
        scene.route.apply(step)
        task = asyncio.create_task(_CALLS[step.kind](scene, step.seconds))
        tasks[task] = step
        task.add_done_callback(tasks.pop)
        await asyncio.sleep(step.amount * book.PAUSE)
        if len(tasks) >= _AT_ONCE:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=book.HUNG)
    scene.route.heal()
    if tasks:
        await asyncio.wait(tasks, timeout=book.HUNG)
    scene.book.hung += [str(step) for step in tasks.values()]


async def _send(scene: Scene, seconds: float | None) -> None:
    number, message = scene.message()
    try:
        await scene.sender.send(message, timeout=seconds)
    except HaclientError as error:
        scene.book.failed(number, error)
    else:
        scene.book.accepted(number)


async def _send_again(scene: Scene, seconds: float) -> None:
    number, message = scene.message()
    try:
        await scene.sender.send(message, timeout=seconds)
    except SendTimeout as error:
        again = scene.sender.send(message, duplicate_id=error.duplicate_id)
        await _outcome(scene, number, asyncio.ensure_future(again))
    except HaclientError as error:
        scene.book.failed(number, error)
    else:
        scene.book.accepted(number)


async def _send_patiently(scene: Scene, _seconds: float) -> None:
    await _send(scene, None)


async def _send_cancelled(scene: Scene, seconds: float) -> None:
    number, message = scene.message()
    task = asyncio.create_task(scene.sender.send(message))
    await asyncio.wait([task], timeout=seconds)
    task.cancel()
    await _outcome(scene, number, task)


async def _submit(scene: Scene, seconds: float) -> None:
    number, message = scene.message()
    try:
        future = await scene.sender.submit(message, timeout=seconds)
    except HaclientError as error:
        scene.book.failed(number, error)
    else:
        await _outcome(scene, number, future)


async def _submit_cancelled(scene: Scene, seconds: float) -> None:
    number, message = scene.message()
    future = await scene.sender.submit(message)
    await asyncio.wait([future], timeout=seconds)
    if future.done() and future.exception() is None:
        scene.book.count(book.CANCELLED_AFTER)
    future.cancel()
    await _outcome(scene, number, future)


async def _outcome(scene: Scene, number: int, future: asyncio.Future[Any]) -> None:
    await asyncio.wait([future], timeout=book.HUNG)
    if not future.done():
        scene.book.hung.append(f"message {number}")
    elif future.cancelled():
        scene.book.cancelled(number)
    elif isinstance(error := future.exception(), HaclientError):
        scene.book.failed(number, error)
    else:
        future.result()
        scene.book.accepted(number)


async def _receive(scene: Scene, seconds: float) -> None:
    with contextlib.suppress(ReceiveTimeout):
        await _take(scene, await scene.receiver.receive(timeout=seconds))


async def _receive_cancelled(scene: Scene, seconds: float) -> None:
    task = asyncio.create_task(scene.receiver.receive())
    await asyncio.wait([task], timeout=seconds)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await _take(scene, await task)


async def _take(scene: Scene, delivery: aio.Delivery) -> None:
    scene.book.received(book.number_of(delivery.message))
    with contextlib.suppress(StaleDelivery):
        await delivery.accept()


async def _flush(scene: Scene, seconds: float) -> None:
    with contextlib.suppress(SendTimeout):
        await scene.sender.flush(timeout=seconds)


async def _link(scene: Scene, seconds: float) -> None:
    task = asyncio.create_task(scene.connection.create_sender("nobody's"))
    await asyncio.wait([task], timeout=seconds)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await (await task).close()


async def _events(scene: Scene, seconds: float) -> None:
    events = scene.connection.events()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await anext(events)


_CALLS: dict[Kind, Callable[[Scene, float], Awaitable[None]]] = {
    Kind.SEND: _send,
    Kind.SEND_AGAIN: _send_again,
    Kind.SEND_CANCELLED: _send_cancelled,
    Kind.SEND_PATIENTLY: _send_patiently,
    Kind.FUTURE: _submit,
    Kind.FUTURE_CANCELLED: _submit_cancelled,
    Kind.RECEIVE: _receive,
    Kind.RECEIVE_CANCELLED: _receive_cancelled,
    Kind.FLUSH: _flush,
    Kind.LINK: _link,
    Kind.EVENTS: _events,
}


# -- directed cases, which chance may not produce -------------------------------------------------


async def _directed(scene: Scene) -> None:
    for case, make in zip(book.CASES, _MAKERS, strict=True):
        before = scene.book.cases[case]
        async with asyncio.timeout(book.HUNG):
            while scene.book.cases[case] == before:
                await _connected(scene)
                await make(scene)


async def _connected(scene: Scene) -> None:
    scene.route.heal()
    await _send(scene, None)


async def _before_the_wire(scene: Scene) -> None:
    scene.route.refuse()
    while scene.connection.state is State.CONNECTED:  # noqa: ASYNC110 - the state is what a caller sees
        await asyncio.sleep(0.002)
    await _send(scene, 0.01)


async def _after_the_wire(scene: Scene) -> None:
    scene.route.hold()
    await _send(scene, 0.05)


async def _same_turn(scene: Scene) -> None:
    """Block the loop while the outcome arrives and the time runs out."""
    scene.route.hold()
    call = asyncio.create_task(_send(scene, 0.2))
    await asyncio.sleep(0.05)
    scene.route.release()
    time.sleep(0.5)
    await call


async def _cancelled_after(scene: Scene) -> None:
    """Block the loop while the outcome arrives and the cancellation falls due."""
    scene.route.hold()
    number, message = scene.message()
    task = asyncio.create_task(scene.sender.send(message))

    def cancel() -> None:
        if not scene.sender.unsettled and not task.done():
            scene.book.count(book.CANCELLED_AFTER)
        task.cancel()

    asyncio.get_running_loop().call_later(0.2, cancel)
    await asyncio.sleep(0.05)
    scene.route.release()
    time.sleep(0.5)
    await _outcome(scene, number, task)


async def _end_of_engine(scene: Scene) -> None:
    number, message = scene.message()
    cut(scene.connection)
    await _outcome(scene, number, await scene.sender.submit(message))


async def _pointer_again(scene: Scene) -> None:
    for _ in range(5):
        await _send(scene, None)


# In the order of ``book.CASES``.
_MAKERS = (_before_the_wire, _after_the_wire, _same_turn, _cancelled_after, _end_of_engine, _pointer_again)
