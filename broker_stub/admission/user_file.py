"""The users of a member, from a file with a line for each.

    alice:wonder
    bob:{SCRAM-SHA-256}4096,GetyLXdBuHzf1FWf8SLz2Q==,5QDhn9fPa2ZJ0cDQEWtVdV+...=,XKSrMzW...=

Rules
-----
* A line has a name and a password, or a name and the keys of SCRAM: iterations, salt, stored key and server
  key, in base64.  Dovecot writes such lines too.  A name may have one line for each mechanism.
* A member keeps keys alone, and no passwords.  It makes the keys of a password for every mechanism.  All
  members that read the same file make the same salts.
* It offers the mechanisms for which every user has keys.
* It reads the file again at the first log-in after a change.  If that fails, it logs a warning, and the
  former users stay.
* An unknown name has keys too, which fit no password: a stranger does not learn which names exist.  Its salt
  stays the same, and its keys look like the keys of some user.

Source: RFC 5802, section 5.1 (salt and iterations).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from haclient.engine.sasl.mechanisms import FEWEST_ITERATIONS, MOST_ITERATIONS
from haclient.engine.sasl.users import DIGESTS, ScramKeys, derive
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.admission.user_file")

DEFAULT_ADMIN = "cluster-admin"
_MECHANISM = re.compile(r"\{(SCRAM-[A-Z0-9-]+)\}(.*)")
_SALT, _LEAST_SALT, _MOST_SALT = 16, 12, 64  # bytes; the library scramp takes no shorter salt

# Keys by mechanism and name.
_Keys = dict[tuple[str, str], ScramKeys]


class UserFileError(ValueError):
    """The file cannot be read, or has a wrong line."""


class UserFile:
    """The users in a file.

    :raises UserFileError: if the file cannot be read, or has no users, or a line is wrong.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version = _version(path)
        self._keys, self._secret = _read(path)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Return the SCRAM mechanisms for which every user has keys."""
        self._refresh()
        names = {name for _, name in self._keys}
        return tuple(each for each in DIGESTS if all((each, name) in self._keys for name in names))

    def keys(self, mechanism: str, name: str) -> ScramKeys:
        """Return the keys of a name; an unknown name has keys that fit no password."""
        found = self._keys.get((mechanism, name))
        return self._decoy(mechanism, name) if found is None else found

    def _decoy(self, mechanism: str, name: str) -> ScramKeys:
        number = int.from_bytes(hmac.digest(self._secret, f"{mechanism},{name}".encode(), "sha512"))
        models = [keys for (each, _), keys in self._keys.items() if each == mechanism]
        model = models[number % len(models)]
        unknown = secrets.token_bytes(len(model.stored_key))
        salt = _salt(self._secret, mechanism, name, len(model.salt))
        return ScramKeys(model.iterations, salt, unknown, unknown)

    def _refresh(self) -> None:
        version = _version(self._path)
        if version == self._version:
            return
        self._version = version
        try:
            self._keys, self._secret = _read(self._path)
        except UserFileError as error:
            logger.warning("%s; the users stay as they were", error)


def _version(path: Path) -> tuple[int, ...] | None:
    """Return what a change of the file changes; ``None`` if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read(path: Path) -> tuple[_Keys, bytes]:
    """Return the keys, and a secret that depends on all lines."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UserFileError(f"{path}: {error}") from None
    secret = hashlib.sha256(text.encode()).digest()
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
    if not any(all((each, name) in found for name in names) for each in DIGESTS):
        raise UserFileError(f"{path}: no mechanism has keys of every user; add a line for each user")
    return found, secret


def _keys(line: str, secret: bytes) -> _Keys:
    """Return the keys of a line.

    :raises ValueError: if the line is wrong; the text has no password.
    """
    name, _, value = line.partition(":")
    if not name or not value:
        raise ValueError("name:password is expected")
    if why := name_error(name):
        raise ValueError(why)
    keyed = _MECHANISM.fullmatch(value)
    if keyed is not None:
        return {(keyed[1], name): _parse(keyed[1], keyed[2])}
    return {
        (each, name): derive(each, value, _salt(secret, each, name), FEWEST_ITERATIONS) for each in DIGESTS
    }


def _parse(mechanism: str, text: str) -> ScramKeys:
    if mechanism not in DIGESTS:
        raise ValueError(f"{mechanism} is not one of {', '.join(DIGESTS)}")
    try:
        iterations, *encoded = text.split(",")
        salt, stored_key, server_key = (base64.b64decode(each, validate=True) for each in encoded)
    except (ValueError, binascii.Error):
        raise ValueError(f"{{{mechanism}}}ITERATIONS,SALT,STORED-KEY,SERVER-KEY is expected") from None
    size = hashlib.new(DIGESTS[mechanism]).digest_size
    if not iterations.isdecimal() or not FEWEST_ITERATIONS <= int(iterations[:9]) <= MOST_ITERATIONS:
        raise ValueError(f"the iterations must be {FEWEST_ITERATIONS} to {MOST_ITERATIONS}")
    if not _LEAST_SALT <= len(salt) <= _MOST_SALT or {len(stored_key), len(server_key)} != {size}:
        raise ValueError(f"a salt has {_LEAST_SALT} to {_MOST_SALT} bytes, and a key of {mechanism} {size}")
    return ScramKeys(int(iterations), salt, stored_key, server_key)


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
    path.touch(mode=0o600)
    lines = [each.strip() for each in path.read_text().split("\n") if each.strip()]
    others = [each for each in lines if each.partition(":")[0] not in passwords]
    made = [line(name, password, each) for name, password in passwords.items() for each in DIGESTS]
    path.write_text("\n".join([*others, *made, ""]))
