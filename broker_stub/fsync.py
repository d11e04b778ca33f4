"""Writes files that survive a power loss, including their names."""

from __future__ import annotations

import os
from pathlib import Path

from broker_stub.permissions import FILE_MODE, restrict_file


def write(path: Path, data: bytes) -> None:
    """Write a whole file that only this user may read; its name is durable after ``sync_directory``."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        restrict_file(descriptor)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
