"""Removes old files of one service, if its settings limit them.

Rules
-----
* A file is as old as its last line.  The oldest are removed first.
* Files of other processes of the service count, and are removed, too: a killed process removes nothing.
* The current file of a process is never removed.  The caller names its own.  Another process's may be any
  uncompressed file that was written recently.
* If a file cannot be removed, the next try is at the next new file.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from haclient.telemetry.settings import TelemetrySettings, file_stem

# Follows the service in the name of a file: instance, process, number.
_NAME_END = r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-[0-9]+-[0-9]+\.jsonl(\.gz)?"


@dataclass(frozen=True, slots=True)
class _Found:
    changed_at: float
    size: int
    path: Path


def remove_old(settings: TelemetrySettings, service: str, spared: Container[Path]) -> None:
    """Remove files older than ``keep_seconds``, and the oldest while all exceed ``keep_size`` bytes."""
    if settings.keep_size is None and settings.keep_seconds is None:
        return
    now, total = time.time(), 0
    for found in sorted(_files(settings, service), key=lambda each: each.changed_at, reverse=True):
        total += found.size
        age = now - found.changed_at
        too_old = settings.keep_seconds is not None and age > settings.keep_seconds
        too_much = settings.keep_size is not None and total > settings.keep_size
        may_be_written = found.path.suffix != ".gz" and age < settings.rotate_seconds
        if (too_old or too_much) and not may_be_written and found.path not in spared:
            with contextlib.suppress(OSError):
                found.path.unlink()
                total -= found.size


def _files(settings: TelemetrySettings, service: str) -> list[_Found]:
    name = re.compile(rf"\.?{re.escape(file_stem(service))}{_NAME_END}(\.tmp)?")
    found = []
    with contextlib.suppress(OSError):
        for path in Path(settings.directory).iterdir():
            if name.fullmatch(path.name):
                with contextlib.suppress(OSError):
                    facts = path.stat()
                    found.append(_Found(facts.st_mtime, facts.st_size, path))
    return found
