"""Tokens over SASL: the vectors of the specifications, and no message lets another name in."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haclient.engine.sasl import mechanisms
from haclient.engine.sasl.server_mechanisms import OTHER_AUTHORITY, Bearer, Login, Plain, RefusedLogin
from haclient.engine.sasl.users import RefusedToken, TokenOwner
from haclient.engine.settings import Settings

# RFC 7628, section 4.1, and Google's "OAuth 2.0 Mechanism", section "Initial Client Response".
RFC_TOKEN = "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="
RFC_MESSAGE = (
    b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01auth=Bearer "
    + RFC_TOKEN.encode()
    + b"\x01\x01"
)
GOOGLE_TOKEN = "ya29.vF9dft4qmTc2Nvb3RlckBhdHRhdmlzdGEuY29tCg"
GOOGLE_MESSAGE = b"user=someuser@example.com\x01auth=Bearer " + GOOGLE_TOKEN.encode() + b"\x01\x01"
# RFC 6750, section 2.1: b64token.
TOKENS = st.from_regex(r"[A-Za-z0-9._~+/-]{1,200}=*", fullmatch=True)
NAMES = st.text(st.characters(exclude_categories=("C", "Zl", "Zp")), max_size=40)


class Issued:
    """Tokens that a server accepts, with their owners."""

    def __init__(self, owners: dict[str, str], expires_at: float | None = None) -> None:
        self._owners, self._expires_at = owners, expires_at

    def owner(self, token: str) -> TokenOwner:
        if token not in self._owners:
            raise RefusedToken("it is unknown here")
        return TokenOwner(self._owners[token], self._expires_at)


def client(name: str, token: str, user: str | None = None) -> mechanisms.Mechanism:
    return mechanisms.chosen(name, Settings(container_id="c", user=user, password=token, bearer=True))


def test_the_example_of_oauthbearer_is_written_and_read() -> None:
    own = client("OAUTHBEARER", RFC_TOKEN, "user@example.com").first()
    assert own == RFC_MESSAGE.replace(b"host=server.example.com\x01port=143\x01", b"")
    server = Bearer("OAUTHBEARER", Issued({RFC_TOKEN: "user@example.com"}, 17.0))
    assert server.answer(RFC_MESSAGE) == Login("OAUTHBEARER", "user@example.com", 17.0)


def test_the_example_of_xoauth2_is_written_and_read() -> None:
    assert client("XOAUTH2", GOOGLE_TOKEN, "someuser@example.com").first() == GOOGLE_MESSAGE
    server = Bearer("XOAUTH2", Issued({GOOGLE_TOKEN: "someuser@example.com"}))
    assert server.answer(GOOGLE_MESSAGE) == Login("XOAUTH2", "someuser@example.com")


@given(TOKENS, NAMES, NAMES)
def test_a_server_reads_what_a_client_writes(token: str, owner: str, user: str) -> None:
    issued = Issued({token: owner})
    for name in mechanisms.BEARER:
        assert Bearer(name, issued).answer(client(name, token).first()) == Login(name, owner)
    assert Bearer("XOAUTH2", issued).answer(client("XOAUTH2", token, user).first()) == Login("XOAUTH2", owner)
    assert Plain(None, issued).answer(client("PLAIN", token, user).first()) == Login("PLAIN", owner)
    message = client("OAUTHBEARER", token, user).first()
    if user in ("", owner):
        assert Bearer("OAUTHBEARER", issued).answer(message) == Login("OAUTHBEARER", owner)
    else:
        assert OTHER_AUTHORITY.encode() in refusal("OAUTHBEARER", issued, message)


def refusal(name: str, issued: Issued, message: bytes) -> bytes:
    """Return the reason that a server gives, after which it refuses whatever the client answers."""
    server = Bearer(name, issued)
    reason = server.answer(message)
    assert isinstance(reason, bytes)
    with pytest.raises(RefusedLogin):
        server.answer(random.randbytes(3))
    return reason


@given(st.sampled_from(mechanisms.BEARER), TOKENS, st.data())
def test_a_changed_message_lets_no_other_token_in(name: str, token: str, data: st.DataObject) -> None:
    """The judge splits at the separators; the server has a pattern."""
    message = bytearray(client(name, token, "alice").first())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(message) - 1))
        change = data.draw(st.binary(max_size=2))
        message[at : at + data.draw(st.integers(0, 2))] = change
        if not message:
            return
    given = [part.lower().removeprefix(b"auth=bearer ").strip(b" ") for part in bytes(message).split(b"\1")]
    try:
        answer = Bearer(name, Issued({token: "alice"})).answer(bytes(message))
    except RefusedLogin:
        return
    if isinstance(answer, Login):
        assert token.lower().encode() in given


@pytest.mark.parametrize("name", mechanisms.BEARER)
def test_the_reason_of_a_refusal_reaches_the_client(name: str) -> None:
    mine, server = client(name, "abc"), Bearer(name, Issued({}))
    reason = server.answer(mine.first())
    assert isinstance(reason, bytes)
    assert json.loads(reason)["status"] == "invalid_token"
    with pytest.raises(RefusedLogin, match="it is unknown here"):
        server.answer(mine.answer(reason))
    assert mine.refusal == "invalid_token, it is unknown here"


@pytest.mark.parametrize("name", mechanisms.BEARER)
def test_a_client_ends_a_server_that_asks_twice_or_lets_it_in_after_a_refusal(name: str) -> None:
    mine = client(name, "abc")
    mine.answer(b"{}")
    with pytest.raises(mechanisms.RefusedChallenge, match="accepted a token after it had refused it"):
        mine.end(b"")
    with pytest.raises(mechanisms.RefusedChallenge, match="a second reason"):
        mine.answer(b"{}")


@given(
    st.binary(max_size=3000)
    | st.recursive(st.integers() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
def test_any_reason_is_short_text(reason: bytes) -> None:
    mine = client("OAUTHBEARER", "abc")
    assert mine.answer(reason) == b"\1"
    assert 0 < len(mine.refusal) < 300


@pytest.mark.parametrize(
    ("offered", "plaintext", "mechanism"),
    [
        (("PLAIN", "XOAUTH2", "OAUTHBEARER"), True, "OAUTHBEARER"),
        (("PLAIN", "XOAUTH2", "SCRAM-SHA-256"), True, "XOAUTH2"),
        (("PLAIN", "SCRAM-SHA-256", "ANONYMOUS"), True, "PLAIN"),
        (("PLAIN", "XOAUTH2", "OAUTHBEARER", "ANONYMOUS"), False, None),
        (("SCRAM-SHA-256", "ANONYMOUS"), True, None),
    ],
)
def test_a_token_goes_by_the_first_of_its_mechanisms_and_not_in_clear_text_where_that_is_forbidden(
    offered: tuple[str, ...], plaintext: bool, mechanism: str | None
) -> None:
    usable = mechanisms.usable(Settings(container_id="c", password="t", bearer=True, plaintext=plaintext))
    assert next((name for name in usable if name in offered), None) == mechanism


@pytest.mark.parametrize("name", ["OAUTHBEARER", "XOAUTH2"])
def test_a_password_never_goes_by_a_mechanism_of_tokens(name: str) -> None:
    settings = Settings(container_id="c", user="alice", password="wonder", mechanisms=(name,))
    assert mechanisms.usable(settings) == ()
