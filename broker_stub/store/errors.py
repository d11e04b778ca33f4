"""The errors of a store."""

from __future__ import annotations

import uuid
from pathlib import Path


class StoreFailedError(Exception):
    """The store has failed, and operations that are not committed yet never will be.

    Its cause, if any, is the error of SQLite or of the operating system.
    """


class StoreLockedError(StoreFailedError):
    """Another process, or another store of this one, has the directory open.

    :param directory: the directory.
    :param holder: the content of the lock file: the holder's process id.
    """

    def __init__(self, directory: Path, holder: str) -> None:
        super().__init__(
            f"the store {directory} is in use by process {holder or 'unknown'}: "
            "stop that member first, or give this one a directory of its own"
        )
        self.directory = directory
        self.holder = holder

    def __reduce__(self) -> tuple[type[StoreLockedError], tuple[Path, str]]:
        return type(self), (self.directory, self.holder)


class StoreCorruptedError(Exception):
    """Data read is not the data written.  ``open_store`` handles this; callers see ``corruption``."""


class UnknownQueueError(KeyError):
    """A message for a queue that is not in the store.

    :param queue: its key, or its identity.
    """

    def __init__(self, queue: int | uuid.UUID) -> None:
        super().__init__(queue)
        self.queue = queue

    def __str__(self) -> str:
        return f"the store has no queue {self.queue}: put_queue comes before its messages"
