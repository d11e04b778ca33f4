"""An honest producer, and consumers with confirmed accepts, that run together with hostile clients.

Hostile clients also send to the shared queue, and one consumer removes their messages.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from haclient import Message, aio
from haclient.errors import ConfirmTimeout, HaclientError, ReceiveTimeout, StaleDelivery
from haclient.events import Disconnected, Event
from haclient.outcome import Outcome

QUEUE = "honest"
HOSTILE_QUEUES = ("hostile-0", "hostile-1", "hostile-2")
_PAUSE = 0.02
_SETTLING = 60.0
_GLANCE = 0.2
_MINE, _THEIRS = "kind = 'honest'", "kind IS NULL OR kind <> 'honest'"


@dataclass(slots=True)
class Ledger:
    """The fate of the honest messages.

    :ivar settled: numbers that the primary has accepted; ``unknown``: numbers with another result.
    :ivar received: the receipts of each number; ``confirmed``: the numbers whose accept was confirmed.
    :ivar again: the numbers received once more after that.
    :ivar foreign: messages of other clients, by queue.
    :ivar disconnected: the reasons of honest clients' connection losses, with their counts.
    """

    sent: int = 0
    settled: set[int] = field(default_factory=set)
    unknown: Counter[str] = field(default_factory=Counter)
    received: Counter[int] = field(default_factory=Counter)
    confirmed: set[int] = field(default_factory=set)
    again: set[int] = field(default_factory=set)
    foreign: Counter[str] = field(default_factory=Counter)
    disconnected: Counter[str] = field(default_factory=Counter)

    @property
    def lost(self) -> list[int]:
        """Return the settled numbers that were never received."""
        return sorted(self.settled - self.received.keys())


class Honest:
    """The honest clients; ``finish`` waits until everything settled has been received."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.ledger = Ledger()
        self._sending = asyncio.Event()
        self._receiving = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the clients."""
        work = [self._produce(), self._consume(), self._take(QUEUE, _THEIRS)]
        work += [self._take(queue, None) for queue in HOSTILE_QUEUES]
        self._tasks = [asyncio.create_task(each) for each in work]

    def check(self) -> None:
        """Raise the error of a client that failed."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def finish(self) -> None:
        """Stop sending, receive the rest, and disconnect."""
        self._sending.set()
        await self._tasks[0]
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLING):
                while self.ledger.lost:
                    self.check()
                    await asyncio.sleep(_GLANCE)
        self._receiving.set()
        await asyncio.gather(*self._tasks)

    async def stop(self) -> None:
        """Cancel all running tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _event(self, event: Event) -> None:
        if isinstance(event, Disconnected):
            self.ledger.disconnected[event.reason] += 1

    async def _produce(self) -> None:
        ledger = self.ledger
        pending: set[asyncio.Future[Outcome]] = set()
        async with aio.connect(self._url, on_event=self._event) as connection:
            sender = await connection.create_sender(QUEUE)
            while not self._sending.is_set():
                number, ledger.sent = ledger.sent, ledger.sent + 1
                message = Message(body=number, properties={"kind": "honest"})
                future = await sender.submit(message)
                pending.add(future)
                future.add_done_callback(self._noting(number, pending))
                await asyncio.sleep(_PAUSE)
            if pending:
                await asyncio.wait(pending, timeout=_SETTLING)
            ledger.unknown["no outcome"] += len(pending)

    def _noting(
        self, number: int, pending: set[asyncio.Future[Outcome]]
    ) -> Callable[[asyncio.Future[Outcome]], None]:
        def note(future: asyncio.Future[Outcome]) -> None:
            pending.discard(future)
            error = None if future.cancelled() else future.exception()
            if future.cancelled() or error is not None:
                self.ledger.unknown[type(error).__name__] += 1
            else:
                self.ledger.settled.add(number)

        return note

    async def _consume(self) -> None:
        ledger = self.ledger
        async with aio.connect(self._url, on_event=self._event) as connection:
            receiver = await connection.create_receiver(QUEUE, selector=_MINE, credit=50, confirm=True)
            while not self._receiving.is_set():
                found = await receiver.receive_many(50, timeout=_GLANCE)
                numbers = {each: each.message.body for each in found}
                for number in numbers.values():
                    ledger.received[number] += 1
                    if number in ledger.confirmed:
                        ledger.again.add(number)
                if found:
                    with suppress(ConfirmTimeout):
                        stale = await receiver.accept_many(found, confirm=True, timeout=_SETTLING)
                        ledger.confirmed.update(numbers[each] for each in found if each not in stale)

    async def _take(self, queue: str, selector: str | None) -> None:
        """Accept the messages of hostile clients without reading them."""
        async with aio.connect(self._url, on_event=self._event) as connection:
            receiver = await connection.create_receiver(queue, selector=selector, credit=100)
            while not self._receiving.is_set():
                with suppress(ReceiveTimeout, StaleDelivery):
                    delivery = await receiver.receive(timeout=_GLANCE)
                    self.ledger.foreign[queue] += 1
                    await delivery.accept()


def failed(error: BaseException) -> str:
    """Describe an error of an honest client as a defect."""
    kind = "a client's error" if isinstance(error, HaclientError) else "an error"
    return f"{kind}: {type(error).__name__}: {error}"
