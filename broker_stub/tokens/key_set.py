"""Signed tokens that a member accepts: JWTs signed by a key of a JSON Web Key Set.

Rules
-----
* A token must have an expiry, and the issuer and audience that are configured.  Its owner's name is in the
  claim that is configured.
* Only signatures by a private key count: a public key must not pass for a shared secret.
* A token never gives a reserved name, as the cluster-admin's.
* A log-in a minute after the last reading, or with a token by an unknown key, lets a thread read the set
  again: keys rotate.  Such a token is refused as temporary at first, so that the client tries again, and for
  good after the reading.  If the set cannot be read, the former keys stay.
* Keys of kinds that the library does not know are left out (RFC 7517, section 5).

Sources: RFC 7517 (key sets), RFC 7519 (JWT), RFC 8725 (best current practices).
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request

from haclient.engine.sasl.users import RefusedToken, TokenOwner
from haclient.printable.log import get_logger
from haclient.tokens.fetch import fetch

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

logger = get_logger("broker_stub.tokens.key_set")

_ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
# Seconds between two readings of the set: a revoked key counts no longer than that.
_FRESH = 60.0
# Seconds between two readings for unknown keys, which anyone can name.
_PAUSE = 1.0
# Seconds for the server of the set to answer; a member starts within ten.
_TIMEOUT = 5.0
_MOST_STRANGERS = 1000
# Seconds that two clocks may differ.
_LEEWAY = 5
_END_OF_TIME = 1e12
_MISSING = "this needs joserfc: install haclient with its extra oauth, from the checkout or the wheel"


class KeySetError(ValueError):
    """The key set cannot be read, or is none."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Requirements of a token.

    :param source: file or http(s) URL of the key set.
    :param issuer: the claim ``iss``; ``None`` for any.
    :param audience: one of the claim ``aud``; ``None`` for any.
    :param name_claim: the claim with the owner's name.
    :param reserved: names that no token gives.
    """

    source: str
    issuer: str | None = None
    audience: str | None = None
    name_claim: str = "sub"
    reserved: frozenset[str] = frozenset()


class SignedTokens:
    """The tokens that a key set has signed (``haclient.engine.sasl.users.Tokens``).

    :param now: returns the time, in seconds since 1970.
    :raises KeySetError: if the set cannot be read.
    """

    def __init__(self, rules: TokenRules, now: Callable[[], float] = time.time) -> None:
        self._rules = rules
        self._now = now
        self._keys = _read(rules.source)
        self._read_at = time.monotonic()
        self._reader: threading.Thread | None = None
        self._strangers: dict[int, float] = {}
        """When tokens by unknown keys were first refused, by their hashes."""

    def owner(self, token: str) -> TokenOwner:
        """Return the identity in a token.

        :raises RefusedToken: if the token is not accepted.
        """
        from joserfc import errors, jwt  # noqa: PLC0415 - an extra

        if time.monotonic() - self._read_at >= _FRESH:
            self._read_again()
        read_at = self._read_at
        try:
            claims = jwt.decode(token, self._keys, algorithms=list(_ALGORITHMS)).claims
            self._registry(jwt).validate(claims)
        except errors.ExpiredTokenError:
            raise RefusedToken("the token has expired") from None
        except errors.InvalidKeyIdError:
            is_new = self._is_new(token, read_at)
            raise RefusedToken("the token is signed by an unknown key", is_temporary=is_new) from None
        except errors.JoseError as error:
            raise RefusedToken(_reason(error)) from None
        except (ValueError, TypeError, RecursionError):
            raise RefusedToken("it is not a signed JWT") from None
        return self._owner(claims)

    def _is_new(self, token: str, read_at: float) -> bool:
        """Return whether a token by an unknown key was first refused after this reading of the set."""
        now = time.monotonic()
        refused_at = self._strangers.setdefault(hash(token), now)
        if len(self._strangers) > _MOST_STRANGERS:
            del self._strangers[next(iter(self._strangers))]
        if now - self._read_at >= _PAUSE:
            self._read_again()
        return read_at <= refused_at

    def _registry(self, jwt: Any) -> Any:
        required: dict[str, Any] = {"exp": {"essential": True}}
        for claim, value in (("iss", self._rules.issuer), ("aud", self._rules.audience)):
            if value is not None:
                required[claim] = {"essential": True, "value": value}
        return jwt.JWTClaimsRegistry(now=lambda: int(self._now()), leeway=_LEEWAY, **required)

    def _owner(self, claims: dict[str, Any]) -> TokenOwner:
        claim = self._rules.name_claim
        name = claims.get(claim)
        if not isinstance(name, str) or not name.strip() or not name.isprintable() or name != name.strip():
            raise RefusedToken(f"the claim {claim} has no name")
        if name in self._rules.reserved:
            raise RefusedToken(f"the claim {claim} has a name that tokens do not give")
        expires = claims["exp"]
        if not abs(expires) < _END_OF_TIME:  # NaN too
            raise RefusedToken("the claim exp is no time")
        return TokenOwner(name, expires + _LEEWAY)

    def _read_again(self) -> None:
        """Let a thread read the set, unless one does."""
        if self._reader is None or not self._reader.is_alive():
            reader = threading.Thread(target=self._read, daemon=True)
            with contextlib.suppress(RuntimeError):  # no thread can start: another log-in tries again
                reader.start()
                self._reader = reader

    def _read(self) -> None:
        try:
            self._keys = _read(self._rules.source)
        except KeySetError as error:
            logger.warning("%s; the keys stay as they were", error)
        self._read_at = time.monotonic()


def _reason(error: Any) -> str:
    claim = getattr(error, "claim", None)
    if claim in ("iss", "aud"):
        return f"the token has another {'issuer' if claim == 'iss' else 'audience'} (claim {claim})"
    return f"the token is not valid: claim {claim}" if claim else "the token is not signed by a known key"


def _read(source: str) -> KeySet:
    try:
        from joserfc.jwk import KeySet  # noqa: PLC0415 - an extra
    except ImportError:
        raise KeySetError(_MISSING) from None
    try:
        listed = json.loads(_bytes(source))["keys"]
        found = [key for each in listed for key in _key(each)]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise KeySetError(f"{source}: no JSON Web Key Set: {error}") from None
    if not found:
        raise KeySetError(f"{source}: the key set has no keys that are known here")
    return KeySet(found)


def _key(each: dict[str, Any]) -> list[Any]:
    from joserfc.errors import JoseError  # noqa: PLC0415 - an extra
    from joserfc.jwk import JWKRegistry  # noqa: PLC0415

    try:
        return [JWKRegistry.import_key(each)]
    except (JoseError, ValueError, TypeError, KeyError, AttributeError):
        logger.warning("a key of the key set is of an unknown kind, and left out")
        return []


def _bytes(source: str) -> bytes:
    if source.startswith(("http://", "https://")):
        return fetch(Request(source), _TIMEOUT)  # noqa: S310 - checked
    return Path(source).read_bytes()
