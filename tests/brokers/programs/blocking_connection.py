"""The drop-in's ``BlockingConnection``: each send waits for its outcome."""

from __future__ import annotations

import threading
import time

import proton
from proton import Message

from haclient.utils import BlockingConnection, SendException
from tests.brokers.programs.task import (
    GLANCE,
    PATIENCE,
    Input,
    LossLog,
    Messages,
    ProgramJournal,
    Receipts,
    Task,
    program,
    ready,
)

_CREDIT = 50


def produce(task: Task, journal: ProgramJournal, finishing: threading.Event) -> None:
    """Send until asked to finish."""
    messages = Messages(task, journal)
    connection = BlockingConnection(task.url, timeout=PATIENCE)
    sender = connection.create_sender(task.queue)
    ready()
    while not finishing.wait(1 / task.rate):
        name, body = messages.next()
        began, limit, error = time.monotonic(), messages.limit(), None
        try:
            sender.send(Message(body=body, durable=True), timeout=limit)
        except (proton.Timeout, SendException) as raised:
            error = raised
        messages.ends(name, error, began=began, limit=limit)
    connection.close()


def consume(task: Task, journal: ProgramJournal, finishing: threading.Event) -> None:
    """Receive and accept until asked to finish."""
    receipts = Receipts(task, journal)
    connection = BlockingConnection(task.url, timeout=PATIENCE)
    receiver = connection.create_receiver(task.queue, credit=_CREDIT)
    ready()
    while not finishing.is_set():
        try:
            message = receiver.receive(timeout=GLANCE)
        except proton.Timeout:
            continue
        receipt = receipts.receives(message.body, message.delivery_count)
        receiver.accept()
        journal.accepts(receipt)
    connection.close()


def main() -> None:
    """Run the task on the command line."""
    with program() as (task, journal):
        LossLog(journal)
        request = Input()
        request.start()
        (produce if task.role == "producer" else consume)(task, journal, request.finishing)


if __name__ == "__main__":
    main()
