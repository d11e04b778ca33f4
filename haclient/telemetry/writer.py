"""The one thread of a process that writes telemetry, for all factories and members in it.

Theory of operation
-------------------
``Source.put`` appends to a queue (``Channel``) and, if the thread may be asleep, wakes it: no lock, no
I/O, nothing encoded, so a connection never waits for its telemetry.  The thread takes a few entries at
a time, lets their source make lines of them and writes the lines.  A few: the interpreter's
lock is free again at each write, so the event loop waits for it a fraction of a millisecond at most.

What happens is gathered for some milliseconds before it is written: a reconnect, or a promotion with those
who waited for it, is not disturbed by a write for each of its steps.

Rules
-----
* Sources are asked for lines on the writer's thread only, and need no locks.
* A full queue drops further entries.  Each source counts its own drops, because only one thread puts into
  it; the next lines to be written say how many there were.
* Lines that cannot be written stay, and the queue behind them fills: a disk that is full for a while costs
  nothing, or what the queue could not hold.  The first failure is a warning, then there is silence for an
  hour, but for one line when it works again.
* The thread is a daemon; at the exit of the process whatever is queued is written, by ``atexit`` (and by
  ``multiprocessing``, whose children skip that).
* A forked child has no thread, an empty queue, a new instance id and files of its own.  Nothing
  of the parent's is locked, flushed or written to in the child.
"""

from __future__ import annotations

import atexit
import itertools
import os
import queue
import sys
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from haclient.printable.log import get_logger
from haclient.telemetry.files import Files
from haclient.telemetry.jsonl import Lines, Shared, Value
from haclient.telemetry.redact import Redactor
from haclient.telemetry.resource import INSTANCE, SERVICE, Attributes
from haclient.telemetry.schema import Kind
from haclient.telemetry.settings import TelemetrySettings, file_stem
from haclient.version import package_version

logger = get_logger("haclient")

# Seconds from the first entry to the write.  A reconnect on a fast network takes about two milliseconds.
_GATHER = 0.005
# What is encoded between two writes: below half a millisecond.
_CHUNK = 16
# Seconds between two tries on a disk that does not take lines.
_RETRY = 1.0
_WARNING_INTERVAL = 3600.0
# At the exit of the process: a disk that hangs must not hold it up for ever.
_EXIT_TIMEOUT = 10.0
# For what happens after that, while others do their part of the exit.
_LATE_TIMEOUT = 1.0
# The thread looks at the clock again after at most so many seconds.
_LONGEST_WAIT = 3600.0
# multiprocessing: below every finalizer of others, so after them.
_EXIT_PRIORITY = -1000


@dataclass(frozen=True, slots=True)
class Alive:
    """Asks a source for an ``alive`` line.

    :param connection: of this one.
    """

    connection: int


class Source(Protocol):
    """Makes lines.

    :ivar dropped: entries that found the queue full, in all; ``reported``: those already reported in a line.
    """

    dropped: int
    reported: int

    def lines(self, entry: Any) -> Iterable[str]:
        """The lines of one entry (an ``Alive``, or what it put itself)."""

    def alive(self) -> Iterable[Alive]:
        """What to ask for at the end of each interval."""

    def forked(self) -> None:
        """Drop the parent's connections in a forked child, which has another instance id."""

    def __hash__(self) -> int:
        """By identity."""


class Channel:
    """Carries entries from sources to the files of one service."""

    def __init__(
        self, process: Process, settings: TelemetrySettings, name: str, attributes: Attributes
    ) -> None:
        self.settings = settings
        self.name = name
        self.service = attributes.get(SERVICE, name)
        self._attributes = attributes
        self.queue: deque[tuple[Source, Any]] = deque()
        self._process = process
        self._sources: weakref.WeakSet[Source] = weakref.WeakSet()
        self._begin()

    def _begin(self) -> None:
        instance = self._process.instance
        if self._process.is_child:  # the given id is the parent's, and no two instances may have the same
            self._attributes = self._attributes.without(INSTANCE)
        stem = f"{file_stem(self.service)}-{instance}-{os.getpid()}"
        self._files = Files(self.settings, self.service, stem, self._process.numbers)
        self._everywhere: dict[str, Value] = {
            "service": self.service,
            "instance": instance,
            "client_version": package_version(),
            **self._attributes.columns(),
        }
        self._shared = Shared(self._everywhere)
        self._lines = self.lines()
        self._subject = Lines.subject(None, {})
        self._own: deque[tuple[Source, Any]] = deque()
        self._unwritten = b""
        self._retry_at = 0.0
        self._alive_at = time.monotonic() + self.settings.alive_interval
        self._failed_entries = 0
        self._failing = False
        self._warned_at: float | None = None

    @property
    def instance(self) -> str:
        """The id of this process."""
        return self._process.instance

    def lines(self) -> Lines:
        """Makes the lines of one source in this process."""
        return Lines(f"/{self.name}/{self.instance}", self._shared)

    def withhold(self, redactor: Redactor) -> None:
        """Leave out the attributes in which a password is.  Called on the writer's thread.

        The service's name is public: the names of the files begin with it.
        """
        hidden = {
            column
            for column, value in self._attributes.columns().items()
            if column != "service" and redactor.holds_secret(value)
        }
        if hidden & self._everywhere.keys():
            kept = {name: value for name, value in self._everywhere.items() if name not in hidden}
            self._everywhere = {"instance": self.instance, **kept}
            self._shared.set(self._everywhere)

    def add(self, source: Source) -> None:
        """Ask this source for its ``alive`` lines, as long as it exists."""
        self._sources.add(source)

    def put(self, source: Source, entry: object) -> None:
        """Queue an entry, or drop it.  Called on the source's thread; never blocks or raises."""
        if len(self.queue) >= self.settings.queue_size:
            source.dropped += 1
        else:
            self.queue.append((source, entry))
        self._process.wake()

    def forked(self) -> None:
        """This is a child process now."""
        self._files.forget()
        self.queue = deque()
        self._begin()
        for source in tuple(self._sources):
            source.forked()

    # -- on the writer's thread ---------------------------------------------------------------

    def work(self, now: float, *, at_once: bool) -> bool:
        """Write a few lines; whether there may be more.

        :param at_once: a caller waits: try the disk now, even if it failed just before.
        """
        if not self._unwritten:
            self._unwritten = "".join(self._take()).encode("ascii")
        if not self._unwritten or (now < self._retry_at and not at_once):
            return False
        try:
            self._files.write(self._unwritten, now)
        except OSError as error:
            self._failed(error, now)
            return False
        self._unwritten = b""
        if self._failing:
            self._failing = False
            logger.info("telemetry is written to %s again", self.settings.directory)
        return True

    def housekeeping(self, now: float) -> None:
        """Do what is due by the clock."""
        if now >= self._alive_at:
            self._alive_at = now + self.settings.alive_interval
            if not self._own:
                every = ((source, each) for source in tuple(self._sources) for each in source.alive())
                self._own.extend(every)
        self._files.tick(now)
        self._files.compress(now)

    def due(self) -> float:
        """When to look again at the latest: monotonic seconds."""
        times = [self._alive_at]
        if self._unwritten:
            times.append(self._retry_at)
        files = self._files.due()
        return min(times if files is None else [*times, files])

    def finish(self) -> None:
        """The process ends."""
        self._files.finish()

    def _take(self) -> Iterable[str]:
        yield from self._drops()
        for _ in range(_CHUNK):
            entries = self.queue or self._own
            if not entries:
                return
            source, entry = entries.popleft()
            try:
                yield from source.lines(entry)
            except Exception:  # a defect in this package must not end the thread
                self._failed_entries += 1
                logger.exception("telemetry of %s failed", type(entry).__name__)

    def _drops(self) -> Iterable[str]:
        dropped, self._failed_entries = self._failed_entries, 0
        for source in tuple(self._sources):
            now = source.dropped
            dropped += now - source.reported
            source.reported = now
        if dropped:
            facts = {"monotonic": time.monotonic(), "dropped": dropped}
            yield self._lines.line(Kind.DROPPED, self._subject, time.time(), facts)

    def _failed(self, error: OSError, now: float) -> None:
        self._retry_at = now + _RETRY
        self._failing = True
        if self._warned_at is None or now >= self._warned_at + _WARNING_INTERVAL:
            self._warned_at = now
            text = "telemetry cannot be written to %s: %s; tried again every second, then dropped and counted"
            logger.warning(text, self.settings.directory, error.strerror or error)


@dataclass(frozen=True, slots=True)
class _Flush:
    """A caller that waits for a flush.

    :param last: because the process ends.
    """

    last: bool
    done: threading.Event = field(default_factory=threading.Event)


class Process:
    """The channels of this process and their thread.

    :ivar is_child: whether it was forked from one that wrote telemetry.
    """

    def __init__(self) -> None:
        self._channels: dict[tuple[TelemetrySettings, str, Attributes], Channel] = {}
        self._hooked = False
        self.is_child = False
        self._reset()

    def _reset(self) -> None:
        self.instance = str(uuid.uuid4())
        self.numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._signal: queue.SimpleQueue[_Flush | None] = queue.SimpleQueue()
        self._awake = False
        self._exiting = False
        self._thread: threading.Thread | None = None

    def channel(self, settings: TelemetrySettings, name: str) -> Channel:
        """The channel with these settings.

        :param name: the service, where neither the settings nor the environment say it.
        """
        attributes = settings.resource()
        with self._lock:
            channel = self._channels.get((settings, name, attributes))
            if channel is None:
                channel = Channel(self, settings, name, attributes)
                self._channels[settings, name, attributes] = channel
            if not self._hooked:
                self._hooked = True
                os.register_at_fork(after_in_child=self._forked)
        self._start()
        return channel

    def wake(self) -> None:
        """Wake the thread: an entry was queued."""
        if self._awake:
            return
        self._awake = True
        if self._exiting:
            self.flush(_LATE_TIMEOUT)
            return
        self._signal.put(None)
        if self._thread is None:
            self._start()

    def flush(self, timeout: float) -> bool:
        """Wait until the queued entries are written, or were tried; returns whether that was in time."""
        if self._thread is None and not any(channel.queue for channel in self._channels.values()):
            return True
        self._start()
        if self._thread is None:
            return False
        asked = _Flush(last=self._exiting)
        self._signal.put(asked)
        return asked.done.wait(timeout)

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None:
                return
            self._thread = threading.Thread(target=self._run, name="haclient telemetry", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter is finalizing, and starts no more threads
                self._thread = None
                return
        atexit.register(self._exit)
        multiprocessing = sys.modules.get("multiprocessing.util")
        if multiprocessing is not None:
            multiprocessing.Finalize(None, self._exit, exitpriority=_EXIT_PRIORITY)

    def _forked(self) -> None:
        self.is_child = True
        self._reset()
        for channel in self._channels.values():
            channel.forked()

    def _exit(self) -> None:
        self._exiting = True
        self.flush(_EXIT_TIMEOUT)

    def _run(self) -> None:
        while True:
            asked = self._wait() or self._gather(time.monotonic() + _GATHER)
            # Before the queues are read: what is put after that wakes this thread again.
            self._awake = False
            channels = tuple(self._channels.values())
            for channel in channels:
                channel.housekeeping(time.monotonic())
            for channel in channels:
                while channel.work(time.monotonic(), at_once=asked is not None):
                    pass
            if asked is not None:
                if asked.last:
                    for channel in channels:
                        channel.finish()
                asked.done.set()

    def _gather(self, until: float) -> _Flush | None:
        """Let more entries gather, unless a caller waits."""
        while (left := until - time.monotonic()) > 0:
            try:
                asked = self._signal.get(timeout=left)
            except queue.Empty:
                break
            if asked is not None:
                return asked
        return None

    def _wait(self) -> _Flush | None:
        due = min((channel.due() for channel in tuple(self._channels.values())), default=None)
        try:
            if due is None:
                return self._signal.get()
            return self._signal.get(timeout=min(_LONGEST_WAIT, max(0.0, due - time.monotonic())))
        except queue.Empty:
            return None


# The module's only state: a process has one writer for all its factories.
_process = Process()


def channel(settings: TelemetrySettings, name: str) -> Channel:
    """The channel with these settings in this process."""
    return _process.channel(settings, name)


def flush(timeout: float = _EXIT_TIMEOUT) -> bool:
    """Wait until all events so far are written.

    Needed before ``os._exit`` and ``exec`` only; a process that exits normally flushes by itself.

    :param timeout: seconds.
    :returns: whether it finished in time; also when the disk did not take the lines.
    """
    return _process.flush(timeout)
