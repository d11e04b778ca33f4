"""Which mechanism a client chooses, and what it sends."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haclient import ConnectionFactory
from haclient.engine.sasl import kerberos, mechanisms
from haclient.engine.settings import Settings
from haclient.errors import SaslUnavailableError


def of(*named: str, user: str | None = "alice", **others: object) -> tuple[str, ...]:
    options: dict[str, Any] = dict(others)
    tls = options.pop("tls", False)
    settings = Settings(container_id="c", user=user, password="secret", mechanisms=named, **options)
    return mechanisms.usable(settings, tls=tls)


def test_a_password_is_revealed_last_and_only_where_it_may_be() -> None:
    scram = ("SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1")
    assert of() == (*scram, "PLAIN")
    assert of(plaintext=False) == scram
    bound = ("SCRAM-SHA-512-PLUS", "SCRAM-SHA-256-PLUS", "SCRAM-SHA-1-PLUS")
    assert of(tls=True) == (*bound, *scram, "PLAIN")
    assert of("SCRAM-SHA-256-PLUS", tls=True) == ("SCRAM-SHA-256-PLUS",)
    assert of("SCRAM-SHA-256-PLUS") == of(*bound, user=None, tls=True) == ()
    assert of(user=None) == ("ANONYMOUS",)
    assert of("PLAIN", "ANONYMOUS", plaintext=False) == ("ANONYMOUS",)
    assert of("PLAIN", "SCRAM-SHA-256", "ANONYMOUS", user=None) == ("ANONYMOUS",)


def test_external_needs_a_certificate_in_tls() -> None:
    assert of("EXTERNAL", "SCRAM-SHA-256") == ("SCRAM-SHA-256",)
    assert of("EXTERNAL") == ()
    assert of("EXTERNAL", "SCRAM-SHA-256", shows_certificate=True) == ("EXTERNAL", "SCRAM-SHA-256")


@given(st.sets(st.sampled_from([*mechanisms.PREFERRED, "CRAM-MD5", "DIGEST-MD5"]), min_size=1))
def test_of_the_named_mechanisms_all_that_there_are_are_used_in_one_order(named: set[str]) -> None:
    of_tokens = (*mechanisms.BEARER, mechanisms.CLAIMS)
    for bearer, others in ((False, of_tokens), (True, (*mechanisms.BOUND, *mechanisms.SCRAM))):
        given = {"shows_certificate": True, "kerberos": object(), "bearer": bearer, "tls": True}
        found = of(*named, **given)
        assert set(found) == named & set(mechanisms.PREFERRED) - set(others)
        assert found == of(*sorted(named, reverse=True), **given)


def test_mechanisms_that_no_client_has_are_refused_by_the_factory() -> None:
    with pytest.raises(
        SaslUnavailableError, match=r"SASL CRAM-MD5: this client has EXTERNAL OAUTHBEARER XOAUTH2"
    ):
        ConnectionFactory("amqp://a", sasl_mechanisms="CRAM-MD5")
    with pytest.raises(SaslUnavailableError, match=r"did you mean SCRAM-SHA-256\?"):
        ConnectionFactory("amqp://a", sasl_mechanisms="SCRAM-SHA256")
    ConnectionFactory("amqp://a", sasl_mechanisms="CRAM-MD5,PLAIN").close()


def test_kerberos_comes_after_scram_and_only_by_its_name() -> None:
    begun = object()
    assert of("GSSAPI", "PLAIN", "SCRAM-SHA-256", kerberos=begun) == ("SCRAM-SHA-256", "GSSAPI", "PLAIN")
    assert of("GSSAPI", user=None, kerberos=begun) == ("GSSAPI",)
    assert "GSSAPI" not in of(kerberos=begun)


def test_kerberos_without_its_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kerberos, "find_spec", lambda _name: None)
    with pytest.raises(SaslUnavailableError, match=r"SASL GSSAPI needs gssapi: pip install '\.\[kerberos\]'"):
        ConnectionFactory("amqp://a", sasl_mechanisms="GSSAPI")
    ConnectionFactory("amqp://a", sasl_mechanisms="GSSAPI,PLAIN").close()


def test_plain_and_scram_need_no_library_of_protons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proton.SASL, "extended", staticmethod(lambda: False))
    monkeypatch.setattr(proton.SSL, "present", staticmethod(lambda: False))
    for name in set(mechanisms.PREFERRED) - {"GSSAPI"}:
        ConnectionFactory("amqps://a", sasl_mechanisms=name).close()


def test_the_page_on_security_has_the_order_of_choice() -> None:
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
    section = page[page.index("## Log-in") : page.index("## The broker pair")]
    cells = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    assert tuple(re.findall(r"`([A-Z0-9-]+)`", " ".join(cells))) == mechanisms.PREFERRED
