"""The identities that a server knows: the keys of SCRAM, and tokens.

A server keeps the keys of SCRAM instead of a password: they prove it and do not reveal it.

Rule: passwords are used as they are, as a client of this package does it.  SASLprep would refuse some of
them, as those with emoji, and changes few others, as those with ligatures.

Source: RFC 5802, section 3 (keys).
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Protocol

DIGESTS = {"SCRAM-SHA-512": "sha512", "SCRAM-SHA-256": "sha256", "SCRAM-SHA-1": "sha1"}
"""The mechanisms with keys, the strongest first, and their hash functions."""


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """The keys of one user for one mechanism.

    :param iterations: how often the password is hashed.
    """

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes


class Users(Protocol):
    """The users of a server."""

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Return the SCRAM mechanisms for which every user has keys; empty without users."""

    def keys(self, mechanism: str, name: str) -> ScramKeys:
        """Return the keys of a name.  An unknown name has keys that look the same, and fit no password."""


@dataclass(frozen=True, slots=True)
class TokenOwner:
    """The identity in a token.

    :param expires_at: when the token expires, in seconds since 1970; ``None`` if never.
    """

    user: str
    expires_at: float | None


class RefusedToken(Exception):
    """A token is not accepted; the text is for the client, and has no part of the token.

    :ivar is_temporary: whether the same token may be accepted soon.
    """

    def __init__(self, text: str, *, is_temporary: bool = False) -> None:
        super().__init__(text)
        self.is_temporary = is_temporary


class Tokens(Protocol):
    """The tokens that a server accepts."""

    def owner(self, token: str) -> TokenOwner:
        """Return the identity in a token.

        :raises RefusedToken: if the token is not accepted.
        """


def derive(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramKeys:
    """Return the keys of a password."""
    digest = DIGESTS[mechanism]
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    stored = hashlib.new(digest, hmac.digest(salted, b"Client Key", digest)).digest()
    return ScramKeys(iterations, salt, stored, hmac.digest(salted, b"Server Key", digest))
