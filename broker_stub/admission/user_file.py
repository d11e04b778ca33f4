"""The users of a member, from a file with a line for each.

    alice:wonder
    bob:{SCRAM-SHA-256}4096,GetyLXdBuHzf1FWf8SLz2Q==,5QDhn9fPa2ZJ0cDQEWtVdV+...=,XKSrMzW...=

Rules
-----
* A line has a name and a password, or a name and the keys of SCRAM: iterations, salt, stored key and server
  key, in base64, as in Dovecot's files.  A name may have one line for each mechanism.  Other schemes in
  braces are refused: their text would be the password.
* A member keeps keys alone, and no passwords.  It makes the keys of a password for every mechanism.
* It offers the mechanisms for which every user has keys.
* A log-in after a change lets a thread read the file, since the keys of a password take 5 ms.  Until then,
  and if that fails, the former users stay.  A changed file that does not end with a newline is still being
  written.
* An unknown name has keys too, which fit no password, so that a stranger does not learn which names exist.
  Its salt stays the same while the member runs.  The salts of passwords and of unknown names come from a
  random secret: a secret that depended on passwords would let a stranger guess them.

Source: RFC 5802, section 5.1 (salt and iterations).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import os
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from haclient.engine.sasl.mechanisms import FEWEST_ITERATIONS, MOST_ITERATIONS
from haclient.engine.sasl.users import DIGESTS, ScramKeys, derive
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.admission.user_file")

DEFAULT_ADMIN = "cluster-admin"
_SCHEME = re.compile(r"\{([A-Za-z0-9.-]+)\}(.*)")
# Seconds between two attempts to read a file that has changed.
_PAUSE = 1.0
_DIGITS = len(str(MOST_ITERATIONS))
_SALT, _LEAST_SALT, _MOST_SALT = 16, 12, 64  # bytes; the library scramp takes no shorter salt

# Keys by mechanism and name.
_Keys = dict[tuple[str, str], ScramKeys]


class UserFileError(ValueError):
    """The file cannot be read, or has a wrong line."""


@dataclass(frozen=True, slots=True)
class _Users:
    """The users of one reading of the file.

    :param mechanisms: those for which every user has keys.
    :param models: by mechanism, the keys that unknown names look like.
    """

    keys: _Keys
    mechanisms: tuple[str, ...]
    models: dict[str, list[ScramKeys]]


class UserFile:
    """The users in a file.

    :raises UserFileError: if the file cannot be read, or has no users, or a line is wrong.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._secret = os.urandom(32)
        self._version = _version(path)
        self._users = _read(path, self._secret)
        self._reader: threading.Thread | None = None
        self._next_check = 0.0
        self._warned = ""

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Return the SCRAM mechanisms for which every user has keys."""
        self._check()
        return self._users.mechanisms

    def keys(self, mechanism: str, name: str) -> ScramKeys:
        """Return the keys of a name; an unknown name has keys that fit no password."""
        users = self._users
        # A client may have begun with a mechanism that the users no longer have.
        models = users.models[mechanism] or users.models[users.mechanisms[0]]
        decoy = self._decoy(models, mechanism, name)  # for every name, to take the same time
        return users.keys.get((mechanism, name), decoy)

    def _decoy(self, models: list[ScramKeys], mechanism: str, name: str) -> ScramKeys:
        number = int.from_bytes(hmac.digest(self._secret, f"{mechanism},{name}".encode(), "sha512"))
        model = models[number % len(models)]
        unknown = bytes(len(model.stored_key))  # no password has this hash
        salt = _salt(self._secret, mechanism, name, len(model.salt))
        return ScramKeys(model.iterations, salt, unknown, unknown)

    def _check(self) -> None:
        """Read the file again in a thread if it has changed, or could not be read; at most once a second."""
        now = time.monotonic()
        if now < self._next_check or (self._reader is not None and self._reader.is_alive()):
            return
        version = _version(self._path)
        if version != self._version:
            self._next_check = now + _PAUSE
            reader = threading.Thread(target=self._read_again, args=(version,), daemon=True)
            with contextlib.suppress(
                RuntimeError
            ):  # no thread can be started now: another log-in tries again
                reader.start()
                self._reader = reader

    def _read_again(self, version: tuple[int, ...] | None) -> None:
        try:
            self._users = _read(self._path, self._secret, changed=True)
        except UserFileError as error:
            if self._warned != str(error):
                self._warned = str(error)
                logger.warning("%s; the users stay as they were", error)
            return
        self._version, self._warned = version, ""


def _version(path: Path) -> tuple[int, ...] | None:
    """Return what a change of the file changes; ``None`` if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read(path: Path, secret: bytes, *, changed: bool = False) -> _Users:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UserFileError(f"{path}: {error}") from None
    if changed and not text.endswith("\n"):
        raise UserFileError(f"{path}: the last line does not end")
    found: _Keys = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                added = _keys(line.strip(), secret)
            except ValueError as error:
                raise UserFileError(f"{path}, line {number}: {error}") from None
            if twice := found.keys() & added.keys():
                raise UserFileError(f"{path}, line {number}: {min(twice)[1]!r} has a password already")
            found |= added
    names = {name for _, name in found}
    if not names:
        raise UserFileError(f"{path}: there are no users")
    common = tuple(each for each in DIGESTS if all((each, name) in found for name in names))
    if not common:
        raise UserFileError(f"{path}: no mechanism has keys of every user; add a line for each user")
    models = {each: [keys for (kind, _), keys in found.items() if kind == each] for each in DIGESTS}
    return _Users(found, common, models)


def _keys(line: str, secret: bytes) -> _Keys:
    """Return the keys of a line.

    :raises ValueError: if the line is wrong; the text has no password.
    """
    name, _, value = line.partition(":")
    if not name or not value:
        raise ValueError("name:password is expected")
    if why := name_error(name):
        raise ValueError(why)
    keyed = _SCHEME.fullmatch(value)
    if keyed is not None:
        return {(keyed[1], name): _parse(keyed[1], keyed[2])}
    return {
        (each, name): derive(each, value, _salt(secret, each, name), FEWEST_ITERATIONS) for each in DIGESTS
    }


def _parse(mechanism: str, text: str) -> ScramKeys:
    if mechanism not in DIGESTS:
        known = ", ".join(DIGESTS)
        raise ValueError(f"{{{mechanism}}} is none of {known}; for a password that begins so use passwd")
    try:
        iterations, *encoded = text.split(",")
        salt, stored_key, server_key = (base64.b64decode(each, validate=True) for each in encoded)
    except (ValueError, binascii.Error):
        raise ValueError(f"{{{mechanism}}}ITERATIONS,SALT,STORED-KEY,SERVER-KEY is expected") from None
    size = hashlib.new(DIGESTS[mechanism]).digest_size
    count = int(iterations) if iterations.isdecimal() and len(iterations) <= _DIGITS else 0
    if not FEWEST_ITERATIONS <= count <= MOST_ITERATIONS:
        raise ValueError(f"the iterations must be {FEWEST_ITERATIONS} to {MOST_ITERATIONS}")
    if not _LEAST_SALT <= len(salt) <= _MOST_SALT or {len(stored_key), len(server_key)} != {size}:
        raise ValueError(f"a salt has {_LEAST_SALT} to {_MOST_SALT} bytes, and a key of {mechanism} {size}")
    return ScramKeys(count, salt, stored_key, server_key)


def _salt(secret: bytes, mechanism: str, name: str, size: int = _SALT) -> bytes:
    return hmac.digest(secret, f"salt,{mechanism},{name}".encode(), "sha512")[:size]


def name_error(name: str) -> str:
    """Return the reason why a user name is not allowed; empty if it is."""
    if name != name.strip() or not name.isprintable():
        return f"the user name {name!r} has white space at an end, or a character that is not printable"
    if not name.isascii() and not _is_prepared(name):
        return f"the user name {name!r} is not as SASLprep has it (RFC 4013)"
    return "" if name else "a user name is empty"


def _is_prepared(name: str) -> bool:
    """Return whether clients that use SASLprep send the name as it is."""
    from scramp import ScramException  # noqa: PLC0415 - takes five megabytes
    from scramp.utils import saslprep  # noqa: PLC0415

    try:
        return bool(saslprep(name) == name)
    except ScramException:
        return False


def line(name: str, password: str, mechanism: str = "SCRAM-SHA-256") -> str:
    """Return a line of the file, with the keys of a password and a new salt.

    :raises ValueError: if the name is not allowed.
    """
    if why := name_error(name) or ("the name has a colon" if ":" in name else ""):
        raise ValueError(why)
    keys = derive(mechanism, password, os.urandom(_SALT), FEWEST_ITERATIONS)
    encoded = (base64.b64encode(each).decode() for each in (keys.salt, keys.stored_key, keys.server_key))
    return f"{name}:{{{mechanism}}}{keys.iterations},{','.join(encoded)}"


def write_users(path: Path, passwords: Mapping[str, str]) -> None:
    """Write users into a file that only its owner can read, with the keys of every mechanism.

    Other users in the file stay.

    :raises ValueError: if a name is not allowed.
    """
    lines = [each.strip() for each in path.read_text().split("\n")] if path.exists() else []
    others = [each for each in lines if each and each.partition(":")[0] not in passwords]
    made = [line(name, password, each) for name, password in passwords.items() for each in DIGESTS]
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)
    new.write_text("\n".join([*others, *made, ""]))
    new.replace(path)  # at once: a member may read it now
