"""The password of a link: the first line of a file that every member of the DR site has.

Rules
-----
* The path is stored and replicated.  What is in the file is not, and no error holds any of it.
* It is read before every attempt: the password is changed by changing the file.
* A file that others than its owner and its group may read or write holds no secret, and is not used.

Source: the words and the first line are those of ``haclient.configuration``.
"""

from __future__ import annotations

import os
import stat

# A password has one line of this length at most; a file that is longer is something else.
_LONGEST = 4096


class PasswordFileError(OSError):
    """A password file cannot be used; says which and why, and nothing of what is in it.

    An ``OSError``, for the client asks a credentials function again that has raised one.
    """


def read(path: str) -> str:
    """The password.

    :raises PasswordFileError: when the file is missing, cannot be read, is empty, is no text, or is
        open to others.
    """
    try:
        # A pipe must not block its opener.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise PasswordFileError(f"password file {path} cannot be read: {error.strerror}") from None
    try:
        _check(path, os.fstat(descriptor).st_mode)
        return _first_line(path, os.read(descriptor, _LONGEST + 1))
    except PasswordFileError:
        raise
    except OSError as error:
        raise PasswordFileError(f"password file {path} cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _check(path: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise PasswordFileError(f"password file {path} is no regular file")
    if mode & stat.S_IRWXO:
        reason = f"is open to others (mode {stat.S_IMODE(mode):04o})"
        raise PasswordFileError(f"password file {path} {reason}: chmod 600 {path}")


def _first_line(path: str, data: bytes) -> str:
    try:
        password = data.split(b"\n", 1)[0].removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        raise PasswordFileError(f"password file {path} is not UTF-8 text") from None
    if not password:
        raise PasswordFileError(f"the first line of password file {path} is empty")
    if len(data) > _LONGEST:
        raise PasswordFileError(f"password file {path} has more than {_LONGEST} bytes")
    return password
