"""The asyncio API: sends are pipelined, accepts are not confirmed."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from haclient import Message, aio
from haclient.errors import HaclientError, ReceiveTimeout, StaleDelivery
from haclient.outcome import Outcome
from tests.brokers.programs.task import (
    GLANCE,
    PATIENCE,
    Input,
    Messages,
    ProgramJournal,
    Receipts,
    Task,
    program,
    ready,
)

_BURSTS_PER_SECOND = 20


async def produce(task: Task, journal: ProgramJournal, finishing: asyncio.Event) -> None:
    """Send until asked to finish, and wait for every outcome."""
    messages = Messages(task, journal)
    pending: set[asyncio.Future[Outcome]] = set()
    async with aio.connect(task.url, on_event=journal.on_event) as connection:
        sender = await connection.create_sender(task.queue, timeout=PATIENCE)
        ready()
        while not finishing.is_set():
            for _ in range(max(1, round(task.rate / _BURSTS_PER_SECOND))):
                await _send(sender, messages, pending)
            with suppress(TimeoutError):
                await asyncio.wait_for(finishing.wait(), 1 / _BURSTS_PER_SECOND)
        if pending:
            await asyncio.wait(pending)


async def _send(sender: aio.Sender, messages: Messages, pending: set[asyncio.Future[Outcome]]) -> None:
    name, body = messages.next()
    began, limit = time.monotonic(), messages.limit()
    future: asyncio.Future[Outcome]
    if limit == PATIENCE:
        future = await sender.submit(Message(body=body), timeout=limit)
    else:
        future = asyncio.ensure_future(sender.send(Message(body=body), timeout=limit))

    def note(future: asyncio.Future[Outcome]) -> None:
        pending.discard(future)
        messages.ends(name, future.exception(), began=began, limit=limit)

    pending.add(future)
    future.add_done_callback(note)


async def consume(task: Task, journal: ProgramJournal, finishing: asyncio.Event) -> None:
    """Receive and accept until asked to finish."""
    receipts = Receipts(task, journal)
    async with aio.connect(task.url, on_event=journal.on_event) as connection:
        receiver = await connection.create_receiver(task.queue, timeout=PATIENCE)
        ready()
        while not finishing.is_set():
            try:
                delivery = await receiver.receive(timeout=GLANCE)
            except ReceiveTimeout:
                continue
            receipt = receipts.receives(delivery.message.body, delivery.message.delivery_count)
            try:
                await delivery.accept()
            except StaleDelivery as error:
                journal.fails("accept", error, after=0.0, limit=0.0)
            except HaclientError as error:
                journal.fails("accept", error, after=0.0, limit=0.0)
                raise
            else:
                journal.accepts(receipt)


async def main() -> None:
    """Run the task on the command line."""
    loop, finishing = asyncio.get_running_loop(), asyncio.Event()
    with program() as (task, journal):
        Input(lambda: loop.call_soon_threadsafe(finishing.set)).start()
        await (produce if task.role == "producer" else consume)(task, journal, finishing)


if __name__ == "__main__":
    asyncio.run(main())
