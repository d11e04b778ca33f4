"""A bearer token in place of a password."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime

from haclient.engine.sasl import claims
from haclient.error_catalog.arguments import check_text


@dataclass(frozen=True, slots=True)
class Token:
    """A token with which a client logs in.

    Return one from ``credentials=``: then the client asks for the next one before this one expires, and
    renews its connection without losing or repeating a message.

    :param value: the token, as the identity provider issued it.
    :param expires_at: a ``datetime`` with a time zone, or seconds since 1970.  By default a JWT says it
        itself (claim ``exp``); other tokens are not renewed before the broker ends their connection.
    :param user: the name beside the token, if the broker asks for one.  Brokers read the name of the user
        from the token.
    :raises TypeError: for an argument of an invalid type.
    :raises ValueError: if the value is empty, too long, or not printable ASCII; shows no part of it.
    """

    value: str = field(repr=False)
    expires_at: float | datetime | None = field(default=None, compare=False)
    user: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.value, str):
            raise TypeError(f"Token: the value must be text, not {type(self.value).__name__}")
        if not 0 < len(self.value) <= claims.MOST_BYTES:
            raise ValueError(f"Token: the value has 1 to {claims.MOST_BYTES} characters")
        if not (self.value.isascii() and self.value.isprintable()):
            raise ValueError("Token: the value has characters that no token has (RFC 6750, section 2.1)")
        check_text("Token: the user", self.user, optional=True)
        if self.user is not None and not self.user.isprintable():
            raise ValueError("Token: the user has a character that is not printable")
        if isinstance(self.expires_at, bool) or not isinstance(
            self.expires_at, float | int | datetime | None
        ):
            kind = type(self.expires_at).__name__
            raise TypeError(f"Token: expires_at is a datetime or a number, not {kind}")
        try:
            finite = math.isfinite(self.expiry or 0.0)
        except (OverflowError, ValueError):
            finite = False
        if not finite:
            raise ValueError("Token: expires_at needs a time zone, or is no time")

    @property
    def expiry(self) -> float | None:
        """Return the time of expiry in seconds since 1970; ``None`` if it is not known."""
        given = self.expires_at
        if given is None:
            return claims.expires_at(self.value)
        if not isinstance(given, datetime):
            return float(given)
        return given.timestamp() if given.utcoffset() is not None else math.nan
