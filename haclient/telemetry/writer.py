"""The one thread of a process that writes telemetry, for all factories and members in it.

Theory of operation
-------------------
``Source.put`` appends to a queue (``Channel``) and wakes the thread if it may be asleep.  It takes no lock,
does no I/O and encodes nothing, so a connection never waits for its telemetry.

The thread takes a few entries at a time, lets their source make lines of them, and writes the lines.  Each
write frees the interpreter's lock, so the event loop waits for it a fraction of a millisecond at most.

Events are gathered for some milliseconds before they are written.  So the steps of a reconnect, or of a
promotion with its waiting clients, are not interrupted by a write each.

Rules
-----
* Sources make lines on the writer's thread only, and need no locks.
* A full queue drops further entries.  Each source counts its own drops, because only one thread adds to that
  count; the next written lines report the number.
* Lines that cannot be written stay, and the queue behind them fills: a disk that is full for a while costs at
  most the entries beyond the queue's size.  The first failure logs a warning, at most one an hour; recovery
  logs one line.
* The thread is a daemon.  At the exit of the process ``atexit`` writes the queued entries (and
  ``multiprocessing``, whose children skip ``atexit``).
* A forked child has no thread, an empty queue, a new instance id and files of its own.  It locks, flushes or
  writes nothing of the parent's.
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
# Entries encoded between two writes: less than half a millisecond.
_CHUNK = 16
# Seconds between two tries on a disk that accepts no lines.
_RETRY = 1.0
_WARNING_INTERVAL = 3600.0
# Seconds at the exit of the process: a disk that hangs must not delay it for ever.
_EXIT_TIMEOUT = 10.0
# Seconds for entries queued after that, while other modules exit.
_LATE_TIMEOUT = 1.0
# Seconds after which the thread checks the clock again at the latest.
_LONGEST_WAIT = 3600.0
# multiprocessing: below the finalizers of other modules, so after them.
_EXIT_PRIORITY = -1000


@dataclass(frozen=True, slots=True)
class Alive:
    """Asks a source for an ``alive`` line.

    :param connection: the number of the connection.
    """

    connection: int


class Source(Protocol):
    """Makes lines.

    :ivar dropped: all entries that found the queue full; ``reported``: the part already reported in a line.
    """

    dropped: int
    reported: int

    def lines(self, entry: Any) -> Iterable[str]:
        """Return the lines of one entry (an ``Alive``, or one that this source put)."""

    def alive(self) -> Iterable[Alive]:
        """Return the entries to request at the end of each interval."""

    def forked(self) -> None:
        """Drop the parent's connections in a forked child, which has another instance id."""

    def __hash__(self) -> int:
        """Hash by identity."""


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
        if self._process.is_child:  # the given id is the parent's, and ids of instances must be unique
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
        """Return the id of this process."""
        return self._process.instance

    def lines(self) -> Lines:
        """Return a maker of lines for one source in this process."""
        return Lines(f"/{self.name}/{self.instance}", self._shared)

    def withhold(self, redactor: Redactor) -> None:
        """Omit attributes that contain a password.  Called on the writer's thread.

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
        """Request ``alive`` lines from this source as long as it exists."""
        self._sources.add(source)

    def put(self, source: Source, entry: object) -> None:
        """Queue an entry, or drop it.  Called on the source's thread; never blocks or raises."""
        if len(self.queue) >= self.settings.queue_size:
            source.dropped += 1
        else:
            self.queue.append((source, entry))
        self._process.wake()

    def forked(self) -> None:
        """Reset the channel in a forked child."""
        self._files.forget()
        self.queue = deque()
        self._begin()
        for source in tuple(self._sources):
            source.forked()

    # -- on the writer's thread ---------------------------------------------------------------

    def work(self, now: float, *, at_once: bool) -> bool:
        """Write a few lines; return whether there may be more.

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
        """Request ``alive`` lines, and rotate, sync or compress files, if the clock demands it."""
        if now >= self._alive_at:
            self._alive_at = now + self.settings.alive_interval
            if not self._own:
                every = ((source, each) for source in tuple(self._sources) for each in source.alive())
                self._own.extend(every)
        self._files.tick(now)
        self._files.compress(now)

    def due(self) -> float:
        """Return when there is work next at the latest, in monotonic seconds."""
        times = [self._alive_at]
        if self._unwritten:
            times.append(self._retry_at)
        files = self._files.due()
        return min(times if files is None else [*times, files])

    def finish(self) -> None:
        """Finish the files: the process ends."""
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

    :param last: set if the process ends.
    """

    last: bool
    done: threading.Event = field(default_factory=threading.Event)


class Process:
    """The channels of this process and their thread.

    :ivar is_child: whether this process was forked from one that wrote telemetry.
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
        """Return the channel with these settings.

        :param name: the service if neither the settings nor the environment define it.
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
        """Wait until the queued entries are written, or were tried; return whether that was in time."""
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
            # Before the queues are read: a later entry wakes this thread again.
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
    """Return the channel with these settings in this process."""
    return _process.channel(settings, name)


def flush(timeout: float = _EXIT_TIMEOUT) -> bool:
    """Wait until all events so far are written.

    Needed only before ``os._exit`` and ``exec``; a process that exits normally flushes by itself.

    :param timeout: seconds.
    :returns: whether it finished in time; also true if the disk did not accept the lines.
    """
    return _process.flush(timeout)
