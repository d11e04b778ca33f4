"""A proton built without Cyrus SASL or OpenSSL: features that need them raise errors that name the
packages.
"""

from __future__ import annotations

import logging

import proton
import pytest

from haclient import ConnectionFactory
from haclient.engine import sasl
from haclient.engine.settings import Settings
from haclient.errors import SaslUnavailableError


@pytest.fixture
def _no_cyrus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proton.SASL, "extended", staticmethod(lambda: False))


@pytest.fixture
def _no_openssl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proton.SSL, "present", staticmethod(lambda: False))


def packages(text: str) -> bool:
    return all(name in text for name in ("pkg-config", "libsasl2-dev", "libssl-dev", "cyrus-sasl-devel"))


@pytest.mark.usefixtures("_no_cyrus")
def test_a_mechanism_that_needs_cyrus_is_refused_by_the_factory() -> None:
    with pytest.raises(SaslUnavailableError, match=r"SASL SCRAM-SHA-256: .* built without Cyrus") as caught:
        ConnectionFactory("amqp://a", sasl_mechanisms="SCRAM-SHA-256")
    assert packages(str(caught.value))
    ConnectionFactory("amqp://a", sasl_mechanisms="SCRAM-SHA-256,PLAIN").close()


@pytest.mark.usefixtures("_no_openssl")
def test_a_certificate_for_sasl_needs_openssl() -> None:
    with pytest.raises(SaslUnavailableError, match=r"SASL EXTERNAL: .* built without OpenSSL") as caught:
        ConnectionFactory("amqps://a", sasl_mechanisms="EXTERNAL")
    assert packages(str(caught.value))


@pytest.mark.usefixtures("_no_cyrus")
def test_a_password_that_can_only_go_as_it_is_makes_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    sasl._warn_of_plain.cache_clear()
    with caplog.at_level(logging.WARNING, "haclient"):
        for _ in range(2):
            settings = Settings(container_id="c", user="joe", password="secret")
            sasl.configure(proton.Transport(), proton.Connection(), settings)
    (text,) = caplog.messages
    assert text.startswith(
        "a password can be used with SASL PLAIN alone: python-qpid-proton was built without"
    )
    assert packages(text)
