"""Copy whole lines of growing files into immutable segments, which a stream can read.

Spark's file source reads every file once, when it first sees it, and misses lines added later.
Telemetry files grow for an hour.

Rules
-----
* A segment holds whole lines of one source, and never changes.  A rename publishes it, complete.
* There is no other state: a segment's name gives its source and its range of bytes, so that a kill between
  two steps can neither lose nor repeat a line.
* A source is identified by its name without ``.gz`` and by its first line.  A file that rotation
  compresses is the same source, and continues at the end of the plain one.  If names do not show this,
  lines are copied twice, and the stream removes the duplicates by event id.
* A last line without a line end waits for it.  It is copied as it is when its writer is dead: the file
  has not changed for ``torn_after`` seconds, or is compressed and ends there.
* One process tails one folder of segments.

Theory of operation
-------------------
``<quoted source>@<first line's hash>@<begin>-<end>.jsonl`` holds the bytes from ``begin`` to ``end`` of
the uncompressed source.  At the start the ends are read back from the names.  A round goes through all
sources, and copies each in segments of about ``SEGMENT_BYTES``.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

SEGMENT_BYTES = 32 << 20
"""Size of a segment: a few seconds of one core's work, so that all cores share a large file."""

TORN_AFTER = 600.0
"""Seconds after which a line without an end is assumed to have no writer: ten times the `alive` interval."""

_FIRST_LINE = 64 << 10
_CHUNK = 64 << 10
_HASH = 16
_File = io.BufferedReader | gzip.GzipFile
_PLAIN = "!'(),;:$&+="  # left unquoted by Hadoop's URIs, except for characters with a meaning here: * / @
_CUT_OFF = (EOFError, zlib.error, gzip.BadGzipFile)


@dataclass(frozen=True, slots=True)
class Source:
    """A telemetry file, growing or compressed.

    :param name: its path in the folder, without ``.gz``.
    :param first: hash of its first line.
    """

    name: str
    first: str

    def prefix(self) -> str:
        """Return the common prefix of its segments' names."""
        return f"{quote(self.name, safe=_PLAIN)}@{self.first}"


class Tail:
    """Copies new lines from ``folder`` to segments.

    :param torn_after: seconds without a change after which a last line without an end is copied.
    """

    def __init__(self, folder: Path, segments: Path, *, torn_after: float = TORN_AFTER) -> None:
        self._folder = folder
        self._segments = segments
        self._torn_after = torn_after
        self._finished: dict[Path, tuple[int, int]] = {}
        segments.mkdir(parents=True, exist_ok=True)
        for leftover in segments.glob(".*.new"):
            leftover.unlink()
        self._ends = _ends(segments)

    def copy(self) -> int:
        """Copy all new lines; return the number of new segments."""
        return sum(self._copy_file(path) for path in files(self._folder))

    def forget(self) -> None:
        """Remove segments that were read; keep the last of each source, whose name records the end."""
        for path in self._segments.glob("*.jsonl"):
            prefix, end = _span(path)
            if end < self._ends.get(prefix, 0):
                path.unlink()

    def _copy_file(self, path: Path) -> int:
        try:
            before = path.stat()
            stamp = before.st_size, before.st_mtime_ns
            if self._finished.get(path) == stamp:
                return 0
            made = self._copy_lines(path, dead=time.time() - before.st_mtime >= self._torn_after)
        except FileNotFoundError:
            return 0  # the file was rotated; the next round finds its new name
        if path.suffix == ".gz":
            self._finished[path] = stamp
        return made

    def _copy_lines(self, path: Path, *, dead: bool) -> int:
        with _open(path) as file:
            first = _first_line(file, dead=dead)
            if first is None:
                return 0
            source = Source(_name(path, self._folder), hashlib.sha256(first).hexdigest()[:_HASH])
            begin = self._ends.get(source.prefix(), 0)
            if path.suffix != ".gz" and begin >= os.fstat(file.fileno()).st_size:
                return 0
            file.seek(begin)
            made = 0
            for data in _pieces(file, dead=dead, finished=path.suffix == ".gz"):
                begin = self._write(source, begin, data)
                made += 1
        return made

    def _write(self, source: Source, begin: int, data: bytes) -> int:
        end = begin + len(data)
        path = self._segments / f"{source.prefix()}@{begin}-{end}.jsonl"
        hidden = path.with_name(f".{path.name}.new")  # Spark ignores names with a leading dot
        with hidden.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        hidden.rename(path)
        self._ends[source.prefix()] = end
        return end


def files(folder: Path) -> list[Path]:
    """Return the telemetry files in ``folder``, compressed or not."""
    return sorted(path for pattern in ("*.jsonl", "*.jsonl.gz") for path in folder.rglob(pattern))


def _ends(segments: Path) -> dict[str, int]:
    ends: dict[str, int] = {}
    for path in segments.glob("*.jsonl"):
        prefix, end = _span(path)
        ends[prefix] = max(end, ends.get(prefix, 0))
    return ends


def _span(segment: Path) -> tuple[str, int]:
    """Return the prefix of a segment's name, and the end of its range of bytes."""
    prefix, _, span = segment.stem.rpartition("@")
    return prefix, int(span.partition("-")[2])


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix().removesuffix(".gz")


def _open(path: Path) -> _File:
    return gzip.GzipFile(path) if path.suffix == ".gz" else path.open("rb")


def _first_line(file: _File, *, dead: bool) -> bytes | None:
    """Return the first line without its end; ``None`` while it is incomplete."""
    try:
        line = file.readline(_FIRST_LINE)
    except _CUT_OFF:
        return None
    if line.endswith(b"\n") or (line and (dead or len(line) == _FIRST_LINE)):
        return line.rstrip(b"\n")
    return None


def _pieces(file: _File, *, dead: bool, finished: bool) -> Iterator[bytes]:
    """Yield whole lines, about ``SEGMENT_BYTES`` at a time.

    :param dead: whether the file has no writer any more.
    :param finished: whether the file can grow no more.
    """
    rest = b""
    while True:
        block, more = _block(file)
        data = rest + block
        cut = data.rfind(b"\n") + 1
        rest = data[cut:]
        if cut:
            yield data[:cut]
        if not more or not block:
            break
    if rest and (dead or (finished and more)):
        yield rest


def _block(file: _File) -> tuple[bytes, bool]:
    """Return up to a segment's size, and whether reading succeeded; a compressed file may be truncated."""
    block = bytearray()
    try:
        while len(block) < SEGMENT_BYTES and (chunk := file.read1(_CHUNK)):
            block += chunk
    except _CUT_OFF:
        return bytes(block), False
    return bytes(block), True
