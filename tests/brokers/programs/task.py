"""A program's task, its standard input and output, and its history."""

from __future__ import annotations

import dataclasses
import json
import logging
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from proton.utils import SendException

from haclient.cli.formatting import describe
from haclient.events import Event
from tests.faults.clients import decode, encode
from tests.faults.history import Fate, Link, Name, Receipt
from tests.faults.impatient import fate_of
from tests.hosts.journal import Journal

PATIENCE = 180.0
"""Seconds that a patient call may take: longer than any outage of the matrix."""
IMPATIENCE = 1.0
"""Seconds that an impatient call may take: shorter than most outages."""
GLANCE = 0.2
"""Seconds between a consumer's checks for the request to finish."""
OUTCOMES_AT_END = "OutcomesAtEnd"
"""The event of a producer that learns its settlements only at the end."""
_IMPATIENT_SHARE = 0.05
_MAX_FILLING = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The task of one program.

    :param journal: the file of its history.
    :param name: the name of the program, and the prefix of its messages.
    :param rate: messages a second.
    """

    role: Literal["producer", "consumer"]
    url: str
    queue: str
    journal: str
    name: str
    seed: int = 0
    rate: float = 100.0

    def as_json(self) -> str:
        """Return the task as JSON for a command line."""
        return json.dumps(dataclasses.asdict(self))


def members(url: str) -> tuple[list[str], str, str]:
    """Return the members of a cluster URL as ``host:port``, the user and the password."""
    account, _, addresses = urlsplit(url).netloc.rpartition("@")
    user, _, password = account.partition(":")
    return addresses.split(","), unquote(user), unquote(password)


class ProgramJournal(Journal):
    """A history with the errors of calls and the losses of connections. Thread-safe."""

    def __init__(self, file: Any, process: str) -> None:
        super().__init__(file, process)
        self._lock = threading.Lock()

    def fails(self, call: str, error: BaseException | str, *, after: float, limit: float) -> None:
        """Record that a call ended with an error.

        :param error: an exception, or its class's name if another process raised it.
        :param after: seconds that the call took.
        :param limit: the call's time limit in seconds.
        """
        kind = error if isinstance(error, str) else type(error).__name__
        self._write("fail", call=call, error=kind, text=str(error)[:300], after=after, limit=limit)

    def sees(self, event: str, at: float, detail: str = "") -> None:
        """Record an event of the connection."""
        self._write("event", event=event, time=at, detail=detail)

    def on_event(self, event: Event) -> None:
        """The callback for ``on_event=``."""
        self.sees(type(event).__name__, event.stamp.monotonic, describe(event))

    def _write(self, kind: str, **facts: Any) -> None:
        with self._lock:
            super()._write(kind, **facts)


class LossLog(logging.Handler):
    """Records connection losses from the log, for an API without ``on_event``."""

    def __init__(self, journal: ProgramJournal) -> None:
        super().__init__()
        self._journal = journal
        logging.getLogger("haclient").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if ": lost " in text:
            self._journal.sees("Disconnected", time.monotonic(), text)
        elif ": reconnected to " in text:
            self._journal.sees("Reconnected", time.monotonic(), text)


class Messages:
    """The messages of one producer, in order."""

    def __init__(self, task: Task, journal: ProgramJournal) -> None:
        self._task = task
        self._journal = journal
        self._rng = random.Random(f"{task.name} {task.seed}")
        self._number = 0

    def next(self) -> tuple[Name, str]:
        """Return the next name and body, recorded as sent."""
        name = Name(self._task.name, self._number)
        self._number += 1
        self._journal.sends(name, self._task.queue)
        return name, encode(name, self._rng.randint(0, _MAX_FILLING))

    def limit(self) -> float:
        """Return the time limit of the next call, in seconds."""
        return IMPATIENCE if self._rng.random() < _IMPATIENT_SHARE else PATIENCE

    def ends(self, name: Name, error: BaseException | None, *, began: float, limit: float) -> None:
        """Record that the call for a message has ended."""
        now = time.monotonic()
        if error is not None:
            self._journal.fails("send", error, after=now - began, limit=limit)
        refused = isinstance(error, SendException)
        self._journal.ends(name, Fate.REFUSED if refused else fate_of(error), now)


class Receipts:
    """The messages that one consumer receives."""

    def __init__(self, task: Task, journal: ProgramJournal) -> None:
        self._queue = task.queue
        self._link = Link(task.name, 0, 0)
        self._journal = journal

    def receives(self, body: object, count: int) -> Receipt:
        """Record a received message.

        :param count: its delivery count.
        """
        receipt = Receipt(decode(body), self._queue, self._link, count, time.monotonic())
        self._journal.receives(receipt)
        return receipt


class Input(threading.Thread):
    """Waits on standard input for the request to finish.

    :ivar finishing: set when the request arrives.
    :param notify: called then, on this thread.
    """

    def __init__(self, notify: Callable[[], object] = lambda: None) -> None:
        super().__init__(daemon=True)
        self.finishing = threading.Event()
        self._notify = notify

    def run(self) -> None:
        sys.stdin.readline()
        self.finishing.set()
        self._notify()


def ready() -> None:
    """Report on standard output that the link is attached."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()


@contextmanager
def program() -> Iterator[tuple[Task, ProgramJournal]]:
    """Yield the task of the command line, and its journal."""
    logging.basicConfig(format="%(asctime)s %(message)s")
    task = Task(**json.loads(sys.argv[1]))
    with Path(task.journal).open("a") as file:
        yield task, ProgramJournal(file, task.name)
