"""The subject of a certificate as OpenSSL writes it: proton, which asks OpenSSL, is the reference."""

from __future__ import annotations

import datetime
import ssl
import tempfile
from pathlib import Path

import proton
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type
from hypothesis import given, settings
from hypothesis import strategies as st

from haclient.engine.sasl import certificate_name

KEY = ec.generate_private_key(ec.SECP256R1())
_NOW = datetime.datetime.now(datetime.UTC)
_DAY = datetime.timedelta(days=1)
_LETTERS = st.sampled_from(' #,+"\\<>;=/abc\x01\x7f\néß€𝄞')
_TYPES = [_ASN1Type.UTF8String, _ASN1Type.BMPString, _ASN1Type.UniversalString]
_UNKNOWN = "1.3.6.1.4.1.99999.7"


def certificate_of(name: x509.Name) -> x509.Certificate:
    """Return a self-signed certificate."""
    builder = x509.CertificateBuilder(name, name, KEY.public_key(), 1, _NOW - _DAY, _NOW + _DAY)
    return builder.sign(KEY, hashes.SHA256())


def as_openssl_writes(certificate: x509.Certificate) -> str:
    """Return proton's name for a client with this certificate."""
    with tempfile.TemporaryDirectory() as folder:
        pem, key = Path(folder) / "cert.pem", Path(folder) / "key.pem"
        pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        kind = serialization.PrivateFormat.PKCS8
        key.write_bytes(KEY.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption()))
        domains = [
            proton.SSLDomain(mode) for mode in (proton.SSLDomain.MODE_SERVER, proton.SSLDomain.MODE_CLIENT)
        ]
        for domain in domains:
            domain.set_credentials(str(pem), str(key), None)
        domains[0].set_trusted_ca_db(str(pem))
        domains[0].set_peer_authentication(proton.SSLDomain.VERIFY_PEER, str(pem))
        domains[1].set_peer_authentication(proton.SSLDomain.ANONYMOUS_PEER)
    server, client = proton.Transport(proton.Transport.SERVER), proton.Transport(proton.Transport.CLIENT)
    seen, _ = proton.SSL(server, domains[0]), proton.SSL(client, domains[1])
    for _ in range(4):
        for source, sink in ((client, server), (server, client)):
            while (size := source.pending()) > 0:
                sink.push(bytes(source.peek(size) or b""))
                source.pop(size)
    name: str = seen.remote_subject
    return name


@st.composite
def attributes(draw: st.DrawFn) -> x509.NameAttribute:
    kind = draw(st.sampled_from([*certificate_name._NAMES, _UNKNOWN]))
    text = "SE" if kind == "2.5.4.6" else draw(st.text(_LETTERS, min_size=1, max_size=6))
    identifier = x509.ObjectIdentifier(kind)
    if kind in ("2.5.4.6", "1.3.6.1.4.1.311.60.2.1.3"):
        return x509.NameAttribute(identifier, "SE")
    kinds = _TYPES if text.isascii() or max(text) < "\U00010000" else _TYPES[:1]
    return x509.NameAttribute(identifier, text, draw(st.sampled_from(kinds)), _validate=False)


@st.composite
def relative_names(draw: st.DrawFn) -> x509.RelativeDistinguishedName:
    found = draw(st.lists(attributes(), min_size=1, max_size=2, unique_by=lambda each: each.oid))
    return x509.RelativeDistinguishedName(found)


@pytest.mark.slow
@settings(max_examples=20)  # each runs openssl
@given(st.lists(relative_names(), min_size=1, max_size=4))
def test_any_name_is_written_as_openssl_does(parts: list[x509.RelativeDistinguishedName]) -> None:
    certificate = certificate_of(x509.Name(parts))
    der = certificate.public_bytes(serialization.Encoding.DER)
    assert certificate_name.subject(der) == as_openssl_writes(certificate)


def test_the_short_names_are_those_of_openssl() -> None:
    known = {number: ssl._ASN1Object(number).shortname for number in certificate_name._NAMES}  # type: ignore[attr-defined]
    assert known == certificate_name._NAMES


@given(st.binary(max_size=60), st.integers(0, 400), st.integers(0, 400))
def test_a_certificate_that_cannot_be_read_is_a_value_error(noise: bytes, start: int, length: int) -> None:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "carol")])
    der = bytearray(certificate_of(name).public_bytes(serialization.Encoding.DER))
    der[start : start + length] = noise
    try:
        certificate_name.subject(bytes(der))
    except ValueError:
        return


@pytest.mark.parametrize("data", [b"", b"\x30", b"\x30\x00", b"\x30\x02\x30\x00", b"\x30\x85" + bytes(9)])
def test_too_few_bytes_are_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        certificate_name.subject(data)
