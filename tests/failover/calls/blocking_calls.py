"""A plan's calls over the blocking API: several threads that share one connection."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from concurrent.futures import wait as wait_futures
from typing import Any

from haclient import State, blocking
from haclient.errors import HaclientError, LinkTimeout, ReceiveTimeout, SendTimeout, StaleDelivery
from tests.failover.calls import book
from tests.failover.calls.plan import Kind, Step

_THREADS = 8


Scene = book.Scene[blocking.Connection, blocking.Sender, blocking.Receiver]


def run(setting: book.Setting, plan: list[Step] | None) -> None:
    """Run a plan, or without one the directed cases, over a new connection."""
    with blocking.ConnectionFactory(setting.url, **setting.options) as factory:
        connection = factory.connect()
        sender = connection.create_sender(setting.queue)
        receiver = connection.create_receiver(setting.feed, credit=10)
        scene = Scene(setting, connection, sender, receiver)
        setting.book.watch(sender._core)
        if plan is None:
            _directed(scene)
        else:
            _chance(scene, plan)
        scene.route.heal()
        _settled(scene)
        scene.book.left = _on_loop(scene, lambda: book.leftovers(factory._core, sender._core, receiver._core))
        _close(scene)


def _on_loop(scene: Scene, function: Callable[[], Any]) -> Any:
    async def call() -> Any:
        return function()

    return scene.sender._thread.call(call())


def _settled(scene: Scene) -> None:
    """Wait for the outcome of a message that was on the wire when its future was cancelled."""
    until = time.monotonic() + book.HUNG
    while time.monotonic() < until:
        if not scene.sender.unsettled and scene.connection.state is State.CONNECTED:
            return
        time.sleep(0.002)


def _close(scene: Scene) -> None:
    """Close with unsettled messages: each of their futures resolves."""
    futures = []
    for _ in range(book.AT_CLOSE):
        number, message = scene.message()
        try:
            futures.append((number, scene.sender.submit(message, timeout=0)))
        except SendTimeout as error:
            scene.book.failed(number, error)
    scene.connection.close()
    for number, future in futures:
        _outcome(scene, number, future)


# -- by chance ------------------------------------------------------------------------------------


def _chance(scene: Scene, plan: list[Step]) -> None:
    left = iter(plan)
    current: dict[int, Step] = {}

    def work(me: int) -> None:
        while True:
            with scene.lock:
                step = next(left, None)
            if step is None:
                current.pop(me, None)
                return
            current[me] = step
            scene.route.apply(step)
            _CALLS[step.kind](scene, step.seconds)
            time.sleep(step.amount * book.PAUSE)

    with _threads(scene, [lambda me=me: work(me) for me in range(_THREADS)]):  # type: ignore[misc]
        pass
    scene.book.hung += [str(step) for step in current.values()]


@contextlib.contextmanager
def _threads(scene: Scene, works: list[Callable[[], None]]) -> Iterator[None]:
    """Run these beside the body; raise a defect of the test, leave a call that does not return."""
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
        while any(thread.is_alive() for thread in threads[1:]):
            # The last faults of the plan end with it.
            threads[0].join(0.2)
            if not threads[0].is_alive():
                break
        scene.route.heal()
        until = time.monotonic() + book.HUNG
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
    finally:
        if errors:
            raise errors[0]


def _send(scene: Scene, seconds: float | None) -> None:
    number, message = scene.message()
    began = time.monotonic()
    try:
        scene.sender.send(message, timeout=seconds)
    except HaclientError as error:
        scene.book.failed(number, error)
    else:
        scene.book.accepted(number)
        if seconds is not None and time.monotonic() - began >= seconds:
            scene.book.count(book.SAME_TURN)


def _send_again(scene: Scene, seconds: float) -> None:
    number, message = scene.message()
    try:
        try:
            scene.sender.send(message, timeout=seconds)
        except SendTimeout as error:
            scene.sender.send(message, duplicate_id=error.duplicate_id)
    except HaclientError as error:
        scene.book.failed(number, error)
    else:
        scene.book.accepted(number)


def _send_patiently(scene: Scene, _seconds: float) -> None:
    _send(scene, None)


def _submit(scene: Scene, seconds: float) -> None:
    number, message = scene.message()
    try:
        future = scene.sender.submit(message, timeout=seconds)
    except HaclientError as error:
        scene.book.failed(number, error)
    else:
        _outcome(scene, number, future)


def _submit_cancelled(scene: Scene, seconds: float) -> None:
    number, message = scene.message()
    future = scene.sender.submit(message)
    wait_futures([future], timeout=seconds)
    if not future.cancel() and future.exception() is None:
        scene.book.count(book.CANCELLED_AFTER)
    _outcome(scene, number, future)


def _outcome(scene: Scene, number: int, future: Future[Any]) -> None:
    try:
        future.result(timeout=book.HUNG)
    except CancelledError:
        scene.book.cancelled(number)
    except HaclientError as error:
        scene.book.failed(number, error)
    except TimeoutError:
        scene.book.hung.append(f"message {number}")
    else:
        scene.book.accepted(number)


def _receive(scene: Scene, seconds: float) -> None:
    with contextlib.suppress(ReceiveTimeout):
        delivery = scene.receiver.receive(timeout=seconds)
        scene.book.received(book.number_of(delivery.message))
        with contextlib.suppress(StaleDelivery):
            delivery.accept()


def _flush(scene: Scene, seconds: float) -> None:
    with contextlib.suppress(SendTimeout):
        scene.sender.flush(timeout=seconds)


def _link(scene: Scene, seconds: float) -> None:
    with contextlib.suppress(LinkTimeout):
        scene.connection.create_sender("nobody's", timeout=seconds).close()


def _events(scene: Scene, _seconds: float) -> None:
    scene.connection.events()


_CALLS: dict[Kind, Callable[[Scene, float], None]] = {
    Kind.SEND: _send,
    Kind.SEND_AGAIN: _send_again,
    Kind.SEND_CANCELLED: _send,
    Kind.SEND_PATIENTLY: _send_patiently,
    Kind.FUTURE: _submit,
    Kind.FUTURE_CANCELLED: _submit_cancelled,
    Kind.RECEIVE: _receive,
    Kind.RECEIVE_CANCELLED: _receive,
    Kind.FLUSH: _flush,
    Kind.LINK: _link,
    Kind.EVENTS: _events,
}


# -- directed cases, which chance may not produce -------------------------------------------------


def _directed(scene: Scene) -> None:
    for case, make in zip(book.CASES, _MAKERS, strict=True):
        before, until = scene.book.cases[case], time.monotonic() + book.HUNG
        while scene.book.cases[case] == before:
            assert time.monotonic() < until, case
            scene.route.heal()
            _send(scene, None)
            make(scene)


def _before_the_wire(scene: Scene) -> None:
    scene.route.refuse()
    while scene.connection.state is State.CONNECTED:
        time.sleep(0.002)
    _send(scene, 0.01)


def _after_the_wire(scene: Scene) -> None:
    scene.route.hold()
    _send(scene, 0.05)


def _same_turn(scene: Scene) -> None:
    """Let both outcomes arrive together; the first one's callback outlasts the second one's timeout."""
    scene.route.hold()
    number, message = scene.message()
    first = scene.sender.submit(message)
    first.add_done_callback(lambda _: time.sleep(0.5))
    threading.Timer(0.05, scene.route.release).start()
    _send(scene, 0.3)
    _outcome(scene, number, first)


def _cancelled_after(scene: Scene) -> None:
    _submit_cancelled(scene, 5.0)


def _end_of_engine(scene: Scene) -> None:
    """Let the engine end and submit the message in one iteration of the loop."""
    number, message = scene.message()
    cut = scene.connection._core._engine.abort  # type: ignore[union-attr]
    scene.sender._thread.post(lambda: (time.sleep(0.05), cut()))
    _outcome(scene, number, scene.sender.submit(message))


def _pointer_again(scene: Scene) -> None:
    for _ in range(5):
        _send(scene, None)


# In the order of ``book.CASES``.
_MAKERS = (_before_the_wire, _after_the_wire, _same_turn, _cancelled_after, _end_of_engine, _pointer_again)
