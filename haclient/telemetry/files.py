"""The files of one service of one process: one is written, full ones are compressed.

Rules
-----
* A write is whole or not at all: what the disk took of one that failed is cut off again, and the next write
  begins a new file.  A killed process leaves at most one torn line, the last.
* Readers never see half a compressed file: it gets its name when it is complete and on the disk, and
  only then the plain one is removed.  In between both exist, and readers drop the duplicate ids.
* The name of a file in the making starts with a dot, which Spark and shells skip.
* Compression is done in steps, so that lines can be written in between.
* Descriptors are plain numbers and nothing is buffered: in a forked child ``forget`` drops everything
  of the parent's without a byte being written.
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
# Both less the umask.  The lines name hosts and services, and say what failed there: the group is for those
# who collect or analyze them.
_MODE = 0o640
_FOLDER_MODE = 0o750
# About five milliseconds of compression.
_STEP = 256 * 1024
_LEVEL = 6
_GZIP_WINDOW = 31  # zlib: window bits + 16 for a gzip header
_SYNC_INTERVAL = 1.0
# A disk that had no room for a compressed file is asked again after so long.
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
    """Belongs to the writer's thread.

    :param service: whose files these are.
    :param stem: how the names begin; a number and ``.jsonl`` follow.
    :param numbers: no two files of the process have the same.
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
        :raises OSError: nothing of it is kept then.
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
        """Do what is due by the clock."""
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
        """When ``tick`` has something to do, or ``compress``: monotonic seconds."""
        times = []
        if (self._full or self._compression is not None) and not self._finished:
            times.append(self._compress_at)
        if self._file is not None:
            times.append(self._file.opened_at + self._settings.rotate_seconds)
            if self._settings.fsync == "everysec" and self._file.dirty:
                times.append(self._file.synced_at + _SYNC_INTERVAL)
        return min(times, default=None)

    def compress(self, now: float) -> None:
        """One step of the compression of a full file, if there is one."""
        if now < self._compress_at or self._finished:
            return
        try:
            if self._compression is None and self._full:
                self._compression = _Compression(self._full[0])
            elif self._compression is not None and self._compression.step():
                self._compression = None
                self._full.popleft()
        except FileNotFoundError:  # somebody removed the file, which is allowed
            self._give_up_compression()
            self._full.popleft()
        except OSError:  # most likely there is no room; the plain file stays
            self._give_up_compression()
            self._compress_at = now + _RETRY

    def finish(self) -> None:
        """The process ends: what is not compressed by now stays plain."""
        self._finished = True
        self._give_up_compression()
        if self._file is not None and self._settings.fsync != "no":
            with contextlib.suppress(OSError):
                os.fsync(self._file.number)

    def forget(self) -> None:
        """In a forked child: the files are the parent's."""
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
        """Leave only whole lines in a file that could not be written, and use it no more."""
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
        """Compress a piece; whether that was the last."""
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
        """Let go of the files."""
        for number in (self._source, self._target):
            if number >= 0:
                os.close(number)
        self._source = self._target = -1

    def remove(self) -> None:
        """Remove what there is of the compressed file."""
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
