"""Compares the broker's messages, after all connections are closed, with the reports of the calls."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable

from haclient import Message, blocking
from tests.failover.calls.book import CASES, Book, Report, message_of, number_of

_PATIENCE = 30.0
_END = "end"


def feed(url: str, queue: str, numbers: Iterable[int]) -> None:
    """Put messages into a queue, for a run to receive."""
    with blocking.connect(url) as connection:
        sender = connection.create_sender(queue)
        for number in numbers:
            sender.send(message_of(number), timeout=_PATIENCE)


def drained(url: str, *queues: str) -> list[Counter[int]]:
    """Receive every message of these queues; a message that is sent last marks their end."""
    found = []
    with blocking.connect(url) as connection:
        for queue in queues:
            connection.create_sender(queue).send(Message(body=_END), timeout=_PATIENCE)
            receiver, numbers = connection.create_receiver(queue), list[int]()
            for _ in itertools.count():
                delivery = receiver.receive(timeout=_PATIENCE)
                delivery.accept()
                if delivery.message.body == _END:
                    break
                numbers.append(number_of(delivery.message))
            receiver.close()
            found.append(Counter(numbers))
    return found


def complaints(book: Book, fed: set[int], sent: Counter[int], unreceived: Counter[int]) -> list[str]:
    """Yield each contradiction between reports and messages.

    :param fed: the messages that the run could receive.
    :param sent: the messages in the queue that the run sent to.
    :param unreceived: the rest of the messages to receive.
    """
    wrong = [f"hung: {call}" for call in book.hung]
    for number, report in book.reports.items():
        if sent[number] not in report.value:
            wrong.append(f"message {number} was reported as {report.name}, and is there {sent[number]} times")
    wrong += [f"message {number} has no report" for number in sent.keys() - book.reports.keys()]
    wrong += [f"message {number} was never received" for number in fed - {*book.got, *unreceived}]
    wrong += [f"left behind: {count} {what}" for what, count in book.left.items() if count]
    return wrong


def may_come_late(book: Book, sent: Counter[int]) -> frozenset[int]:
    """Return the messages that are absent and may still arrive: their outcome is unknown."""
    return frozenset(
        number for number, report in book.reports.items() if report is Report.UNKNOWN and not sent[number]
    )


def missing_cases(cases: Counter[str]) -> list[str]:
    """Return the cases that did not occur."""
    return [case for case in CASES if not cases[case]]
