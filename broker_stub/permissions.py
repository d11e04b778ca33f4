"""Permissions of a member's files: directories 0700, files 0600, whatever the umask.

Rules
-----
* New directories and files are private from the start; their mode is never wider for a moment.
* An existing directory that is open to others is made private if it belongs to this process's user and holds
  only a member's files. It was made for the member.
* Any other directory belongs to another user, and is not changed. If others may write to it, it is refused,
  because they could exchange its files. If others may only list it, a warning is logged, because the files
  are private.

A file system without modes (a mount with fixed ones) counts as one whose modes cannot be changed: the same
refusal or warning applies.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from haclient.printable.log import get_logger

logger = get_logger("broker_stub.permissions")

DIRECTORY_MODE, FILE_MODE = 0o700, 0o600
UMASK = 0o077
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UnsafeDirectoryError(PermissionError):
    """Other users may write to a directory that only this member should use."""


def make_directory(directory: Path, is_own: Callable[[str], bool]) -> None:
    """Make a private directory, or check that an existing one is private.

    :param is_own: returns whether a member makes files of this name.
    :raises UnsafeDirectoryError: if it belongs to another user, and others may write to it.
    :raises OSError: if it cannot be made or read.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    restrict_directory(directory, is_own)


def restrict_directory(directory: Path, is_own: Callable[[str], bool]) -> None:
    """Make an existing directory private; see ``make_directory``."""
    found = directory.stat()
    if found.st_mode & _OTHERS and found.st_uid == os.geteuid() and _holds_only(directory, is_own):
        with contextlib.suppress(OSError):
            directory.chmod(DIRECTORY_MODE)
            logger.warning("%s was open to other users (mode %s), and is not now", directory, _mode(found))
        found = directory.stat()
    if found.st_mode & _OTHERS_WRITE:
        raise UnsafeDirectoryError(
            f"other users may write to the directory {directory} (user {found.st_uid}, mode {_mode(found)})"
            f" and could exchange what is in it: give the member one of its own, of user {os.geteuid()},"
            " with mode 700"
        )
    if found.st_mode & _OTHERS:
        logger.warning(
            "other users may list the directory %s (mode %s); they cannot read what this member makes in it",
            directory,
            _mode(found),
        )


def restrict_file(descriptor: int) -> None:
    """Make an open file private, if this process may change it."""
    if os.fstat(descriptor).st_mode & _OTHERS:
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, FILE_MODE)


def restrict_path(path: Path) -> None:
    """Make a file or directory of this process's user private; a missing one is no error."""
    with contextlib.suppress(OSError):
        found = path.lstat()
        if found.st_uid == os.geteuid() and found.st_mode & _OTHERS and not stat.S_ISLNK(found.st_mode):
            path.chmod(DIRECTORY_MODE if stat.S_ISDIR(found.st_mode) else FILE_MODE)


def _holds_only(directory: Path, is_own: Callable[[str], bool]) -> bool:
    # Names made by file systems: ext4, and NFS for files that are deleted while open.
    names = (path.name for path in directory.iterdir())
    return all(name == "lost+found" or name.startswith(".nfs") or is_own(name) for name in names)


def _mode(found: os.stat_result) -> str:
    return f"{stat.S_IMODE(found.st_mode):04o}"
