"""Claims of tokens, read as joserfc reads them; what is no JWT has none, and nothing shows the token."""

from __future__ import annotations

import base64
import json
import math
import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import OctKey

from haclient.engine.sasl import claims

KEY = OctKey.generate_key(256)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
CLAIMS = st.dictionaries(
    st.sampled_from(["iss", "aud", "exp", "nbf", "scope", "sub"]) | st.text(max_size=5), VALUES, max_size=6
)


def signed(found: dict[str, Any]) -> str:
    return jwt.encode({"alg": "HS256"}, found, KEY)


@given(st.floats(-1e12, 1e12, allow_nan=False) | st.integers(-(10**12), 10**12))
def test_the_expiry_is_that_of_the_token(moment: float) -> None:
    token = signed({"sub": "alice", "exp": moment})
    assert claims.expires_at(token) == jwt.decode(token, KEY).claims["exp"]


@given(CLAIMS)
def test_any_claims_are_described(found: dict[str, Any]) -> None:
    payload = base64.urlsafe_b64encode(json.dumps(found).encode()).decode().rstrip("=")
    token = f"aaaa.{payload}.bbbb"
    text = claims.describe(token, time.time())
    assert len(text) < 1500
    assert token not in text
    expiry = claims.expires_at(token)
    assert expiry is None or math.isfinite(expiry)


@given(
    st.text(max_size=300) | st.binary(max_size=300).map(lambda data: f"a.{base64.b64encode(data).decode()}.c")
)
def test_what_is_no_jwt_has_no_claims(token: str) -> None:
    found = claims.read(token)
    assert isinstance(found, dict)
    claims.describe(token, 0.0)


def test_a_refusal_says_what_may_be_wrong() -> None:
    now = 1_800_000_000.0
    token = signed({"iss": "https://id.example", "aud": ["a", "b"], "exp": now - 40, "nbf": now + 3})
    text = claims.describe(token, now)
    assert "issuer 'https://id.example'" in text
    assert "audience 'a b'" in text
    assert "expired 2027-01-15 07:59:20 UTC, 40 s ago" in text
    assert "not valid before 2027-01-15 08:00:03 UTC, 3 s from now" in text
