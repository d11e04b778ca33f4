"""A selector and messages together: each may have its own maximal size, and their product is bounded.

An input is a recipe for a selector: pieces with repetition counts. The messages are fixed: texts of
megabytes in which a pattern's parts match at every position.

Rules: parsing a selector, and matching one message, take at most a quarter of a second and little extra
memory. The target is 25 ms; the rest is for a slow machine. With several consumers and messages, a loop
iteration takes no longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from contextlib import AbstractContextManager
from unittest import mock

import proton

from broker_stub.amqp.message_format import inspect
from broker_stub.queueing.message import Message
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.selectors import Selector, SelectorError, conditions, parser
from broker_stub.queueing.selectors.parser import MAX_LENGTH
from tests.fuzz.cost import at_most
from tests.fuzz.target import Defect, Mutate, Target
from tests.fuzz.values import Reader, Writer

_WORDS = (
    *(
        "amqp.subject",
        "p0",
        "p1",
        " LIKE '",
        " NOT LIKE '",
        "%",
        "%'",
        "_",
        "a",
        "b",
        "'",
        " OR ",
        " AND ",
        "NOT ",
    ),
    *(" ESCAPE '!'", "!", " = ", " <> '", " IN ('", "', '", "')", "(", ")", " IS NULL", " + ", "9", "1", "-"),
    *(" BETWEEN ", "JMSType", " > 0", " * "),
)
_MOST_PIECES = 12
_CONSUMERS, _MESSAGES = 3, 3
_SECONDS, _MEGABYTES = 0.25, 64
_LONG = 2**21
_MOST_TURNS = 10_000


class _Consumer:
    """Consumes everything that its selector selects."""

    def __init__(self, queue: Queue, selector: Selector) -> None:
        self._queue = queue
        self._selector = selector
        self.consumer = queue.subscribe(self, selects=self._selects)

    def _selects(self, message: Message) -> bool:
        return self._selector.selects(message.data)

    def capacity(self) -> int:
        return 1000

    def deliver(self, message: Message) -> None: ...

    def queue_deleted(self) -> None: ...

    def idle(self) -> None:
        self._queue.ready(self.consumer)


class Selection(Target):
    name = "selection"
    mutates = True

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._messages = [
            bytes(proton.Message(subject=text, properties={"p0": text, "p1": 7}).encode())
            for text in ("a" * _LONG, "ab" * (_LONG // 2))
        ]

    def run(self, data: bytes) -> None:
        reader = Reader(data, _WORDS)
        together, pieces = reader.byte() % 8, 1 + reader.byte() % _MOST_PIECES
        text = "".join(reader.text() * (1 + reader.byte()) for _ in range(pieces))[: MAX_LENGTH + 1]
        try:
            with at_most(seconds=_SECONDS, megabytes=_MEGABYTES, what="reading a selector"):
                selector = Selector(text)
        except SelectorError:
            return
        for message in self._messages:
            with at_most(seconds=_SECONDS, megabytes=_MEGABYTES, what="a look at a message"):
                selector.selects(message)
        if not together:
            self._loop.run_until_complete(_deliver(selector, self._messages[0]))

    def mutated(self, data: bytes, limit: int, seed: int, otherwise: Mutate) -> bytes:
        """Return a random pattern half of the time, since byte mutations rarely build one."""
        chosen = random.Random(seed)
        if chosen.random() < 0.5:
            return otherwise(data, limit)
        pieces = [
            (chosen.choice(("%", "_", "a", "b", "ab")), chosen.randint(1, 255))
            for _ in range(chosen.randint(1, _MOST_PIECES - 4))
        ]
        return recipe(
            ("amqp.subject", 1), (" LIKE '", 1), ("%", 1), *pieces, ("%'", 1), together=chosen.random() < 0.1
        )

    def planted(self) -> AbstractContextManager[object]:
        """Texts and patterns have no limits of their own."""
        planted = contextlib.ExitStack()
        planted.enter_context(mock.patch.object(conditions, "MAX_COMPARED", 2**30))
        planted.enter_context(mock.patch.object(parser, "MAX_WILDCARDS", 2**30))
        return planted

    def close(self) -> None:
        self._loop.close()


async def _deliver(selector: Selector, data: bytes) -> None:
    queue = Queue("q", lambda: 0.0)
    takers = [_Consumer(queue, selector) for _ in range(_CONSUMERS)]
    with at_most(seconds=_SECONDS, megabytes=_MEGABYTES, what="messages for several consumers"):
        for taker in takers:
            queue.ready(taker.consumer)
        for _ in range(_MESSAGES):
            queue.enqueue(data, _settled, None, inspect(data))
    for _ in range(_MOST_TURNS):
        if all(taker.consumer.cursor == queue.last_number for taker in takers):
            return
        with at_most(seconds=_SECONDS, megabytes=_MEGABYTES, what="an iteration of the event loop"):
            await asyncio.sleep(0)
    raise Defect("a consumer that is not asked about a message")


def _settled(_token: object) -> None: ...


def recipe(*pieces: tuple[str, int], together: bool = True) -> bytes:
    """Return an input: the pieces of a selector with their counts."""
    writer = Writer(_WORDS)
    selector = b"".join(writer.text(text) + bytes((count - 1,)) for text, count in pieces)
    return bytes((not together, len(pieces) - 1)) + selector


SEEDS = {
    "like": recipe(
        ("amqp.subject", 1), (" LIKE '", 1), ("%", 1), ("_", 3), ("a", 2), ("b", 1), ("%'", 1), together=False
    ),
    "terms": recipe(("p0", 1), (" <> '", 1), ("b", 9), ("'", 1), (" OR ", 1), ("p1", 1), (" > 0", 1)),
}
"""The corpus."""

TARGET = Selection
