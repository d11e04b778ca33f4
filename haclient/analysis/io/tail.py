"""Moves whole lines of growing files into immutable segments, which a stream can read.

Spark's file source takes every file once, when it sees it; what is written to the file afterwards is
not read.  Telemetry files grow for an hour.

Rules
-----
* A segment holds whole lines of one source, and never changes.  It appears by a rename, with everything in
  it, or not at all.
* There is no other state: a segment's name says which bytes of which source it has, so that a kill
  between two steps can neither lose nor repeat a line.
* A source is known by its name without ``.gz`` and by its first line.  The file that rotation
  compresses is the same source, and goes on where the plain one was left.  Where names do not show that,
  lines come twice, and the stream's removal of duplicates by event id takes care of them.
* A last line without an end waits for it.  When the file has not changed for ``torn_after`` seconds,
  or is compressed and ends there, the line is taken as it is: its writer is dead.
* One process tails one folder of segments.

Theory of operation
-------------------
``<quoted source>@<first line's hash>@<begin>-<end>.jsonl`` holds the bytes from ``begin`` to ``end`` of
the uncompressed source.  At the start the ends are read back from the names.  A round goes through all
sources, and makes at most one segment of ``SEGMENT_BYTES`` of each until nothing is left.
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
"""Size of a segment: a few seconds of one core's work, so that a big file is spread over all of them."""

TORN_AFTER = 600.0
"""Seconds after which a line without an end has no writer any more: ten times the `alive` interval."""

_FIRST_LINE = 64 << 10
_CHUNK = 64 << 10
_HASH = 16
_File = io.BufferedReader | gzip.GzipFile
_PLAIN = "!'(),;:$&+="  # what a URI of Hadoop's leaves as it is, but what means something here: * / @
_CUT_OFF = (EOFError, zlib.error, gzip.BadGzipFile)


@dataclass(frozen=True, slots=True)
class Source:
    """A telemetry file, whether it still grows or is compressed.

    :param name: its path in the folder, without ``.gz``.
    :param first: hash of its first line.
    """

    name: str
    first: str

    def prefix(self) -> str:
        """How the names of its segments begin."""
        return f"{quote(self.name, safe=_PLAIN)}@{self.first}"


class Tail:
    """Copies new lines from ``folder`` to segments.

    :param torn_after: seconds without a change after which a last line without an end is taken.
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
        """Copy whatever is new; returns the number of segments that were made."""
        return sum(self._copy_file(path) for path in files(self._folder))

    def forget(self) -> None:
        """Remove segments that were read: all but the last of each source, whose name has its end."""
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
            return 0  # rotation took it; its successor is found in the next round
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
        hidden = path.with_name(f".{path.name}.new")  # Spark passes over names with a dot
        with hidden.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        hidden.rename(path)
        self._ends[source.prefix()] = end
        return end


def files(folder: Path) -> list[Path]:
    """The telemetry files in ``folder``, compressed or not."""
    return sorted(path for pattern in ("*.jsonl", "*.jsonl.gz") for path in folder.rglob(pattern))


def _ends(segments: Path) -> dict[str, int]:
    ends: dict[str, int] = {}
    for path in segments.glob("*.jsonl"):
        prefix, end = _span(path)
        ends[prefix] = max(end, ends.get(prefix, 0))
    return ends


def _span(segment: Path) -> tuple[str, int]:
    """Whose segment it is, and where it ends in its source."""
    prefix, _, span = segment.stem.rpartition("@")
    return prefix, int(span.partition("-")[2])


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix().removesuffix(".gz")


def _open(path: Path) -> _File:
    return gzip.GzipFile(path) if path.suffix == ".gz" else path.open("rb")


def _first_line(file: _File, *, dead: bool) -> bytes | None:
    """The first line, without its end; ``None`` while it is not all there."""
    try:
        line = file.readline(_FIRST_LINE)
    except _CUT_OFF:
        return None
    if line.endswith(b"\n") or (line and (dead or len(line) == _FIRST_LINE)):
        return line.rstrip(b"\n")
    return None


def _pieces(file: _File, *, dead: bool, finished: bool) -> Iterator[bytes]:
    """Whole lines, about ``SEGMENT_BYTES`` at a time.

    :param dead: whether nobody writes to the file any more.
    :param finished: whether the file's end, where it can be read, is the end for ever.
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
    """Up to a segment's size, and whether it could be read; a compressed file may be cut off."""
    block = bytearray()
    try:
        while len(block) < SEGMENT_BYTES and (chunk := file.read1(_CHUNK)):
            block += chunk
    except _CUT_OFF:
        return bytes(block), False
    return bytes(block), True
