"""Producers and consumers under load, which record their observations.

    async with Load(cluster.url, history, seed=1) as load:
        ...
        await load.finish()
    await drain(cluster.url, history)

Each client has its own connection. Producers pipeline numbered messages, and a tenth of them do not
wait (``impatient``). Consumers accept most messages, release some, and detach and attach again.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Self

from haclient import Message, aio
from haclient.cluster_url.endpoint import Endpoint
from haclient.core.connection import State
from haclient.errors import ConfirmTimeout, DrainTimeout, ReceiveTimeout, StaleDelivery
from haclient.events import Connected, Event, Reconnected
from haclient.outcome import Outcome
from tests.faults.history import Fate, History, Link, Name, Receipt
from tests.faults.impatient import BlockingProducer, fate_of, is_impatient, send_impatiently

STEADY_QUEUE = "steady"
RESTLESS_QUEUE = "restless"
"""A queue whose consumers detach and attach again: order has no meaning after the first time."""
CONFIRMED_QUEUE = "confirmed"
"""One queue for each process; its only consumer has its accepts confirmed."""
KEPT_QUEUE = "kept"
"""A queue without consumers before the drain, so that the stores have comparable contents."""
BLOCKING_QUEUE = "blocking"
"""A queue like ``KEPT_QUEUE``, filled over the blocking API."""

# Messages a second of one producer; with the faults, two cores are then half busy. The second rate is for
# queues without consumers and for confirmed accepts, which take a commit everywhere.
_BUSY_RATE, _KEPT_RATE = 100, 20
_WINDOW = 200
_BURSTS_PER_SECOND = 20
_MAX_FILLING = 3000
# Messages for a catch-up from an empty store, few enough for a soak of any length.
_KEPT_MOST = 3000
_NEW_QUEUE = 5
# Seconds that a consumer waits before it checks for the end.
_GLANCE = 0.2
# Unsettled messages are settled once the cluster is whole, or never.
_SETTLING = 30.0
_QUIET = 0.5
_DRAIN_CREDIT = 500
_FOR_EVER = 10**9


class Load:
    """Every client of a run.

    :param names: of the cluster's client addresses, for ``History.serving``.
    :param prefix: of the names of producers and consumers, where several processes have a load each.
    :param share: of the usual number of messages a second.
    :param kept: messages that a producer may leave in a queue without consumers, where each loss shows.
    """

    def __init__(
        self,
        url: str,
        history: History,
        *,
        seed: int,
        names: dict[str, str],
        prefix: str = "",
        share: float = 1.0,
        kept: int = _KEPT_MOST,
    ) -> None:
        self._url = url
        self._history = history
        self._rng = random.Random(f"load {seed}")
        self._names = names
        self._prefix = prefix
        self._share = share
        self._kept = kept
        self._producing = asyncio.Event()
        self._consuming = asyncio.Event()
        self._stack = AsyncExitStack()
        self._producers: list[asyncio.Task[None]] = []
        self._consumers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._history.keeps(KEPT_QUEUE, BLOCKING_QUEUE)
        for queue in (STEADY_QUEUE, RESTLESS_QUEUE):
            for number in range(2):
                await self._add(self._producers, self._produce, f"producer-{number}-of-{queue}", queue)
                await self._add(self._consumers, self._consume, f"consumer-{number}-of-{queue}", queue)
        confirmed = f"{CONFIRMED_QUEUE}/{self._prefix}".rstrip("/")
        await self._add(self._producers, self._produce, "producer-of-confirmed", confirmed)
        await self._add(self._consumers, self._confirm, "consumer-of-confirmed", confirmed)
        await self._add(self._producers, self._produce, "producer-of-kept", KEPT_QUEUE)
        producer = BlockingProducer(
            f"{self._prefix}producer-of-{BLOCKING_QUEUE}",
            BLOCKING_QUEUE,
            self._history,
            random.Random(self._rng.random()),
            pause=1 / (_KEPT_RATE * self._share),
            most=self._kept,
            body=lambda name: encode(name, 100),
        )
        work = producer.run(self._url, self._producing)
        self._producers.append(asyncio.create_task(work, name="blocking producer"))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = (*self._producers, *self._consumers)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Pass the error on: without one the connection flushes at its block's end, and a timeout hides it.
        await self._stack.__aexit__(kind, error, trace)

    def check(self) -> None:
        """Raise the error of a failed client."""
        for task in (*self._producers, *self._consumers):
            if task.done():
                task.result()

    async def make_queue(self, name: str) -> None:
        """Make a new queue with a few messages, whose fates are recorded."""
        self._history.keeps(name)
        connection = await self._stack.enter_async_context(aio.connect(self._url))
        self._producers.append(asyncio.create_task(self._fill(name, connection), name=f"fill {name}"))

    async def _fill(self, queue: str, connection: aio.Connection) -> None:
        sender = await connection.create_sender(queue, timeout=math.inf)
        for number in range(_NEW_QUEUE):
            message = Name(f"{self._prefix}producer-of-{queue}", number)
            self._history.sends(message, queue)
            sending = asyncio.ensure_future(sender.send(Message(body=encode(message, 10)), timeout=_SETTLING))
            await asyncio.wait([sending])
            self._history.ends(message, fate_of_call(sending), time.monotonic())
        await connection.close()

    async def finish(self) -> None:
        """Stop the producers, wait for every outcome, then stop the consumers."""
        self._producing.set()
        await asyncio.gather(*self._producers)
        self._consuming.set()
        await asyncio.gather(*self._consumers)
        await self._stack.aclose()

    async def _add(
        self,
        tasks: list[asyncio.Task[None]],
        run: Callable[[str, str, aio.Connection, random.Random], object],
        name: str,
        queue: str,
    ) -> None:
        connection = await self._stack.enter_async_context(
            aio.connect(self._url, window=_WINDOW, on_event=self._event)
        )
        rng = random.Random(self._rng.random())
        work = run(f"{self._prefix}{name}", queue, connection, rng)
        tasks.append(asyncio.create_task(work, name=name))  # type: ignore[arg-type]

    def _event(self, event: Event) -> None:
        if isinstance(event, Connected | Reconnected):
            self._serves(event.endpoint, event.generation)

    def _serves(self, endpoint: Endpoint | None, generation: int | None) -> None:
        """Record a member that serves. A parked connection does not know its generation yet."""
        if endpoint is not None and generation is not None:
            self._history.serves(generation, self._names[f"{endpoint.host}:{endpoint.port}"])

    # -- producers ------------------------------------------------------------------------------

    async def _produce(self, name: str, queue: str, connection: aio.Connection, rng: random.Random) -> None:
        sender = await connection.create_sender(queue, timeout=math.inf)
        rate = (_BUSY_RATE if queue in (STEADY_QUEUE, RESTLESS_QUEUE) else _KEPT_RATE) * self._share
        burst = max(1, round(rate / _BURSTS_PER_SECOND))
        pending: dict[asyncio.Future[Outcome], Name] = {}
        number = 0
        most = self._kept if queue == KEPT_QUEUE else _FOR_EVER
        while number < most and not self._producing.is_set():
            for _ in range(rng.randint(1, 2 * burst)):
                message = Name(name, number)
                number += 1
                self._history.sends(message, queue)
                future = await self._send(sender, message, rng)
                self._serves(connection.endpoint, connection.generation)
                if not future.done():
                    pending[future] = message
                future.add_done_callback(self._noting(message, pending))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._producing.wait(), burst / rate)
        await self._producing.wait()
        if pending:
            await asyncio.wait(pending, timeout=_SETTLING)
        for message in pending.values():
            self._history.hangs(message)

    async def _send(self, sender: aio.Sender, name: Name, rng: random.Random) -> asyncio.Future[Outcome]:
        message = Message(body=encode(name, rng.randint(0, _MAX_FILLING)))
        if is_impatient(rng):
            return await send_impatiently(sender, message, name, rng, self._history)
        return await sender.submit(message)

    def _noting(
        self, name: Name, pending: dict[asyncio.Future[Outcome], Name]
    ) -> Callable[[asyncio.Future[Outcome]], None]:
        def note(future: asyncio.Future[Outcome]) -> None:
            pending.pop(future, None)
            self._history.ends(name, fate_of_call(future), time.monotonic())

        return note

    # -- consumers ------------------------------------------------------------------------------

    async def _consume(self, name: str, queue: str, connection: aio.Connection, rng: random.Random) -> None:
        serial = 0
        while not self._consuming.is_set():
            serial += 1
            receiver = await connection.create_receiver(
                queue, credit=rng.choice((1, 10, 100)), timeout=math.inf
            )
            until = rng.randint(50, 1000) if queue == RESTLESS_QUEUE else _FOR_EVER
            while until and not self._consuming.is_set():
                until -= 1
                with suppress(ReceiveTimeout):
                    delivery = await receiver.receive(timeout=_GLANCE)
                    receipt = note_receipt(self._history, delivery, name, serial, queue)
                    await _settle(delivery, receipt, rng.random(), self._history)
            # Before it detaches: no other consumer gets a message that it releases earlier.
            self._history.leaves(queue, time.monotonic())
            await receiver.close()

    async def _confirm(self, name: str, queue: str, connection: aio.Connection, rng: random.Random) -> None:
        """Accepts are confirmed one at a time or together, in little time or in any."""
        receiver = await connection.create_receiver(queue, credit=50, confirm=True, timeout=math.inf)
        while not self._consuming.is_set():
            deliveries = await receiver.receive_many(rng.choice((1, 50)), timeout=_GLANCE)
            left = {each: note_receipt(self._history, each, name, 0, queue) for each in deliveries}
            while left:
                with suppress(ConfirmTimeout):
                    timeout = rng.choice((0.005, _SETTLING))
                    stale = await receiver.accept_many(left, confirm=True, timeout=timeout)
                    for delivery, receipt in left.items():
                        if delivery not in stale:
                            self._history.accepts(receipt)
                            self._history.confirms(receipt, time.monotonic())
                    left.clear()  # stale deliveries are redelivered
        self._history.leaves(queue, time.monotonic())
        await receiver.close()


async def _settle(delivery: aio.Delivery, receipt: Receipt, chance: float, history: History) -> None:
    with suppress(StaleDelivery):
        if chance < 0.9:
            await delivery.accept()
            history.accepts(receipt)
        elif chance < 0.95:
            history.returns(receipt)
            await delivery.release()
        else:
            history.returns(receipt)
            await delivery.modify(delivery_failed=True)


def fate_of_call(future: asyncio.Future[Outcome]) -> Fate:
    """Return the fate that the result of a send implies."""
    return Fate.UNKNOWN if future.cancelled() else fate_of(future.exception())


def note_receipt(history: History, delivery: aio.Delivery, consumer: str, serial: int, queue: str) -> Receipt:
    """Record a received delivery."""
    message = delivery.message
    link = Link(consumer, serial, delivery._core.session_number)
    receipt = Receipt(decode(message.body), queue, link, message.delivery_count, time.monotonic())
    history.receives(receipt)
    return receipt


async def drain(url: str, history: History) -> None:
    """Receive and accept all messages left in the queues, until the primary reports that they are empty.

    Their other consumers have detached.
    """
    async with aio.connect(url) as connection:
        queues = sorted(set(history.sent.values()))
        await asyncio.gather(*(_drain(connection, history, queue) for queue in queues))


async def _drain(connection: aio.Connection, history: History, queue: str) -> None:
    history.drains(queue, time.monotonic())
    receiver = await connection.create_receiver(queue, credit=_DRAIN_CREDIT)
    empty = False
    while not empty:
        session = connection._core.session_number
        deliveries = await receiver.receive_many(_DRAIN_CREDIT, timeout=_QUIET)
        if not deliveries:
            answered = await _has_sent_all(receiver) and connection.state is State.CONNECTED
            deliveries = await receiver.receive_many(_DRAIN_CREDIT, timeout=0)
            empty = answered and not deliveries and connection._core.session_number == session
        for delivery in deliveries:
            receipt = note_receipt(history, delivery, "drain", 0, queue)
            with suppress(StaleDelivery):  # it will be redelivered
                await delivery.accept()
                history.accepts(receipt)
    await receiver.close()


async def _has_sent_all(receiver: aio.Receiver) -> bool:
    """Return whether the primary answers that it has no more messages. After a failover the new one must
    be asked.
    """
    try:
        await receiver.drain(timeout=_SETTLING)
    except DrainTimeout:
        return False
    return True


def encode(name: Name, filling: int) -> str:
    """Encode a message's body: its name, and filler that can be checked."""
    return f"{name.producer} {name.number} {filling} {_filling(name, filling)}"


def decode(body: object) -> Name:
    """Decode the name in a body; a changed body gives a name that was never sent."""
    try:
        text = body.decode() if isinstance(body, bytes) else str(body)
        producer, number, size, filling = text.split(" ", 3)
        name = Name(producer, int(number))
        if filling == _filling(name, int(size)):
            return name
    except ValueError:
        pass
    return Name(f"garbage: {str(body)[:80]!r}", 0)


def _filling(name: Name, size: int) -> str:
    unit = f"{name.number:x}."
    return (unit * (size // len(unit) + 1))[:size]
