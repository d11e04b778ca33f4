"""An arbiter in a directory that all members can write: a local disk for a local pair, or a shared one.

    record       the record; replaced whole, by rename, and never written in place
    initialised  exists since the first record: if ``record`` is missing, it was lost
    lock         held with flock during a compare-and-set; released by the kernel if its holder dies

Rules
-----
* The directory is private to the user that runs all members (mode 0700, and 0600 for its files). A user who
  may open ``lock``, even for reading, can hold it forever. Members of different users cannot share it.
* The directory must exist. An unmounted share must not look like a new cluster: make it a directory *inside*
  the share, which is missing while the share is not mounted.
* An empty directory means an unused arbiter: (0, ""). If ``initialised`` exists without ``record``, the
  record was deleted. The arbiter is then unavailable, until the record is restored or all members start again
  with an empty directory.
* Bytes reach the disk before the name does (fsync of the file, rename, fsync of the directory). So a process
  that dies at any point leaves the old or the new record.
* A call that takes longer than the timeout is abandoned. If a hanging disk applies the rename later, that
  equals an unknown outcome. The clock is checked before the rename, so the window is small.

The file system must provide atomic renames, and ``flock`` between all its users: local ones, NFS 4 and the
usual cluster file systems do.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from broker_stub import fsync, permissions
from broker_stub.election.arbiter.record import ArbiterMissingError, ArbiterUnavailableError, decode, encode
from broker_stub.election.arbiter.threads import Threads
from broker_stub.election.generation import ArbiterRecord

T = TypeVar("T")

_FILES = frozenset({"record", "record.new", "initialised", "lock"})

# Seconds between attempts: a waiting flock cannot be cancelled.
_TRY_AGAIN = 0.01

_INITIALISED = """\
This directory holds the generation record of a haclient cluster, in the file `record`.
Do not delete that file: without it no member can become primary.
"""


class DirectoryArbiter:
    """The record in a directory.

    :param path: the directory; it must exist.
    :param timeout: seconds that a call may take.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float) -> None:
        self._path = Path(path)
        self._timeout = timeout
        self._threads = Threads()

    async def read(self) -> ArbiterRecord:
        """Return the record."""
        return await self._bounded(lambda _: _read(self._path))

    async def compare_and_set(self, expected: ArbiterRecord, new: ArbiterRecord) -> bool:
        """Replace the record if it is ``expected``; return whether it was."""
        return await self._bounded(lambda deadline: _compare_and_set(self._path, expected, new, deadline))

    async def close(self) -> None:
        """Do nothing: no resource stays open between calls."""

    async def _bounded(self, work: Callable[[float], T]) -> T:
        try:
            return await self._threads.run(work, timeout=self._timeout)
        except TimeoutError:
            raise ArbiterUnavailableError(
                f"{self._path} did not answer within {self._timeout:g} s: is its disk or share there?"
            ) from None
        except FileNotFoundError as error:
            raise ArbiterMissingError(
                f"the arbiter's directory {self._path} does not exist: make it (mkdir), or mount the share"
                " that it is in"
            ) from error
        except OSError as error:
            raise ArbiterUnavailableError(
                f"{self._path} can't be used as arbiter: {error}{_advice(error)}"
            ) from error


def _advice(error: OSError) -> str:
    full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    return ": its disk is full, make room on that file system" if full else ""


def _read(path: Path) -> ArbiterRecord:
    record, initialised = path / "record", path / "initialised"
    # Twice: the first compare-and-set may happen between the two reads.
    for _ in range(2):
        with contextlib.suppress(FileNotFoundError):
            return decode(record.read_bytes(), str(record))
        if not initialised.exists():
            path.stat()  # raises if the directory itself is missing
            return ArbiterRecord()
    raise ArbiterUnavailableError(f"{record} is missing although {initialised.name} is there: it was deleted")


def _compare_and_set(path: Path, expected: ArbiterRecord, new: ArbiterRecord, deadline: float) -> bool:
    permissions.restrict_directory(path, _FILES.__contains__)
    with _locked(path / "lock", deadline):
        if _read(path) != expected:
            return False
        # A process that died may have left the file; only the lock holder writes it, so it is overwritten.
        fsync.write(path / "record.new", encode(new))
        if time.monotonic() > deadline:
            raise ArbiterUnavailableError(f"{path} is too slow: the record was left as it is")
        (path / "record.new").rename(path / "record")
        fsync.sync_directory(path)
        if not (path / "initialised").exists():
            fsync.write(path / "initialised", _INITIALISED.encode())
            fsync.sync_directory(path)
        return True


@contextlib.contextmanager
def _locked(path: Path, deadline: float) -> Iterator[None]:
    descriptor = _lock(path, deadline)
    try:
        yield
    finally:
        os.close(descriptor)


def _lock(path: Path, deadline: float) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, permissions.FILE_MODE)
        try:
            permissions.restrict_file(descriptor)
            if _try_lock(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if time.monotonic() > deadline:
            raise ArbiterUnavailableError(f"{path} is held by another process: is one stopped?")
        time.sleep(_TRY_AGAIN)


def _try_lock(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    # The file may have been deleted meanwhile: a lock on it would exclude no other process.
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False
