"""The blocking API: each send waits for its outcome."""

from __future__ import annotations

import threading
import time

from haclient import Message, blocking
from haclient.errors import MessageNotAccepted, ReceiveTimeout, SendTimeout, StaleDelivery
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


def produce(task: Task, journal: ProgramJournal, finishing: threading.Event) -> None:
    """Send until asked to finish."""
    messages = Messages(task, journal)
    with blocking.connect(task.url, on_event=journal.on_event) as connection:
        sender = connection.create_sender(task.queue, timeout=PATIENCE)
        ready()
        while not finishing.wait(1 / task.rate):
            name, body = messages.next()
            began, limit, error = time.monotonic(), messages.limit(), None
            try:
                sender.send(Message(body=body), timeout=limit)
            except (SendTimeout, MessageNotAccepted) as raised:
                error = raised
            messages.ends(name, error, began=began, limit=limit)


def consume(task: Task, journal: ProgramJournal, finishing: threading.Event) -> None:
    """Receive and accept until asked to finish."""
    receipts = Receipts(task, journal)
    with blocking.connect(task.url, on_event=journal.on_event) as connection:
        receiver = connection.create_receiver(task.queue, timeout=PATIENCE)
        ready()
        while not finishing.is_set():
            try:
                delivery = receiver.receive(timeout=GLANCE)
            except ReceiveTimeout:
                continue
            receipt = receipts.receives(delivery.message.body, delivery.message.delivery_count)
            try:
                delivery.accept()
            except StaleDelivery as error:
                journal.fails("accept", error, after=0.0, limit=0.0)
            else:
                journal.accepts(receipt)


def main() -> None:
    """Run the task on the command line."""
    with program() as (task, journal):
        request = Input()
        request.start()
        (produce if task.role == "producer" else consume)(task, journal, request.finishing)


if __name__ == "__main__":
    main()
