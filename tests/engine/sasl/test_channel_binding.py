"""SCRAM with channel binding: each side against the other one written by hand, and against lies.

The hands follow RFC 5802 with hashlib and hmac, and RFC 5929 with the library cryptography.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import functools
import hashlib
import hmac
import re
from typing import Any, cast

import proton
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import SASL

from haclient.engine.sasl import channel_binding, frames, users
from haclient.engine.sasl.channel_binding import bound
from haclient.engine.sasl.client import ClientSasl
from haclient.engine.sasl.mechanisms import INTERCEPTED, UNPROVEN
from haclient.engine.sasl.server import ServerSasl
from haclient.engine.settings import SaslServer, Settings
from tests.engine.sasl.test_client import HEADER
from tests.engine.sasl.test_server import SCRAM, Known, protons_client, taken

PLUS = bound(SCRAM)
GS2 = b"p=tls-server-end-point,,"
PASSWORD, SALT, ROUNDS = "wonder", b"the salt of alice", 4096
_NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a")])
_NOW = datetime.datetime.now(datetime.UTC)
_DAY = datetime.timedelta(days=1)
# RFC 8017, appendix A.2.4: PKCS #1 v1.5 with each hash function.
_SHA256_WITH_RSA = bytes.fromhex("2a864886f70d01010b")
_OLD_RSA = {"sha1": bytes.fromhex("2a864886f70d010105"), "md5": bytes.fromhex("2a864886f70d010104")}
MODERN = (hashes.SHA256(), hashes.SHA384(), hashes.SHA512())


@functools.cache
def key(kind: str) -> Any:
    if kind == "rsa":
        return rsa.generate_private_key(65537, 2048)
    if kind == "ecdsa":
        return ec.generate_private_key(ec.SECP256R1())
    return {"ed25519": ed25519.Ed25519PrivateKey, "ed448": ed448.Ed448PrivateKey}[kind].generate()


def certificate(kind: str, digest: Any, serial: int = 1, *, pss: bool = False) -> bytes:
    """Return a self-signed certificate in DER."""
    builder = x509.CertificateBuilder(_NAME, _NAME, key(kind).public_key(), serial, _NOW - _DAY, _NOW + _DAY)
    scheme = padding.PSS(padding.MGF1(digest), digest.digest_size) if pss else None
    return builder.sign(key(kind), digest, rsa_padding=scheme).public_bytes(serialization.Encoding.DER)


def outdated(digest: str, serial: int = 1) -> bytes:
    """Return a certificate that names an old hash function; cryptography signs with none."""
    made = certificate("rsa", hashes.SHA256(), serial)
    return made.replace(_SHA256_WITH_RSA, _OLD_RSA[digest])


def by_the_standard(der: bytes) -> bytes:
    """Return the binding after RFC 5929, section 4.1, by the library cryptography."""
    digest = x509.load_der_x509_certificate(der).signature_hash_algorithm
    assert digest is not None
    return hashlib.new("sha256" if digest.name in ("md5", "sha1") else digest.name, der).digest()


_SERIALS = st.integers(1, 2**150)
CERTIFICATES = st.one_of(
    st.builds(certificate, st.sampled_from(["rsa", "ecdsa"]), st.sampled_from(MODERN), _SERIALS),
    st.builds(certificate, st.just("rsa"), st.sampled_from(MODERN), _SERIALS, pss=st.just(True)),
    st.builds(outdated, st.sampled_from(["sha1", "md5"]), _SERIALS),
)
MINE, OTHER = certificate("ecdsa", hashes.SHA384(), 1), certificate("ecdsa", hashes.SHA384(), 2)


class _Context:
    verify_mode = None


class _Tls:
    context = _Context

    def __init__(self, of_peer: bytes) -> None:
        self._of_peer = of_peer

    def getpeercert(self, *, binary_form: bool) -> bytes | None:
        assert binary_form
        return self._of_peer or None


class Socket:
    """Keeps what is written.

    :param of_peer: the certificate of the peer, empty if it shows none; ``None`` without TLS.
    """

    def __init__(self, of_peer: bytes | None) -> None:
        self._tls = None if of_peer is None else _Tls(of_peer)
        self.written, self.closed = b"", False

    def get_extra_info(self, name: str) -> _Tls | None:
        assert name == "ssl_object"
        return self._tls

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def take(self) -> bytes:
        taken, self.written = self.written, b""
        return taken


class Side:
    """A negotiation and its socket."""

    def __init__(self, sasl: ClientSasl | ServerSasl, of_peer: bytes | None) -> None:
        self.sasl, self.socket = sasl, Socket(of_peer)
        self.refused: proton.Condition | None = None

    def read(self, data: bytes) -> bytes:
        """Return the answer."""
        _, self.refused = self.sasl.read(cast("asyncio.Transport", self.socket), data)
        return self.socket.take()


def client(of_peer: bytes | None, *named: str, password: str = PASSWORD) -> Side:
    options = Settings(container_id="c", user="alice", password=password, mechanisms=named)
    return Side(ClientSasl(options), of_peer)


def server(own: bytes | None, *, tls: bool = True, offered: tuple[str, ...] = (*PLUS, *SCRAM)) -> Side:
    binding = None if own is None else channel_binding.of_certificate(own)
    known = SaslServer(mechanisms=offered, users=Known({"alice": PASSWORD}), binding=binding)
    return Side(ServerSasl(known), b"" if tls else None)


def offer(*names: str) -> bytes:
    return HEADER + frames.mechanisms(names)


def messages(data: bytes) -> list[tuple[int, bytes]]:
    """Return the codes of a server's frames and their messages."""
    found = []
    data = data.removeprefix(HEADER)
    while data:
        size = int.from_bytes(data[:4])
        code, fields = frames.read_of_server(data[8:size])
        found.append((code, frames.message(fields[0]) if code == frames.CHALLENGE else fields[0]))
        data = data[size:]
    return found


def names_offered(data: bytes) -> tuple[str, ...]:
    [(code, field)] = messages(data)
    assert code == frames.MECHANISMS
    return frames.names(field)


def said(data: bytes) -> tuple[bytes, ...]:
    """Return the fields of a client's only frame."""
    assert int.from_bytes(data[:4]) == len(data)
    return tuple(field or b"" for field in frames.read(data[8:])[1])


def signatures(digest: str, everything: bytes) -> tuple[bytes, bytes]:
    """Return the client's proof and the server's signature (RFC 5802, section 3)."""
    salted = hashlib.pbkdf2_hmac(digest, PASSWORD.encode(), SALT, ROUNDS)
    own = hmac.digest(salted, b"Client Key", digest)
    mask = hmac.digest(hashlib.new(digest, own).digest(), everything, digest)
    proof = bytes(a ^ b for a, b in zip(own, mask, strict=True))
    return proof, hmac.digest(hmac.digest(salted, b"Server Key", digest), everything, digest)


# -- the binding -------------------------------------------------------------------------------------


@given(CERTIFICATES)
@settings(max_examples=40, deadline=None)
def test_the_hash_function_is_that_of_the_signature_and_no_old_one(der: bytes) -> None:
    assert channel_binding.of_certificate(der) == by_the_standard(der)


@pytest.mark.parametrize("kind", ["ed25519", "ed448"])
def test_a_signature_without_a_hash_function_of_its_own_has_no_binding(kind: str) -> None:
    assert channel_binding.of_certificate(certificate(kind, None)) is None


@given(st.binary(max_size=40) | st.builds(lambda at: MINE[:at], st.integers(0, len(MINE) - 1)))
def test_what_is_no_certificate_has_no_binding(data: bytes) -> None:
    assert channel_binding.of_certificate(data) is None


# -- the client, and a server by hand ----------------------------------------------------------------


@pytest.mark.parametrize("mechanism", PLUS)
@given(der=CERTIFICATES)
@settings(max_examples=6, deadline=None)
def test_a_server_by_hand_accepts_the_client(mechanism: str, der: bytes) -> None:
    mine, digest = client(der), users.DIGESTS[mechanism.removesuffix("-PLUS")]
    name, first, *_ = said(mine.read(offer(*SCRAM, mechanism, "PLAIN")))
    assert name.decode() == mechanism
    assert first.startswith(GS2 + b"n=alice,r=")
    bare = first.removeprefix(GS2)
    nonce = bare.partition(b",r=")[2] + b"server"
    challenge = b"r=%b,s=%b,i=%d" % (nonce, base64.b64encode(SALT), ROUNDS)
    [final] = said(mine.read(frames.challenge(challenge)))
    without_proof, _, proof = final.partition(b",p=")
    assert without_proof == b"c=%b,r=%b" % (base64.b64encode(GS2 + by_the_standard(der)), nonce)
    expected, signature = signatures(digest, b",".join((bare, challenge, without_proof)))
    assert base64.b64decode(proof) == expected
    mine.read(frames.challenge(b"v=" + base64.b64encode(signature)))
    mine.read(frames.outcome(SASL.OK))
    assert isinstance(mine.sasl, ClientSasl)
    assert (mine.refused, mine.sasl.mechanism, mine.sasl.proved) == (None, mechanism, True)


def flag(of_peer: bytes | None, *offered: str, named: tuple[str, ...] = ()) -> tuple[str, bytes]:
    """Return the client's mechanism and its flag."""
    name, first, *_ = said(client(of_peer, *named).read(offer(*offered)))
    return name.decode(), first.partition(b",,")[0]


def test_the_flag_says_whether_the_client_binds_the_channel() -> None:
    assert flag(MINE, *PLUS, *SCRAM) == ("SCRAM-SHA-512-PLUS", GS2[:-2])
    assert flag(MINE, "SCRAM-SHA-512", "SCRAM-SHA-256-PLUS") == ("SCRAM-SHA-256-PLUS", GS2[:-2])
    assert flag(MINE, *SCRAM) == ("SCRAM-SHA-512", b"n")
    assert flag(MINE, *PLUS, *SCRAM, named=("SCRAM-SHA-256",)) == ("SCRAM-SHA-256", b"n")
    assert flag(MINE, *PLUS, *SCRAM, named=("SCRAM-SHA-1-PLUS",)) == ("SCRAM-SHA-1-PLUS", GS2[:-2])


def test_without_tls_or_a_binding_it_is_scram_as_before() -> None:
    for of_peer in (None, b"", certificate("ed25519", None)):
        assert flag(of_peer, *PLUS, *SCRAM) == ("SCRAM-SHA-512", b"n")
        mine = client(of_peer, *PLUS)
        assert mine.read(offer(*PLUS, *SCRAM)) == b""
        assert mine.refused is not None
        assert mine.refused.description == "no SASL mechanism in common"


def test_an_error_about_the_channel_is_not_one_about_the_password() -> None:
    mine = client(MINE)
    mine.read(offer(*PLUS))
    assert mine.read(frames.challenge(b"e=channel-bindings-dont-match") + frames.outcome(SASL.AUTH)) == b""
    assert mine.refused is not None
    assert mine.refused.description.startswith(INTERCEPTED)
    assert mine.sasl.outcome is None


def test_a_server_that_does_not_know_the_password_is_refused_as_well() -> None:
    mine = client(MINE)
    mine.read(offer(*PLUS) + frames.outcome(SASL.OK))
    assert mine.refused is not None
    assert UNPROVEN in mine.refused.description


# -- the server, and a client by hand ----------------------------------------------------------------


def log_in(peer: Side, mechanism: str, header: bytes, binding: bytes = b"") -> list[tuple[int, bytes]]:
    """Log in as alice, with the right password; return the server's last messages."""
    first = header + b"n=alice,r=client"
    answers = messages(peer.read(HEADER + frames.init(mechanism, first, None)))[1:]
    if answers[-1][0] != frames.CHALLENGE:
        return answers
    [(_, challenge)] = answers
    fields = dict(part.split(b"=", 1) for part in challenge.split(b","))
    without_proof = b"c=%b,r=%b" % (base64.b64encode(header + binding), fields[b"r"])
    digest = users.DIGESTS[mechanism.removesuffix("-PLUS")]
    salted = hashlib.pbkdf2_hmac(digest, PASSWORD.encode(), base64.b64decode(fields[b"s"]), int(fields[b"i"]))
    own = hmac.digest(salted, b"Client Key", digest)
    everything = b",".join((b"n=alice,r=client", challenge, without_proof))
    mask = hmac.digest(hashlib.new(digest, own).digest(), everything, digest)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(own, mask, strict=True)))
    answers = messages(peer.read(frames.response(without_proof + b",p=" + proof)))
    if len(answers) == 1 and answers[0][1].startswith(b"v="):
        expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), everything, digest)
        assert base64.b64decode(answers[0][1][2:]) == expected
        return messages(peer.read(frames.response(b"")))
    return answers


OK, AUTH = (frames.OUTCOME, b"\x50\x00"), (frames.OUTCOME, b"\x50\x01")


@pytest.mark.parametrize("mechanism", PLUS)
@given(der=CERTIFICATES)
@settings(max_examples=6, deadline=None)
def test_the_server_accepts_a_client_by_hand(mechanism: str, der: bytes) -> None:
    mine = server(der)
    assert log_in(mine, mechanism, GS2, by_the_standard(der)) == [OK]
    assert (mine.sasl.user, mine.sasl.mechanism) == ("alice", mechanism)


@pytest.mark.parametrize("mechanism", PLUS)
@pytest.mark.parametrize(
    "binding",
    [by_the_standard(OTHER), b"", by_the_standard(MINE)[:-1], by_the_standard(MINE) + b"\0", MINE],
    ids=["another certificate", "none", "too short", "too long", "the certificate itself"],
)
def test_another_binding_is_refused_with_the_reason_though_the_password_is_right(
    mechanism: str, binding: bytes
) -> None:
    mine = server(MINE)
    assert log_in(mine, mechanism, GS2, binding) == [
        (frames.CHALLENGE, b"e=channel-bindings-dont-match"),
        AUTH,
    ]
    assert (mine.sasl.user, mine.socket.closed) == (None, True)
    assert mine.refused is not None
    assert mine.refused.name == "amqp:unauthorized-access"


@pytest.mark.parametrize(
    "header",
    [
        b"n,,", b"y,,", b"p=tls-unique,,", b"p=tls-exporter,,", b"p=,,", b"p,,", b"p=tls-server-end-pointx,,",
        b"P=tls-server-end-point,,", b"p=tls-server-end-point,a=alice,", b"p=tls-server-end-point,", b",,",
    ],
)  # fmt: skip
def test_a_bound_mechanism_has_no_other_header(header: bytes) -> None:
    mine = server(MINE)
    assert log_in(mine, "SCRAM-SHA-256-PLUS", header, by_the_standard(MINE)) == [AUTH]
    assert mine.sasl.user is None


def test_a_mechanism_without_binding_has_no_header_with_one() -> None:
    assert log_in(server(MINE), "SCRAM-SHA-256", GS2, by_the_standard(MINE)) == [AUTH]


@pytest.mark.parametrize("mechanism", SCRAM)
def test_a_client_that_saw_no_offer_of_a_binding_is_refused_where_there_was_one(mechanism: str) -> None:
    refusal = [(frames.CHALLENGE, b"e=server-does-support-channel-binding"), AUTH]
    assert log_in(server(MINE), mechanism, b"y,,") == refusal
    assert log_in(server(MINE), mechanism, b"n,,") == [OK]
    for none in (server(MINE, offered=SCRAM), server(MINE, tls=False), server(None)):
        assert log_in(none, mechanism, b"y,,") == [OK]


def test_the_refusal_of_the_channel_says_nothing_about_the_user() -> None:
    answers = []
    for name in (b"alice", b"nobody"):
        mine = server(MINE)
        answers.append(
            messages(mine.read(HEADER + frames.init("SCRAM-SHA-256", b"y,,n=%b,r=c" % name, None)))
        )
    assert answers[0] == answers[1]


def test_bound_mechanisms_are_offered_first_and_only_inside_tls_with_a_binding() -> None:
    assert names_offered(server(MINE).read(HEADER)) == (*PLUS, *SCRAM)
    for none in (server(MINE, tls=False), server(None), server(certificate("ed25519", None))):
        assert names_offered(none.read(HEADER)) == SCRAM
        choice = HEADER + frames.init(PLUS[0], GS2 + b"n=alice,r=c", None)
        assert messages(none.read(choice.removeprefix(HEADER)))[-1] == AUTH
        assert none.refused is not None
        assert "a mechanism that was not offered" in none.refused.description


# -- both sides --------------------------------------------------------------------------------------


def together(mine: Side, peer: Side) -> None:
    """Let both talk until neither has anything to say."""
    to_client = peer.read(HEADER)
    while to_client and not mine.refused:
        to_server = mine.read(to_client)
        to_client = peer.read(to_server) if to_server and not peer.refused else b""


@given(shown=CERTIFICATES, own=CERTIFICATES, same=st.booleans())
@settings(max_examples=25, deadline=None)
def test_both_agree_exactly_if_it_is_the_same_certificate(shown: bytes, own: bytes, *, same: bool) -> None:
    mine, peer = client(shown), server(shown if same else own)
    together(mine, peer)
    assert isinstance(mine.sasl, ClientSasl)
    assert mine.sasl.mechanism == "SCRAM-SHA-512-PLUS"
    assert mine.sasl.ended == (peer.sasl.user == "alice") == (same or shown == own)
    if not mine.sasl.ended:
        assert mine.refused is not None
        assert mine.refused.description.startswith(INTERCEPTED)


def test_a_wrong_password_is_an_error_about_the_password() -> None:
    mine, peer = client(MINE, password="wrong"), server(MINE)
    together(mine, peer)
    assert mine.refused is not None
    assert "Authentication failed [mech=SCRAM-SHA-512-PLUS]" in mine.refused.description
    assert mine.sasl.outcome == SASL.AUTH


@pytest.mark.parametrize("tls", [True, False])
def test_protons_client_ignores_the_offer_of_a_binding(*, tls: bool) -> None:
    """Cyrus SASL has no binding here, and takes a mechanism without."""
    theirs, peer = protons_client(" ".join((*PLUS, *SCRAM)), "alice", PASSWORD), server(MINE, tls=tls)
    for _ in range(10):
        answer = peer.read(taken(theirs))
        if not answer:
            break
        theirs.push(answer)
    assert re.fullmatch(r"SCRAM-SHA-\d+", peer.sasl.mechanism or "")
    assert SASL(theirs).outcome == SASL.OK
