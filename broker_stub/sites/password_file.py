"""The password of a link: the first line of a file that exists on every member of the DR site.

Rules
-----
* The path is stored and replicated; the content is not, and no error contains any of it.
* The file is read before every attempt: to change the password, change the file.
* The administrator of the cluster chooses the path, and the URL that the password is sent to.  So a link
  reads only files in one directory, named by the operator who starts the member; without a directory it reads
  none.
* The file must be regular, not a symbolic link, belong to the server's own user, and be unreadable for all
  others.  Any other file may be meant for another purpose, or may not be secret.
* The directory is opened first, then the file in it, and the opened files are checked.  So exchanging a path
  in between has no effect.

Source: the words and the first line are those in ``haclient.configuration``; open(2), ``O_NOFOLLOW``.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

# The most bytes of a password file; a longer file is not one.
_MAX_BYTES = 4096

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a pipe must not block.
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC


class PasswordFileError(OSError):
    """A password file cannot be used; gives the file and the reason, but no content.

    It is an ``OSError``, because the client retries a credentials function that raises one.
    """


@dataclass(frozen=True, slots=True)
class PasswordFiles:
    """The files that links may read.

    :param directory: the absolute path of their directory; ``None`` for no files at all.
    """

    directory: Path | None = None

    def check_directory(self) -> None:
        """Check that the directory can be used.

        :raises PasswordFileError: when it cannot.
        """
        os.close(self._open_directory())

    def read(self, path: str) -> str:
        """Return the password in a file.

        :raises PasswordFileError: when the directory cannot be used, or the file is outside of it, missing,
            unreadable, empty, not text, not regular, owned by another user, or accessible to others.
        """
        name = self._name(path)
        directory = self._open_directory()
        try:
            descriptor = _open(path, name, directory)
        finally:
            os.close(directory)
        try:
            _check(path, os.fstat(descriptor))
            return _first_line(path, os.read(descriptor, _MAX_BYTES + 1))
        except PasswordFileError:
            raise
        except OSError as error:
            raise PasswordFileError(f"password file {path} cannot be read: {error.strerror}") from None
        finally:
            os.close(descriptor)

    def _name(self, path: str) -> str:
        """Return the name of a file in the directory."""
        if self.directory is None:
            reason = "cannot be used: this member was started without --link-passwords DIR"
            raise PasswordFileError(f"password file {path} {reason}")
        pure = PurePosixPath(path)
        if pure.parent != PurePosixPath(self.directory) or pure.name in ("", ".", ".."):
            raise PasswordFileError(
                f"password file {path} is not in {self.directory}: a link reads the files there and no others"
                " (--link-passwords)"
            )
        return pure.name

    def _open_directory(self) -> int:
        directory = self.directory
        assert directory is not None, "without a directory there is no name"
        try:
            descriptor = os.open(directory, _DIRECTORY)
        except OSError as error:
            reason = "it is a symbolic link, or no directory" if _is_link(error) else error.strerror
            raise PasswordFileError(
                f"the directory of password files {directory} cannot be used: {reason}"
            ) from None
        found = os.fstat(descriptor)
        reason = ""
        if found.st_uid not in (os.geteuid(), 0):
            reason = f"it belongs to user {found.st_uid}: chown {os.geteuid()} {directory}"
        elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            reason = f"others may write to it (mode {stat.S_IMODE(found.st_mode):04o}): chmod 700 {directory}"
        if reason:
            os.close(descriptor)
            raise PasswordFileError(f"the directory of password files {directory} cannot be used: {reason}")
        return descriptor


def _open(path: str, name: str, directory: int) -> int:
    try:
        return os.open(name, _FILE, dir_fd=directory)
    except OSError as error:
        if _is_link(error):
            raise PasswordFileError(
                f"password file {path} is a symbolic link: put the file itself there"
            ) from None
        raise PasswordFileError(f"password file {path} cannot be read: {error.strerror}") from None


def _is_link(error: OSError) -> bool:
    return error.errno in (errno.ELOOP, errno.ENOTDIR)


def _check(path: str, found: os.stat_result) -> None:
    mode = found.st_mode
    if not stat.S_ISREG(mode):
        raise PasswordFileError(f"password file {path} is no regular file")
    if found.st_uid != os.geteuid():
        reason = f"belongs to user {found.st_uid} and not to this server's: chown {os.geteuid()} {path}"
        raise PasswordFileError(f"password file {path} {reason}")
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        reason = f"is open to others (mode {stat.S_IMODE(mode):04o})"
        raise PasswordFileError(f"password file {path} {reason}: chmod 600 {path}")


def _first_line(path: str, data: bytes) -> str:
    try:
        password = data.split(b"\n", 1)[0].removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        raise PasswordFileError(f"password file {path} is not UTF-8 text") from None
    if not password:
        raise PasswordFileError(f"the first line of password file {path} is empty")
    if len(data) > _MAX_BYTES:
        raise PasswordFileError(f"password file {path} has more than {_MAX_BYTES} bytes")
    return password
