"""Who may read and write what a member writes: directories 0700, files 0600, whatever the umask says.

Rules
-----
* What is made here is made private; its mode is never wider for a moment.
* A directory that is there already and is open to others is made private when it belongs to this process's
  user and has nothing in it but what a member puts there: somebody has made it for the member.
* Any other one is somebody else's, and is left as it is.  If others may write to it, it is refused: they
  could exchange what is in it.  If they may only list it, that is a warning: the files in it are private.

A file system without modes (a mount with fixed ones) is one whose modes cannot be changed: refused or warned
about in the same way.
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
    """Other users may write to a directory that only this member should."""


def make_directory(directory: Path, is_own: Callable[[str], bool]) -> None:
    """Make a private directory, or make sure that the one that is there is private.

    :param is_own: whether a member makes files of this name in it.
    :raises UnsafeDirectoryError: when it is another's, and others may write to it.
    :raises OSError: when it cannot be made or looked at.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    restrict_directory(directory, is_own)


def restrict_directory(directory: Path, is_own: Callable[[str], bool]) -> None:
    """Make sure that a directory that is there is private; see ``make_directory``."""
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
    """Make an open file private, where it is this process's to change."""
    if os.fstat(descriptor).st_mode & _OTHERS:
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, FILE_MODE)


def restrict_path(path: Path) -> None:
    """Make a file or directory private that this process's user owns; one that is missing is no error."""
    with contextlib.suppress(OSError):
        found = path.lstat()
        if found.st_uid == os.geteuid() and found.st_mode & _OTHERS and not stat.S_ISLNK(found.st_mode):
            path.chmod(DIRECTORY_MODE if stat.S_ISDIR(found.st_mode) else FILE_MODE)


def _holds_only(directory: Path, is_own: Callable[[str], bool]) -> bool:
    # What file systems put there: ext4, and NFS for files that are deleted while they are open.
    names = (path.name for path in directory.iterdir())
    return all(name == "lost+found" or name.startswith(".nfs") or is_own(name) for name in names)


def _mode(found: os.stat_result) -> str:
    return f"{stat.S_IMODE(found.st_mode):04o}"
