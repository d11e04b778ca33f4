"""Reads the claims of a token that is a JWT, to know when it expires and to explain a refusal.

The signature is not checked: the broker does that.  Tokens of other kinds have no claims.

Sources: RFC 7515, section 7.1 (the parts), RFC 7519, section 4.1 (claims).
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from haclient.error_catalog.base import quoted

SHARED_ACCESS = "SharedAccessSignature "
"""The beginning of Azure's tokens.  Their space keeps them out of OAUTHBEARER and XOAUTH2 (RFC 6750)."""
_PARTS = 3
# Larger tokens are not sent: a SASL frame has 64 KB.
MOST_BYTES = 60000


def read(token: str) -> Mapping[str, Any]:
    """Return the claims of a token; empty if it is not a JWT."""
    parts = token.split(".")
    if len(parts) != _PARTS:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def expires_at(token: str) -> float | None:
    """Return the time at which a token expires, in seconds since 1970; ``None`` if it does not say."""
    return _time(read(token).get("exp"))


def _time(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def describe(token: str, now: float) -> str:
    """Return the claims that a broker may refuse a token for, without the token; empty if it has none.

    :param now: seconds since 1970, by this machine's clock.
    """
    found = read(token)
    texts = [
        f"{name} {_text(found[claim])}"
        for claim, name in (("iss", "issuer"), ("aud", "audience"), ("scope", "scope"))
        if claim in found
    ]
    expires, begins = _time(found.get("exp")), _time(found.get("nbf"))
    if expires is not None:
        texts.append(f"{'expired' if expires <= now else 'expires'} {_apart(expires, now)}")
    if begins is not None and begins > now:
        texts.append(f"not valid before {_apart(begins, now)}")
    return f"the token has: {', '.join(texts)}" if texts else ""


def _text(value: object) -> str:
    return quoted(" ".join(map(str, value)) if isinstance(value, list) else str(value))


def _apart(moment: float, now: float) -> str:
    try:
        at = datetime.fromtimestamp(moment, UTC)
    except (ValueError, OverflowError, OSError):
        return "at no time of this calendar"
    seconds = moment - now
    return f"{at:%Y-%m-%d %H:%M:%S} UTC, {abs(seconds):.0f} s {'ago' if seconds <= 0 else 'from now'}"
