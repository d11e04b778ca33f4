"""The files of one service of one process: one is being written, full ones are compressed.

Rules
-----
* A write is whole or undone: the partial data of a failed one is cut off, and the next write begins a new
  file.  A killed process leaves at most one torn line, the last.
* Readers never see half a compressed file.  It gets its final name when it is complete and on the disk; only
  then is the plain one removed.  In between both exist, and readers drop the duplicate ids.
* The name of an unfinished file starts with a dot; Spark and shells skip such files.
* Compression proceeds in steps, so that lines can be written in between.
* Descriptors are plain numbers and nothing is buffered: in a forked child ``forget`` drops the parent's files
  without writing a byte.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from haclient.telemetry.retention import remove_old
from haclient.telemetry.settings import TelemetrySettings

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
# Both less the umask.  The lines name hosts, services and failures; the group is for the accounts that
# collect or analyze them.
_MODE = 0o640
_FOLDER_MODE = 0o750
# Bytes: about five milliseconds of compression.
_STEP = 256 * 1024
_LEVEL = 6
_GZIP_WINDOW = 31  # zlib: window bits + 16 for a gzip header
_SYNC_INTERVAL = 1.0
# Seconds until the next try after a disk had no space for a compressed file.
_RETRY = 60.0


@dataclass(slots=True)
class _Open:
    path: Path
    number: int
    opened_at: float
    size: int = 0
    synced_at: float = 0.0
    dirty: bool = False


class Files:
    """Writes and compresses files.  Belongs to the writer's thread.

    :param service: the service of the files.
    :param stem: the start of the names; a number and ``.jsonl`` follow.
    :param numbers: unique among the files of the process.
    """

    def __init__(self, settings: TelemetrySettings, service: str, stem: str, numbers: Iterator[int]) -> None:
        self._settings = settings
        self._service = service
        self._directory = Path(settings.directory)
        self._stem = stem
        self._numbers = numbers
        self._file: _Open | None = None
        self._full: deque[Path] = deque()
        self._compression: _Compression | None = None
        self._compress_at = 0.0
        self._finished = False

    def write(self, data: bytes, now: float) -> None:
        """Write whole lines.

        :param now: monotonic seconds.
        :raises OSError: if it failed; no part of the data is kept.
        """
        file = self._file
        if file is not None and file.size and file.size + len(data) > self._settings.rotate_size:
            self._rotate(file)
            file = None
        file = file or self._begin(now)
        try:
            written = 0
            while written < len(data):
                written += os.write(file.number, data[written:])
            if self._settings.fsync == "always":
                os.fsync(file.number)
        except OSError:
            self._cut(file)
            raise
        file.size += len(data)
        file.dirty = True

    def tick(self, now: float) -> None:
        """Rotate or sync the file if the clock demands it."""
        file = self._file
        if file is None:
            return
        if now >= file.opened_at + self._settings.rotate_seconds:
            self._rotate(file)
        elif self._settings.fsync == "everysec" and file.dirty and now >= file.synced_at + _SYNC_INTERVAL:
            file.dirty, file.synced_at = False, now
            with contextlib.suppress(OSError):
                os.fsync(file.number)

    def due(self) -> float | None:
        """Return when ``tick`` or ``compress`` has work next, in monotonic seconds; ``None`` for never."""
        times = []
        if (self._full or self._compression is not None) and not self._finished:
            times.append(self._compress_at)
        if self._file is not None:
            times.append(self._file.opened_at + self._settings.rotate_seconds)
            if self._settings.fsync == "everysec" and self._file.dirty:
                times.append(self._file.synced_at + _SYNC_INTERVAL)
        return min(times, default=None)

    def compress(self, now: float) -> None:
        """Do one step of the compression of a full file, if there is one."""
        if now < self._compress_at or self._finished:
            return
        try:
            if self._compression is None and self._full:
                self._compression = _Compression(self._full[0])
            elif self._compression is not None and self._compression.step():
                self._compression = None
                self._full.popleft()
        except FileNotFoundError:  # users may remove files at any time
            self._give_up_compression()
            self._full.popleft()
        except OSError:  # most likely the disk is full; the plain file stays
            self._give_up_compression()
            self._compress_at = now + _RETRY

    def finish(self) -> None:
        """Stop compressing: the process ends, and other files stay plain."""
        self._finished = True
        self._give_up_compression()
        if self._file is not None and self._settings.fsync != "no":
            with contextlib.suppress(OSError):
                os.fsync(self._file.number)

    def forget(self) -> None:
        """Drop the parent's files in a forked child."""
        if self._file is not None:
            os.close(self._file.number)
        if self._compression is not None:
            self._compression.close()
        self._file = self._compression = None
        self._full.clear()
        self._finished = False

    def _begin(self, now: float) -> _Open:
        self._directory.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
        path = self._directory / f"{self._stem}-{next(self._numbers)}.jsonl"
        self._file = _Open(path, os.open(path, _NEW, _MODE), now, synced_at=now)
        remove_old(self._settings, self._service, {path, *self._full})
        return self._file

    def _rotate(self, file: _Open) -> None:
        self._file = None
        with contextlib.suppress(OSError):
            if self._settings.fsync != "no":
                os.fsync(file.number)
        os.close(file.number)
        self._full.append(file.path)

    def _cut(self, file: _Open) -> None:
        """Cut a file to its whole lines after a failed write, and stop using it."""
        self._file = None
        with contextlib.suppress(OSError):
            os.ftruncate(file.number, file.size)
        os.close(file.number)
        if file.size:
            self._full.append(file.path)
        else:
            with contextlib.suppress(OSError):
                file.path.unlink()

    def _give_up_compression(self) -> None:
        if self._compression is not None:
            self._compression.close()
            self._compression.remove()
            self._compression = None


@dataclass(slots=True)
class _Compression:
    """The compression of one file, in steps.

    :raises OSError: as does ``step``.
    """

    path: Path
    _source: int = -1
    _target: int = -1
    _zlib: zlib._Compress = field(default_factory=lambda: zlib.compressobj(_LEVEL, wbits=_GZIP_WINDOW))

    def __post_init__(self) -> None:
        self._source = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._target = os.open(self._temporary, _NEW, _MODE)
        except OSError:
            self.close()
            raise

    @property
    def _temporary(self) -> Path:
        return self.path.with_name(f".{self.path.name}.gz.tmp")

    def step(self) -> bool:
        """Compress a piece; return whether it was the last."""
        data = os.read(self._source, _STEP)
        _write(self._target, self._zlib.compress(data) if data else self._zlib.flush())
        if data:
            return False
        os.fsync(self._target)
        self.close()
        self._temporary.rename(self.path.with_name(f"{self.path.name}.gz"))
        _sync_directory(self.path.parent)
        self.path.unlink()
        return True

    def close(self) -> None:
        """Close both files."""
        for number in (self._source, self._target):
            if number >= 0:
                os.close(number)
        self._source = self._target = -1

    def remove(self) -> None:
        """Remove the unfinished compressed file."""
        with contextlib.suppress(OSError):
            self._temporary.unlink()


def _write(number: int, data: bytes) -> None:
    written = 0
    while written < len(data):
        written += os.write(number, data[written:])


def _sync_directory(path: Path) -> None:
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)
