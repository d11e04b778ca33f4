"""Shared access signatures, as clients of Azure Service Bus and Event Hubs make them from a key.

    SharedAccessSignature sr=RESOURCE&sig=SIGNATURE&se=EXPIRY&skn=KEY-NAME

Rules
-----
* The file has a line for each key, ``name:key``, in clear text: a signature can only be checked with the key.
* The owner's name is the name of the key.  The resource is not compared: it has the host name by which the
  client knows this member.

Source: Microsoft, "Service Bus access control with Shared Access Signatures".
"""

from __future__ import annotations

import base64
import hmac
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, unquote_plus

from haclient.engine.sasl.users import RefusedToken, TokenOwner

PREFIX = "SharedAccessSignature "
_FIELDS = frozenset({"sr", "sig", "se", "skn"})
_END_OF_TIME = 1e12


class KeyFileError(ValueError):
    """The file cannot be read, or has a wrong line."""


class SharedAccess:
    """The signatures by the keys in a file (``haclient.engine.sasl.users.Tokens``).

    :param reserved: names that no key may have.
    :param now: returns the time, in seconds since 1970.
    :raises KeyFileError: if the file cannot be read, or has no keys, or a line is wrong.
    """

    def __init__(
        self, path: Path, reserved: frozenset[str] = frozenset(), now: Callable[[], float] = time.time
    ) -> None:
        self._keys = _read(path)
        if wrong := reserved & self._keys.keys():
            raise KeyFileError(f"{path}: {min(wrong)!r} is a name that tokens do not give")
        self._now = now

    def owner(self, token: str) -> TokenOwner:
        """Return the identity in a signature.

        :raises RefusedToken: if it is not accepted.
        """
        raw = dict(part.partition("=")[::2] for part in token.removeprefix(PREFIX).split("&"))
        fields = dict(parse_qsl(token.removeprefix(PREFIX), keep_blank_values=True))
        if not token.startswith(PREFIX) or fields.keys() != _FIELDS:
            raise RefusedToken("it is not a shared access signature")
        expiry = fields["se"]
        if not expiry.isascii() or not expiry.isdigit() or not int(expiry[:20]) < _END_OF_TIME:
            raise RefusedToken("the signature's se is no time")
        key = self._keys.get(fields["skn"], "")
        signed = f"{raw['sr']}\n{expiry}".encode()
        expected = base64.b64encode(hmac.digest(key.encode(), signed, "sha256"))
        given = unquote_plus(raw["sig"].replace("+", "%2B")).encode()
        if not hmac.compare_digest(expected, given) or not key:
            raise RefusedToken("the signature is not by a known key")
        if int(expiry) <= self._now():
            raise RefusedToken("the token has expired")
        return TokenOwner(fields["skn"], float(expiry))


def _read(path: Path) -> dict[str, str]:
    try:
        lines = [line.strip() for line in path.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise KeyFileError(f"{path}: {error}") from None
    found = dict(line.partition(":")[::2] for line in lines)
    if not found or not all(found) or not all(found.values()):
        raise KeyFileError(f"{path}: a line for each key is expected, name:key")
    return found
