"""Detects whether a long commit makes progress, to distinguish a slow disk from one that hangs.

Theory of operation
-------------------
SQLite writes a transaction with one call and syncs it with another, and reports nothing in between; 256 MiB
may take seconds.  So a tick during a commit counts two signs of progress.

* The writer thread has used the CPU: a large commit consists mostly of copying, to SQLite and to the kernel.
  A thread that waits for a disk uses no CPU.
* The disk has taken a piece of the written data.  A second thread hands the kernel's dirty pages to the disk,
  ``PIECE`` by ``PIECE``, and waits for each.  So the sync at the end of the transaction is short, too.

Rules
-----
* Nothing runs before the first tick: a commit that ends between two ticks costs nothing more.
* A file is written back once for each change, so the count stops soon after the writer.
* The pieces make nothing durable, and nothing is reported because of them: SQLite syncs after them.  But an
  error in a piece makes the store fail, because an old kernel reports it only once (``writer``).

Sources: sync_file_range(2); Rebello et al., "Can Applications Recover from fsync Failures?" (2020).
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

PIECE: Final = 4 << 20
"""Bytes.  A disk writes a piece in tens of milliseconds; 100 GB are 25,000 pieces, a microsecond each."""
# The least share of a CPU that a computing thread gets, even if 50 threads compete for one CPU.
_COMPUTES = 0.01
# SYNC_FILE_RANGE_WAIT_BEFORE, _WRITE and _WAIT_AFTER together.
_WRITE_AND_WAIT = 7
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.ESPIPE, errno.EOPNOTSUPP})


def write_back(file: int, start: int, size: int) -> None:
    """Hand dirty pages of a file to the disk, and wait until it has written them.

    :raises OSError: when it did not.
    """
    while _SYNC_FILE_RANGE(file, start, size, _WRITE_AND_WAIT):
        error = ctypes.get_errno()
        if error in _UNSUPPORTED:
            os.fdatasync(file)
            return
        if error != errno.EINTR:
            raise OSError(error, f"the disk does not take what was written: {os.strerror(error)}")


class CommitProgress:
    """The progress of one store's writer.

    Call ``tick`` on the loop's thread, and the other methods on the writer's.

    :param paths: the files that a commit writes.
    :param write: hands a part of a file to the disk, as ``write_back`` does.
    """

    def __init__(self, paths: Iterable[Path], write: Callable[[int, int, int], None] = write_back) -> None:
        # Open until the connection is closed: when a process closes any descriptor of a database file, the
        # kernel drops SQLite's locks on it.
        files = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in paths]
        self._files = {file: _state(file) for file in files}
        self._write = write
        self._pieces = 0
        self._computed = 0
        self._clock: int | None = None
        self._used = 0.0
        self._looked_at = time.monotonic()
        self._asked = threading.Event()
        self._closed = False
        self._error: OSError | None = None
        self._thread: threading.Thread | None = None
        self.stuck = False
        """True if the disk has refused the commit; retries do not count as progress."""

    # -- on the loop's thread -------------------------------------------------------------------

    def tick(self) -> int:
        """Return a number that grows between two calls if the current commit makes progress."""
        now, before = time.monotonic(), self._looked_at
        used, self._looked_at = self._time_used(), now
        if not self.stuck:
            self._computed += used - self._used > _COMPUTES * (now - before)
            if self._thread is None:
                # A daemon thread: a member that exits must not wait for its disk.
                self._thread = threading.Thread(target=self._run, name="store-write-back", daemon=True)
                self._thread.start()
            self._asked.set()
        self._used = used
        return self._computed + self._pieces

    def _time_used(self) -> float:
        if self._clock is None:
            return self._used
        try:
            return time.clock_gettime(self._clock)
        except OSError:  # the writer's thread has ended
            return self._used

    # -- on the writer's thread -----------------------------------------------------------------

    def started(self) -> None:
        """Measure this thread, the writer's, from now on."""
        if hasattr(time, "pthread_getcpuclockid"):
            self._clock = time.pthread_getcpuclockid(threading.get_ident())

    def check(self) -> None:
        """Check that the disk has written all pieces so far.

        :raises OSError: when it has not, so that data may be lost.
        """
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End, after the connection is closed.  Waits for the disk, as closing the connection did."""
        self._closed = True
        if self._thread is not None:
            self._asked.set()
            self._thread.join()
        for file in self._files:
            os.close(file)
        self._files.clear()

    # -- on the write-back thread ---------------------------------------------------------------

    def _run(self) -> None:
        while self._asked.wait() and not self._closed:
            self._asked.clear()
            try:
                for file in self._files:
                    self._write_back(file)
            except OSError as error:
                self._error = error
                return

    def _write_back(self, file: int) -> None:
        state = _state(file)
        if state != self._files[file]:
            for start in range(0, state[0], PIECE):
                if self._closed:
                    return
                self._write(file, start, PIECE)
                self._pieces += 1
            self._files[file] = state


def _state(file: int) -> tuple[int, int]:
    """Return the size of a file, and a time that changes with each write."""
    found = os.fstat(file)
    return found.st_size, found.st_mtime_ns


def _sync_file_range() -> Callable[[int, int, int, int], int]:
    function = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
    if function is None:
        return _unsupported
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function  # type: ignore[no-any-return]


def _unsupported(_file: int, _start: int, _size: int, _flags: int) -> int:
    ctypes.set_errno(errno.ENOSYS)
    return -1


_SYNC_FILE_RANGE = _sync_file_range()
