"""Tokens by a key set: the set is read again, and anything but a token of its keys is refused."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.tokens import key_set
from broker_stub.tokens.key_set import KeySetError, SignedTokens, TokenRules
from haclient.engine.sasl.users import RefusedToken
from tests.engine.sasl.test_claims import CLAIMS
from tests.identity_provider import AUDIENCE, ISSUER, IdentityProvider
from tests.tokens.http_server import serving


def tokens(provider: IdentityProvider) -> SignedTokens:
    return SignedTokens(TokenRules(str(provider.key_set), ISSUER, AUDIENCE))


def until_accepted(known: SignedTokens, token: str) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            known.owner(token)
        except RefusedToken:
            time.sleep(0.01)
        else:
            return
    raise AssertionError("the key set was not read again")


@given(st.text(max_size=300) | st.from_regex(r"[\w-]+\.[\w-]+\.[\w-]+", fullmatch=True))
def test_any_text_is_refused(provider: IdentityProvider, text: str) -> None:
    with pytest.raises(RefusedToken):
        tokens(provider).owner(text)


@given(CLAIMS)
def test_any_signed_claims_are_a_name_and_a_time_or_refused(
    provider: IdentityProvider, claims: dict[str, object]
) -> None:
    token = provider.token(
        **{str(name): value for name, value in claims.items() if name not in {"self", "user", "seconds"}}
    )
    try:
        owner = tokens(provider).owner(token)
    except RefusedToken:
        return
    assert owner.user
    assert owner.expires_at is not None
    assert owner.expires_at > time.time()


def test_a_set_by_http_is_read_again_for_an_unknown_key(
    provider: IdentityProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_set, "_PAUSE", 0.0)
    other = IdentityProvider(tmp_path)
    first, second = (each.key_set.read_bytes() for each in (provider, other))
    with serving((200, {}, first), (503, {}, b""), (200, {}, second)) as server:
        known = SignedTokens(TokenRules(server.url))
        known.owner(provider.token())
        with pytest.raises(RefusedToken, match="unknown key"):
            known.owner(other.token())
        until_accepted(known, other.token())


def test_a_set_is_read_again_when_it_is_old(
    provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a key that was revoked counts no longer."""
    provider.rotate()
    known, revoked = tokens(provider), provider.token()
    provider.rotate(keep=False)
    monkeypatch.setattr(key_set, "_FRESH", 0.0)
    end = time.monotonic() + 20
    with pytest.raises(RefusedToken, match="unknown key"):  # noqa: PT012 - one of the calls raises
        while time.monotonic() < end:
            known.owner(revoked)


def refusal(known: SignedTokens, token: str) -> RefusedToken:
    with pytest.raises(RefusedToken) as caught:
        known.owner(token)
    return caught.value


@pytest.mark.parametrize("kid", ["unknown", None])
def test_a_token_by_an_unknown_key_is_refused_for_good_after_the_set_was_read(
    kid: str | None, provider: IdentityProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its client would try for ever, and never show the reason."""
    from joserfc import jwt
    from joserfc.jwk import ECKey

    monkeypatch.setattr(key_set, "_PAUSE", 0.0)
    provider.rotate()  # of several keys a token must name one
    known = tokens(provider)
    header = {"alg": "ES256"} | ({} if kid is None else {"kid": kid})
    made = [
        jwt.encode(header, {"sub": f"s{number}", "exp": time.time() + 60}, ECKey.generate_key("P-256"))
        for number in range(3)
    ]
    for token in made:
        assert refusal(known, token).is_temporary
        end = time.monotonic() + 20
        while refusal(known, token).is_temporary:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert not refusal(known, token).is_temporary


def test_a_key_of_an_unknown_kind_does_not_spoil_the_others(
    provider: IdentityProvider, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Providers publish keys of new kinds beside the usual ones (RFC 7517, section 5)."""
    found = json.loads(provider.key_set.read_text())
    odd: list[dict[str, object]] = [
        {"kty": "EC", "crv": "BP-256", "x": "AA", "y": "AA", "kid": "curve"},
        {"kty": "AKP", "alg": "ML-DSA-65", "pub": "AA", "kid": "kind"},
        {"kty": "RSA", "n": 7, "e": "AQAB"},
        {"kty": "EC"},
        {},
    ]
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [*odd, *found["keys"], *odd]}))
    known = SignedTokens(TokenRules(str(path), ISSUER, AUDIENCE))
    assert known.owner(provider.token()).user == "app"
    assert caplog.text.count("of an unknown kind, and left out") == 2 * len(odd)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"keys": []}', '{"keys": {}}', '{"keys": [{}]}', '{"keys": [7]}', "[" * 100_000],
)
def test_what_is_no_key_set_is_a_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(text)
    with pytest.raises(KeySetError, match=r"keys\.json"):
        SignedTokens(TokenRules(str(path)))


def test_a_private_or_shared_key_in_the_set_signs_nothing(tmp_path: Path) -> None:
    """Only signatures by a private key count: whoever has a shared one may sign, too."""
    from joserfc import jwt
    from joserfc.jwk import OctKey

    key = OctKey.generate_key(256, {"kid": "shared"})
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [key.as_dict(private=True)]}))
    token = jwt.encode({"alg": "HS256", "kid": "shared"}, {"sub": "alice", "exp": time.time() + 60}, key)
    with pytest.raises(RefusedToken):
        SignedTokens(TokenRules(str(path))).owner(token)
