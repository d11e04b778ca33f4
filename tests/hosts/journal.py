"""Histories as files: one line of JSON for each event at a client, written before it continues.

    {"kind": "send", "time": 81.5, "process": "client-1", "id": ["client-1/producer-0", 17], "queue":
    "q"}

``time`` is in seconds of the monotonic clock, which all processes of a machine share. A line is written
before its message is handed to a sender, so every message that arrives is recorded. If a client was
killed, everything up to its last whole line is read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

from tests.faults.history import Fate, History, Link, Name, Receipt


class Journal(History):
    """A history that also writes itself to a file.

    :param process: the name of the writing process.
    """

    def __init__(self, file: TextIO, process: str) -> None:
        super().__init__()
        self._file = file
        self._process = process
        self._receipts: dict[int, int] = {}

    def sends(self, name: Name, queue: str) -> None:
        """See ``History``."""
        self._write("send", id=name, queue=queue)
        super().sends(name, queue)

    def ends(self, name: Name, fate: Fate, at: float) -> None:
        """See ``History``."""
        super().ends(name, fate, at)
        self._write("end", id=name, fate=fate.value, time=at)

    def receives(self, receipt: Receipt) -> None:
        """See ``History``."""
        self._receipts[id(receipt)] = len(self.receipts)
        super().receives(receipt)
        facts = {"queue": receipt.queue, "link": receipt.link, "count": receipt.count}
        self._write("receive", id=receipt.name, time=receipt.at, **facts)

    def accepts(self, receipt: Receipt) -> None:
        """See ``History``."""
        super().accepts(receipt)
        self._write("accept", id=receipt.name, receipt=self._receipts[id(receipt)])

    def confirms(self, receipt: Receipt, at: float) -> None:
        """See ``History``."""
        super().confirms(receipt, at)
        self._write("confirm", id=receipt.name, receipt=self._receipts[id(receipt)], time=at)

    def returns(self, receipt: Receipt) -> None:
        """See ``History``."""
        super().returns(receipt)
        self._write("return", id=receipt.name, receipt=self._receipts[id(receipt)])

    def hangs(self, name: Name) -> None:
        """See ``History``."""
        super().hangs(name)
        self._write("hang", id=name)

    def keeps(self, *queues: str) -> None:
        """See ``History``."""
        super().keeps(*queues)
        self._write("keep", queues=queues)

    def leaves(self, queue: str, at: float) -> None:
        """See ``History``."""
        super().leaves(queue, at)
        self._write("leave", queue=queue, time=at)

    def drains(self, queue: str, at: float) -> None:
        """See ``History``."""
        super().drains(queue, at)
        self._write("drain", queue=queue, time=at)

    def serves(self, generation: int, member: str) -> None:
        """See ``History``."""
        if self.serving.get(generation) != member:
            self._write("serve", generation=generation, member=member)
        super().serves(generation, member)

    def close(self) -> None:
        """Write the counters to the file."""
        self._write("impatient", counts=self.impatient)

    def _write(self, kind: str, **facts: Any) -> None:
        line = {"kind": kind, "time": time.monotonic(), "process": self._process, **facts}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def read(paths: Iterable[Path], others: Callable[[dict[str, Any]], None] | None = None) -> History:
    """Return the combined history of all these processes.

    :param others: called with lines of other kinds, which do not belong to a history.
    """
    history = History()
    for path in paths:
        _Reader(history, others).read(path)
    return history


class _Reader:
    """Reads the lines of one process, whose receipts it numbers."""

    def __init__(self, history: History, others: Callable[[dict[str, Any]], None] | None) -> None:
        self._history = history
        self._others = others
        self._receipts: list[Receipt] = []
        self._kinds: dict[str, Callable[[dict[str, Any]], None]] = {
            "send": lambda line: history.sends(_name(line), line["queue"]),
            "end": lambda line: history.ends(_name(line), Fate(line["fate"]), line["time"]),
            "receive": self._receive,
            "accept": lambda line: history.accepts(self._receipts[line["receipt"]]),
            "confirm": lambda line: history.confirms(self._receipts[line["receipt"]], line["time"]),
            "return": lambda line: history.returns(self._receipts[line["receipt"]]),
            "hang": lambda line: history.hangs(_name(line)),
            "keep": lambda line: history.keeps(*line["queues"]),
            "leave": lambda line: history.leaves(line["queue"], line["time"]),
            "drain": lambda line: history.drains(line["queue"], line["time"]),
            "serve": lambda line: history.serves(line["generation"], line["member"]),
            "impatient": lambda line: history.impatient.update(line["counts"]),
        }

    def read(self, path: Path) -> None:
        """Read all whole lines, one at a time: a thousand faults produce gigabytes."""
        with path.open() as lines:
            for line in lines:
                if line.endswith("\n"):
                    facts = json.loads(line)
                    take = self._kinds.get(facts["kind"], self._others)
                    if take is None:
                        raise KeyError(facts["kind"])
                    take(facts)

    def _receive(self, line: dict[str, Any]) -> None:
        link = Link(*line["link"])
        receipt = Receipt(_name(line), line["queue"], link, line["count"], line["time"])
        self._receipts.append(receipt)
        self._history.receives(receipt)


def _name(line: dict[str, Any]) -> Name:
    producer, number = line["id"]
    return Name(producer, number)
