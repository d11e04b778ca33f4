"""Validates the lines of files, folders and standard input.

Rules
-----
* Lines are not kept.  For each complaint its first place and its count are kept, for at most ``MOST``
  different ones.  A line longer than ``LONGEST`` is not validated.
* The analysis reads the same files: all in a folder and below it, except names that begin with a
  dot or an underscore.  A file whose name ends in ``.gz`` is unpacked, and so is standard input if it begins
  as gzip does.
* Empty lines do not count.  Parquet and other compressions are refused: only the analysis reads those.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from haclient.telemetry.contract.check import Verdict, check
from haclient.telemetry.schema import Reason

STDIN = "-"
LONGEST = 2**20
"""Bytes of a line."""

MOST = 100
_PIECE = 2**16
_GZIP = b"\x1f\x8b"  # RFC 1952, 2.3.1
_REFUSED = (".parquet", ".bz2", ".deflate", ".lz4", ".snappy", ".zst")


@dataclass(frozen=True, slots=True, order=True)
class Complaint:
    """A fault of lines.

    :param detail: empty if the reason is enough.
    """

    reason: Reason
    detail: str = ""


@dataclass(slots=True)
class Found:
    """A finding's count and its first place: a file and the number of the line in it, from 1."""

    file: str
    line: int
    count: int = 0


@dataclass(slots=True)
class Report:
    """The findings.

    :ivar lines: the number of lines that are not empty.
    :ivar complaints: in the order in which they were found.
    :ivar unknown_types: types of lines that this release does not know, which is no complaint.
    """

    files: int = 0
    lines: int = 0
    complaints: dict[Complaint, Found] = field(default_factory=dict)
    unknown_types: dict[str, Found] = field(default_factory=dict)

    @property
    def wrong(self) -> int:
        """Return the number of lines (and cut files) with a complaint."""
        return sum(found.count for found in self.complaints.values())

    def add(self, verdict: Verdict, file: str, line: int) -> None:
        """Count a verdict."""
        if verdict.reason is not None:
            of_keys = verdict.reason in {Reason.VIOLATION, Reason.OTHER_TYPE}
            key = Complaint(verdict.reason, verdict.detail if of_keys else "")
            if key not in self.complaints and len(self.complaints) >= MOST:
                key = Complaint(verdict.reason, "others")
            self.complaints.setdefault(key, Found(file, line)).count += 1
        elif verdict.unknown_type is not None:
            name = verdict.unknown_type
            if name not in self.unknown_types and len(self.unknown_types) >= MOST:
                name = "others"
            self.unknown_types.setdefault(name, Found(file, line)).count += 1


def validate(paths: Iterable[str], now: datetime | None = None) -> Report:
    """Validate all lines.

    :param paths: files and folders, ``-`` for standard input.
    :param now: when they are read; this moment by default.
    :raises OSError: if a path cannot be read.
    :raises ValueError: for a file of another kind.
    """
    report, now = Report(), now or datetime.now(UTC)
    for path in paths:
        for name in files_of(path):
            report.files += 1
            _read(name, report, now)
    return report


def files_of(path: str) -> Iterator[str]:
    """Yield the files of a path, in the order of their names.

    :raises OSError: if there is no such path.
    :raises ValueError: for a file of another kind.
    """
    if path == STDIN:
        yield path
        return
    if not Path(path).is_dir():
        Path(path).stat()  # raises an error if it does not exist
        yield _readable(path)
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        for name in sorted(names):
            if not name.startswith((".", "_")):
                yield _readable(str(Path(folder) / name))


def _readable(name: str) -> str:
    if name.endswith(_REFUSED):
        raise ValueError(f"{name}: only lines are validated, plain or in .gz")
    return name


def _read(name: str, report: Report, now: datetime) -> None:
    number = 0
    with _opened(name) as source:
        try:
            for number, line in enumerate(_lines(source), start=1):
                if line is None:
                    report.lines += 1
                    report.add(Verdict(Reason.TOO_LONG), name, number)
                elif line.strip():
                    report.lines += 1
                    report.add(check(line.decode(errors="replace"), now), name, number)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            report.add(Verdict(Reason.CUT_SHORT), name, number + 1)


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == STDIN:
        source = io.BufferedReader(sys.stdin.buffer)  # type: ignore[type-var]  # whatever stands for it
        packed = source.peek(len(_GZIP)).startswith(_GZIP)
        yield gzip.GzipFile(fileobj=source) if packed else source  # type: ignore[misc]  # it reads lines too
        source.detach()  # else it would be closed
    elif name.endswith(".gz"):
        with gzip.open(name) as unpacked:
            yield unpacked  # type: ignore[misc]
    else:
        with Path(name).open("rb") as file:
            yield file


def _lines(source: BinaryIO) -> Iterator[bytes | None]:
    """Yield the lines; ``None`` for one that is too long."""
    while line := source.readline(LONGEST):
        if len(line) < LONGEST or line.endswith(b"\n"):
            yield line
            continue
        while (more := source.readline(_PIECE)) and not more.endswith(b"\n"):
            pass
        yield None
