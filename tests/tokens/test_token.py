"""Tokens: what is none is a clear error that shows no part of it."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import haclient
from haclient import Token
from tests.engine.sasl.test_claims import signed


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"value": b"abc"}, TypeError, "the value must be text, not bytes"),
        ({"value": ""}, ValueError, "1 to 60000 characters"),
        ({"value": "a" * 60001}, ValueError, "1 to 60000 characters"),
        ({"value": "the-secret\n"}, ValueError, "characters that no token has"),
        ({"value": "the-secret\x01auth=Bearer x"}, ValueError, "characters that no token has"),
        ({"value": "the-s\u00e9cret"}, ValueError, "characters that no token has"),
        ({"value": "x", "user": "a\x01b"}, ValueError, "not printable"),
        ({"value": "x", "user": 7}, TypeError, "text or None"),
        ({"value": "x", "expires_at": "soon"}, TypeError, "a datetime or a number, not str"),
        ({"value": "x", "expires_at": True}, TypeError, "not bool"),
        ({"value": "x", "expires_at": float("nan")}, ValueError, "no time"),
        ({"value": "x", "expires_at": datetime(2026, 1, 1)}, ValueError, "needs a time zone"),  # noqa: DTZ001
    ],
)
def test_what_is_no_token_is_a_clear_error(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text) as caught:
        Token(**arguments)
    assert "secret" not in str(caught.value)


def test_a_token_shows_no_part_of_its_value() -> None:
    token = Token("the-secret", 1_800_000_000)
    assert "secret" not in repr(token)
    assert pickle.loads(pickle.dumps(token)) == token  # noqa: S301 - our own bytes


@given(st.floats(0, 4e9), st.floats(0, 4e9))
def test_the_expiry_is_the_argument_or_the_claim(argument: float, claim: float) -> None:
    token = signed({"exp": claim})
    assert Token(token).expiry == claim
    assert Token(token, argument).expiry == argument
    moment = datetime.fromtimestamp(argument, UTC)
    assert Token(token, moment).expiry == moment.timestamp()
    assert Token("opaque").expiry is None


def test_a_token_goes_with_neither_a_user_nor_a_password() -> None:
    with pytest.raises(haclient.errors.ClusterURLError, match="credentials sets the same"):
        haclient.connect("amqp://127.0.0.1", user="alice", credentials=Token("x"))
