"""A source whose entries are numbers, so that the writer's effect on them is visible. Also a program.

    python -m tests.telemetry.numbers DIR COUNT WAY

writes the numbers below COUNT and ends in a mode: ``return``, ``exit`` (``sys.exit`` in a thread's
time), ``forever`` (continues until it is killed), ``fork``, ``multiprocessing``, ``late`` (more entries
at exit).
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import multiprocessing
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from haclient.telemetry import TelemetrySettings, flush, writer
from haclient.telemetry.schema import Kind
from haclient.telemetry.writer import Alive


class Numbers:
    """Writes numbers, which appear as the sequence of ``alive`` lines."""

    def __init__(self, settings: TelemetrySettings, connection: int = 1) -> None:
        self.dropped = 0
        self.reported = 0
        self.connection = connection
        self.channel = writer.channel(settings, "numbers")
        self.forked()
        self.channel.add(self)

    def put(self, number: int) -> None:
        self.channel.put(self, number)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Stop the writer inside the block."""
        reached, go_on = threading.Event(), threading.Event()
        self.channel.put(self, (reached, go_on))
        assert reached.wait(30)
        try:
            yield
        finally:
            go_on.set()

    def lines(self, entry: int | tuple[threading.Event, threading.Event]) -> Iterator[str]:
        if isinstance(entry, tuple):
            entry[0].set()
            entry[1].wait(30)
            return
        yield self._lines.line(Kind.ALIVE, self._subject, time.time(), {"sequence": entry})

    def alive(self) -> Iterable[Alive]:
        return ()

    def forked(self) -> None:
        self.dropped = self.reported = 0
        self._lines = self.channel.lines()
        self._subject = self._lines.subject(None, {"connection": self.connection})


def _child(source: Numbers, count: int) -> None:
    for number in range(count):
        source.put(number)


def _in_a_fork(source: Numbers, count: int) -> None:
    pid = os.fork()
    _child(source, count)
    if pid == 0:
        flush()
        os._exit(0)
    os.waitpid(pid, 0)


def main(folder: str, count: int, mode: str) -> None:
    warnings.simplefilter("ignore")  # forks in a process with threads are the case under test
    source = Numbers(TelemetrySettings(Path(folder), fsync="always" if mode == "always" else "no"))
    if mode == "forever":
        for number in itertools.count():
            source.put(number)
            if number % 16 == 0:
                time.sleep(0.0005)
    if mode == "late":
        atexit.register(source.put, count)
        atexit.unregister(source.channel._process._exit)
        atexit.register(source.channel._process._exit)
    for number in range(count):
        source.put(number)
    if mode == "fork":
        _in_a_fork(source, count)
    if mode == "multiprocessing":
        flush()
        child = multiprocessing.get_context("fork").Process(target=_child, args=(source, count))
        child.start()
        child.join()
    if mode == "exit":
        thread = threading.Timer(0.2, _child, (source, count))
        thread.start()
        sys.exit(3)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
