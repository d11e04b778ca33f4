"""SCRAM with channel binding between clients and members, and peers in between with trusted certificates."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from haclient import Message, aio
from haclient.engine.sasl import frames
from haclient.engine.sasl.channel_binding import bound
from haclient.engine.sasl.users import DIGESTS
from haclient.errors import AuthenticationFailed
from tests.certificates import Authority, Certificate
from tests.failover.tls_front import tls_front
from tests.members import Member, Members

USERS = {"app": "the word of app"}
WORD = "the%20word%20of%20app"
ONCE = "max_attempts=1&backoff_base=0.01&backoff_max=0.1"
SCRAM = tuple(DIGESTS)
PLUS = bound(SCRAM)
# The offer of a member with users.
OFFER = frames.SASL_HEADER + frames.mechanisms((*PLUS, *SCRAM, "PLAIN"))


@pytest.fixture
def member(members: Members, authority: Authority) -> Member:
    return members.start(
        "primary", role="primary", users=USERS, anonymous=False, certificate=authority.issue("127.0.0.1")
    )


def url(address: str, ca: Path | None = None, word: str = WORD, **options: str) -> str:
    given = {**({} if ca is None else {"tls_ca": str(ca)}), **options}
    scheme = "amqp" if ca is None else "amqps"
    return f"{scheme}://app:{word}@{address}?{ONCE}" + "".join(f"&{name}={given[name]}" for name in given)


async def use(address: str) -> None:
    async with aio.connect(address) as connection:
        sender = await connection.create_sender("orders")
        assert (await sender.send(Message(body="from a user"), timeout=10)).accepted


async def refused(address: str) -> AuthenticationFailed:
    with pytest.raises(AuthenticationFailed) as raised:
        await aio.connect(address)
    return raised.value


async def test_inside_tls_the_channel_is_bound_by_the_strongest_mechanism(
    member: Member, authority: Authority
) -> None:
    await use(url(member.address, authority.file))
    wrong = await refused(url(member.address, authority.file, word="wrong"))
    assert (wrong.mechanism, wrong.code) == ("SCRAM-SHA-512-PLUS", "authentication")


@pytest.mark.parametrize("mechanism", [*PLUS, *SCRAM, "PLAIN"])
async def test_each_mechanism_logs_in_alone(mechanism: str, member: Member, authority: Authority) -> None:
    await use(url(member.address, authority.file, sasl_mechanisms=mechanism))


async def test_a_peer_with_another_trusted_certificate_is_refused_though_it_relays_everything(
    member: Member, authority: Authority
) -> None:
    relay = tls_front(authority.issue("127.0.0.1"), member.address, onward=authority.client_context())
    async with relay as front:
        error = await refused(url(front.address, authority.file))
        assert "the TLS connection of this client does not end at the broker: the broker has another" in str(
            error
        )
        assert (error.code, error.safe_to_retry) == ("channel-binding", False)
        # A proxy of one's own is allowed by the name of the mechanism.
        await use(url(front.address, authority.file, sasl_mechanisms="SCRAM-SHA-256"))
    assert "channel binding is not this connection's" in member.log.read_text()


async def test_a_peer_that_removes_the_bound_mechanisms_from_the_offer_is_refused_by_their_name(
    member: Member, authority: Authority
) -> None:
    seen = []

    def without_binding(data: bytes) -> bytes:
        seen.append(data)
        return data.replace(OFFER, frames.SASL_HEADER + frames.mechanisms((*SCRAM, "PLAIN")))

    relay = tls_front(
        authority.issue("127.0.0.1"),
        member.address,
        onward=authority.client_context(),
        change=without_binding,
    )
    async with relay as front:
        await use(url(front.address, authority.file))
        error = await refused(url(front.address, authority.file, sasl_mechanisms="SCRAM-SHA-256-PLUS"))
    assert OFFER in seen
    assert error.code == "no-common-mechanism"


async def test_a_proxy_that_ends_tls_before_a_member_without_it_is_no_matter(
    members: Members, authority: Authority
) -> None:
    member = members.start("primary", role="primary", users=USERS, anonymous=False)
    async with tls_front(authority.issue("127.0.0.1"), member.address) as front:
        await use(url(front.address, authority.file))
        wrong = await refused(url(front.address, authority.file, word="wrong"))
        assert (wrong.mechanism, wrong.code) == ("SCRAM-SHA-512", "authentication")
        alone = await refused(url(front.address, authority.file, sasl_mechanisms="SCRAM-SHA-256-PLUS"))
    assert alone.code == "no-common-mechanism"
    assert "this client may use SCRAM-SHA-256-PLUS; did you mean SCRAM-SHA-256 instead of" in str(alone)


async def test_without_tls_nothing_is_bound(members: Members) -> None:
    member = members.start("primary", role="primary", users=USERS, anonymous=False)
    await use(url(member.address))
    assert (await refused(url(member.address, word="wrong"))).mechanism == "SCRAM-SHA-512"
    alone = await refused(url(member.address, sasl_mechanisms="SCRAM-SHA-256-PLUS"))
    assert alone.code == "no-common-mechanism"
    assert "this client may use none; did you mean SCRAM-SHA-256 instead of SCRAM-SHA-256-PLUS" in str(alone)


def self_signed(folder: Path, key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> Certificate:
    """Return a certificate that is its own authority."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now - day, now + day)
    builder = builder.add_extension(
        x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
    )
    digest = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA512()
    authority = Authority(folder)
    pem = builder.sign(key, digest).public_bytes(serialization.Encoding.PEM)
    own = Certificate(authority, folder / "own.pem", folder / "own.key")
    # A text with a letter beyond ASCII before it, as OpenSSL's command line writes names.
    own.chain.write_bytes("Subject: CN=Zo\N{LATIN SMALL LETTER E WITH DIAERESIS}\n".encode() + pem)
    authority.file.write_bytes(pem)
    private = serialization.PrivateFormat.PKCS8
    own.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption()))
    return own


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (ed25519.Ed25519PrivateKey.generate(), "SCRAM-SHA-512"),
        (ec.generate_private_key(ec.SECP384R1()), "SCRAM-SHA-512-PLUS"),
    ],
    ids=["Ed25519", "ECDSA"],
)
async def test_a_certificate_without_a_binding_leaves_scram_as_it_was(
    key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey,
    expected: str,
    members: Members,
    tmp_path: Path,
) -> None:
    own = self_signed(tmp_path / "own", key)
    member = members.start("primary", role="primary", users=USERS, anonymous=False, certificate=own)
    await use(url(member.address, own.authority.file))
    assert (await refused(url(member.address, own.authority.file, word="wrong"))).mechanism == expected


async def test_a_certificate_that_is_not_verified_is_bound_all_the_same(
    member: Member, authority: Authority, tmp_path: Path
) -> None:
    await use(url(member.address, authority.file, tls_verify="false", sasl_mechanisms="SCRAM-SHA-256-PLUS"))
    stranger = Authority(tmp_path / "stranger").issue("127.0.0.1")
    careless = ssl.create_default_context()
    careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE
    async with tls_front(stranger, member.address, onward=careless) as front:
        error = await refused(url(front.address, authority.file, tls_verify="false"))
    assert error.code == "channel-binding"
