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
import re
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote_plus, unquote_to_bytes

from haclient.engine.sasl.claims import SHARED_ACCESS
from haclient.engine.sasl.users import RefusedToken, TokenOwner

_FIELDS = frozenset({"sr", "sig", "se", "skn"})
_TIME = re.compile("[0-9]{1,12}")


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
        parts = token.removeprefix(SHARED_ACCESS).split("&", len(_FIELDS))
        fields = dict(part.partition("=")[::2] for part in parts)
        if not token.startswith(SHARED_ACCESS) or not token.isascii() or fields.keys() != _FIELDS:
            raise RefusedToken("it is not a shared access signature")
        if not _TIME.fullmatch(expiry := fields["se"]):
            raise RefusedToken("the signature's se is no time")
        name = unquote_plus(fields["skn"])
        key = self._keys.get(name, "")
        signed = f"{fields['sr']}\n{expiry}".encode()
        expected = base64.b64encode(hmac.digest(key.encode(), signed, "sha256"))
        if not hmac.compare_digest(expected, unquote_to_bytes(fields["sig"])) or not key:
            raise RefusedToken("the signature is not by a known key")
        if int(expiry) <= self._now():
            raise RefusedToken("the token has expired")
        return TokenOwner(name, float(expiry))


def _read(path: Path) -> dict[str, str]:
    try:
        lines = [line.strip() for line in path.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise KeyFileError(f"{path}: {error}") from None
    found = dict(line.partition(":")[::2] for line in lines)
    if not found or not all(found) or not all(found.values()):
        raise KeyFileError(f"{path}: a line for each key is expected, name:key")
    return found
