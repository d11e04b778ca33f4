"""Shared access signatures: what our client and Azure's make is accepted, and nothing else."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from pathlib import Path
from urllib.parse import parse_qsl, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.tokens.signatures import KeyFileError, SharedAccess
from haclient.engine.sasl.users import RefusedToken
from haclient.tokens import SharedAccessKey

NAMES = st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters=":"), min_size=1, max_size=20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


def keys(folder: Path, name: str = "Root", key: str = "the key", reserved: str = "") -> SharedAccess:
    path = folder / "keys"
    path.write_text(f"{name}:{key}\n")
    return SharedAccess(path, frozenset({reserved}))


@given(st.text(st.characters(exclude_categories=("C",)), max_size=40), NAMES, NAMES)
def test_what_a_client_makes_is_accepted(folder: Path, resource: str, name: str, key: str) -> None:
    token = SharedAccessKey(resource, name, key, seconds=60)()
    owner = keys(folder, name, key).owner(token.value)
    assert (owner.user, owner.expires_at) == (name, token.expiry)


def by_hand(resource: str, key: str, expiry: int, name: str) -> str:
    """Return a signature as Microsoft's page shows it."""
    signed = f"{quote_plus(resource)}\n{expiry}".encode()
    digest = base64.b64encode(hmac.new(key.encode(), signed, hashlib.sha256).digest())
    fields = f"sr={quote_plus(resource)}&sig={quote_plus(digest)}&se={expiry}&skn={name}"
    return f"SharedAccessSignature {fields}"


def test_the_example_of_the_page_is_accepted_until_it_expires(folder: Path) -> None:
    known = keys(folder)
    token = by_hand("sb://a.example/q", "the key", int(time.time()) + 60, "Root")
    assert known.owner(token).user == "Root"
    with pytest.raises(RefusedToken, match="has expired"):
        known.owner(by_hand("sb://a.example/q", "the key", int(time.time()) - 1, "Root"))


@given(st.data())
def test_a_changed_signature_is_refused(folder: Path, data: st.DataObject) -> None:
    token = by_hand("sb://a.example/q", "the key", 2_000_000_000, "Root")
    at = data.draw(st.integers(len("SharedAccessSignature "), len(token) - 1))
    change = data.draw(st.sampled_from("abcXYZ019%&=+/-"))
    changed = token[:at] + change + token[at + 1 :]
    if parse_qsl(changed) != parse_qsl(token):  # an escape is the same in lower case
        with pytest.raises(RefusedToken):
            keys(folder).owner(changed)


@given(st.text(max_size=200) | st.text(max_size=200).map("SharedAccessSignature ".__add__))
def test_any_text_is_refused(folder: Path, token: str) -> None:
    with pytest.raises(RefusedToken):
        keys(folder).owner(token)


FIELDS = st.sampled_from(["sr", "sig", "se", "skn", "%73r", "s%69g", "SE", "", "x"])
VALUES = st.sampled_from(
    ["Root", "1", "2000000000", "\u0662", "1e9", "-1", "nan", "9" * 400, "%", "%ff", "=", ""]
)


@given(st.lists(st.tuples(FIELDS, VALUES | st.text(max_size=10)), max_size=6))
def test_any_fields_are_refused(folder: Path, fields: list[tuple[str, str]]) -> None:
    """None has a signature by the key, whatever its fields are called, and however often they come."""
    token = "SharedAccessSignature " + "&".join(f"{name}={value}" for name, value in fields)
    with pytest.raises(RefusedToken):
        keys(folder).owner(token)


@pytest.mark.parametrize(
    "expiry", ["\u0662" * 10, "1e12", "9" * 13, " 2000000000", "+2000000000", "2_000_000_000"]
)
def test_a_time_that_is_no_number_of_seconds_is_refused_however_it_is_signed(
    folder: Path, expiry: str
) -> None:
    signed = f"sr\n{expiry}".encode()
    digest = quote_plus(base64.b64encode(hmac.new(b"the key", signed, hashlib.sha256).digest()))
    with pytest.raises(RefusedToken):
        keys(folder).owner(f"SharedAccessSignature sr=sr&sig={digest}&se={expiry}&skn=Root")


@pytest.mark.parametrize("skn", ["Nobody", "", "root"])
def test_an_unknown_key_is_refused_even_if_it_would_be_empty(folder: Path, skn: str) -> None:
    with pytest.raises(RefusedToken, match="not by a known key"):
        keys(folder).owner(by_hand("sb://a", "", int(time.time()) + 60, skn))


@pytest.mark.parametrize("text", ["", "Root", "Root:", ":key", "Root:key\nother\n"])
def test_a_wrong_file_is_a_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(KeyFileError, match="name:key"):
        SharedAccess(path)
    with pytest.raises(KeyFileError, match="No such file"):
        SharedAccess(tmp_path / "nowhere")


def test_no_key_has_the_name_of_the_admin(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="tokens do not give"):
        keys(tmp_path, "cluster-admin", reserved="cluster-admin")
