"""The server's side of SASL: proton's client on Cyrus SASL judges it, and no lie lets a client in."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import random
from collections.abc import Callable
from typing import Any, cast

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import SASL

from haclient.engine.sasl import frames, users
from haclient.engine.sasl.server import ServerSasl
from haclient.engine.settings import SaslServer
from tests.engine.pair import Owner, opened, serving
from tests.engine.wire.test_frame_order import AMQP, EMPTY, MALFORMED, OPEN, frame, sasl
from tests.engine.wire.test_frame_order import SASL as HEADER

PASSWORDS = {"alice": "wonder", "bob, =2C builder": "a\N{GRINNING FACE}b", "carol@mail": "x" * 300}
SCRAM = tuple(users.DIGESTS)
OFFERED = (*SCRAM, "PLAIN", "ANONYMOUS")
INIT, RESPONSE = sasl(0x41, b"\xc0\x0c\x01\xa3\x09ANONYMOUS"), sasl(0x43, b"\xc0\x03\x01\xa0\x00")


class Known:
    """Users with keys in memory."""

    mechanisms = SCRAM

    def __init__(self, passwords: dict[str, str]) -> None:
        self._passwords = passwords

    def keys(self, mechanism: str, name: str) -> users.ScramKeys:
        password = self._passwords.get(name, random.randbytes(20).hex())
        return users.derive(mechanism, password, hashlib.sha256(name.encode()).digest()[:16], 4096)


class Socket:
    """Keeps what the server writes."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def get_extra_info(self, _name: str) -> None:
        """Return nothing: there is no TLS."""

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def take(self) -> bytes:
        taken, self.written = self.written, b""
        return taken


def server(*mechanisms: str) -> ServerSasl:
    return ServerSasl(SaslServer(mechanisms=mechanisms or OFFERED, users=Known(PASSWORDS)))


def read(negotiation: ServerSasl, socket: Socket, data: bytes) -> tuple[bytes, proton.Condition | None]:
    return negotiation.read(cast("asyncio.Transport", socket), data)


def taken(transport: proton.Transport) -> bytes:
    found = b""
    while (size := transport.pending()) > 0:
        found += bytes(transport.peek(size) or b"")
        transport.pop(size)
    return found


def protons_client(mechanism: str, user: str, password: str) -> proton.Transport:
    transport, connection = proton.Transport(), proton.Connection()
    layer = SASL(transport)
    layer.allow_insecure_mechs = True
    layer.allowed_mechs([mechanism])
    connection.user, connection.password = user, password
    transport.bind(connection)
    return transport


def talk(mechanism: str, user: str, password: str, size: int) -> tuple[ServerSasl, Socket, proton.Transport]:
    """Let proton's client log in, with pieces of that many bytes."""
    client, negotiation, socket = protons_client(mechanism, user, password), server(), Socket()
    rest = b""
    for _ in range(10):
        said = taken(client)
        for start in range(0, len(said), size):
            more, refused = read(negotiation, socket, said[start : start + size])
            rest += more
            if refused is not None:
                break
        answer = socket.take()
        if not answer:
            break
        client.push(answer)
    assert AMQP.startswith(rest[:8])
    return negotiation, socket, client


@pytest.mark.parametrize("size", [1, 7, 4096])
@pytest.mark.parametrize("mechanism", [*SCRAM, "PLAIN"])
def test_protons_client_logs_in(mechanism: str, size: int) -> None:
    for user, password in PASSWORDS.items():
        negotiation, socket, client = talk(mechanism, user, password, size)
        assert negotiation.done
        assert negotiation.login is not None
        assert (negotiation.mechanism, negotiation.user) == (mechanism, user)
        assert SASL(client).outcome == SASL.OK
        assert not socket.closed


@pytest.mark.parametrize("mechanism", [*SCRAM, "PLAIN"])
@pytest.mark.parametrize(
    ("user", "password"), [("alice", "wrong"), ("nobody", "wonder"), ("alice", "wonder ")]
)
def test_protons_client_is_refused(mechanism: str, user: str, password: str) -> None:
    negotiation, socket, client = talk(mechanism, user, password, 4096)
    assert negotiation.login is None
    assert not negotiation.done
    assert SASL(client).outcome == SASL.AUTH
    assert socket.closed


def test_protons_client_without_a_name_is_anonymous() -> None:
    client, negotiation, socket = proton.Transport(), server(), Socket()
    SASL(client).allowed_mechs(["ANONYMOUS"])
    client.bind(proton.Connection())
    while not negotiation.done:
        read(negotiation, socket, taken(client))
        client.push(socket.take())
    assert negotiation.mechanism == "ANONYMOUS"


# -- SCRAM by hand ----------------------------------------------------------------------------------

# RFC 5802, section 5, and RFC 7677, section 3: user and pencil.
_VECTORS = {
    "SCRAM-SHA-1": (
        "QSXCR+Q6sek8bf92",
        "n=user,r=fyko+d2lbbFgONRv9qkxdawL",
        "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j",
        "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        "rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    "SCRAM-SHA-256": (
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        "n=user,r=rOprNGfwEbeRWgbNEkqO",
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
}


@pytest.mark.parametrize("mechanism", _VECTORS)
def test_the_keys_prove_the_vectors_of_the_standards(mechanism: str) -> None:
    salt, first, nonce, proof, signature = _VECTORS[mechanism]
    keys = users.derive(mechanism, "pencil", base64.b64decode(salt), 4096)
    everything = f"{first},{nonce},s={salt},i=4096,c=biws,{nonce}".encode()
    digest = users.DIGESTS[mechanism]
    mask = hmac.digest(keys.stored_key, everything, digest)
    client_key = bytes(a ^ b for a, b in zip(mask, base64.b64decode(proof), strict=True))
    assert hashlib.new(digest, client_key).digest() == keys.stored_key
    assert hmac.digest(keys.server_key, everything, digest) == base64.b64decode(signature)


def proof(mechanism: str, first: bytes, challenge: bytes, password: str) -> bytes:
    """Return the last message of a client that knows the password (RFC 5802, section 3)."""
    header, bare = first[: first.index(b"n=")], first[first.index(b"n=") :]
    fields = dict(part.split(b"=", 1) for part in challenge.split(b","))
    digest = users.DIGESTS[mechanism]
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(fields[b"s"]), int(fields[b"i"]))
    final = b"c=" + base64.b64encode(header) + b",r=" + fields[b"r"]
    key = hmac.digest(salted, b"Client Key", digest)
    mask = hmac.digest(hashlib.new(digest, key).digest(), b",".join((bare, challenge, final)), digest)
    return final + b",p=" + base64.b64encode(bytes(a ^ b for a, b in zip(key, mask, strict=True)))


def challenged(negotiation: ServerSasl, socket: Socket, mechanism: str, first: bytes) -> bytes:
    """Return the server's first message."""
    read(negotiation, socket, HEADER + frames.init(mechanism, first, None))
    answer = socket.take()[8:]
    while (code := frames.read_of_server(answer[8:])[0]) != frames.CHALLENGE:
        assert code == frames.MECHANISMS
        answer = answer[int.from_bytes(answer[:4]) :]
    return frames.message(frames.read_of_server(answer[8:])[1][0])


def _flipped(final: bytes) -> bytes:
    """Return another proof of the same length."""
    start = final.index(b",p=") + 3
    raw = bytearray(base64.b64decode(final[start:]))
    raw[random.randrange(len(raw))] ^= 1 << random.randrange(8)
    return final[:start] + base64.b64encode(bytes(raw))


LIES: dict[str, Callable[[bytes], bytes]] = {
    "no proof": lambda final: final[: final.index(b",p=")],
    "an empty proof": lambda final: final[: final.index(b",p=")] + b",p=",
    "a proof of one byte": lambda final: final[: final.index(b",p=")] + b",p=AA==",
    "a proof that differs in one bit": _flipped,
    "another nonce": lambda final: final.replace(b"r=client", b"r=Client"),
    "a nonce of its own": lambda final: b"c=biws,r=client" + final[final.index(b",p=") :],
    "another header": lambda final: final.replace(b"c=biws", b"c=eSws"),
    "nothing": lambda _: b"",
    "no text": lambda _: b"\xff\xfe",
    "an extension": lambda final: final.replace(b",p=", b",m=1,p="),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
@pytest.mark.parametrize("mechanism", SCRAM)
def test_a_client_that_lies_about_its_proof_is_refused(mechanism: str, lie: Callable[[bytes], bytes]) -> None:
    negotiation, socket = server(), Socket()
    first = b"n,,n=alice,r=client"
    final = proof(mechanism, first, challenged(negotiation, socket, mechanism, first), "wonder")
    _, refused = read(negotiation, socket, frames.response(lie(final)) + frames.response(b""))
    assert refused is not None
    assert refused.name == "amqp:unauthorized-access"
    assert (negotiation.login, socket.closed) == (None, True)
    assert socket.take().endswith(frames.outcome(SASL.AUTH))


@pytest.mark.parametrize("mechanism", SCRAM)
def test_a_recorded_proof_does_not_serve_again(mechanism: str) -> None:
    first = b"n,,n=alice,r=client"
    negotiation, socket = server(), Socket()
    final = proof(mechanism, first, challenged(negotiation, socket, mechanism, first), "wonder")
    again, other = server(), Socket()
    challenged(again, other, mechanism, first)
    _, refused = read(again, other, frames.response(final))
    assert refused is not None
    _, refused = read(negotiation, socket, frames.response(final) + frames.response(b"") + AMQP)
    assert (refused, negotiation.user) == (None, "alice")


@pytest.mark.parametrize(
    "first",
    [
        b"n,,n=alice,r=", b"n,,n=alice", b"n,,n=,r=c", b"n,,n=a=2G,r=c", b"n,,m=1,n=alice,r=c",
        b"n,,n=alice,r=c,x=1", b"n,a=alice,n=alice,r=c", b"p=tls-unique,,n=alice,r=c", b"n,,n=a\xff,r=c",
        b"n,,n=alice,r=" + b"c" * 300, b"n,,n=" + b"a" * 2000 + b",r=c", b"n,,n=a\0,r=c", b"",
    ],
)  # fmt: skip
def test_another_first_message_is_refused(first: bytes) -> None:
    negotiation, socket = server(), Socket()
    _, refused = read(negotiation, socket, HEADER + frames.init("SCRAM-SHA-256", first, None))
    assert refused is not None
    assert (negotiation.login, socket.closed) == (None, True)


# -- PLAIN -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "user"),
    [
        (b"\0alice\0wonder", "alice"),
        (b"alice\0alice\0wonder", "alice"),
        (b"bob\0alice\0wonder", None),
        (b"\0alice\0", None),
        (b"\0\0", None),
        (b"", None),
        (b"alice\0wonder", None),
        (b"\0alice\0wonder\0", None),
        (b"\0alice\xff\0wonder", None),
        (b"\0alice\0" + b"x" * 60_000, None),
    ],
)
@pytest.mark.parametrize("in_init", [True, False])
def test_plain(message: bytes, user: str | None, *, in_init: bool) -> None:
    negotiation, socket = server(), Socket()
    said = HEADER + frames.init("PLAIN", message if in_init else None, None)
    said += b"" if in_init else frames.response(message)
    _, refused = read(negotiation, socket, said)
    assert negotiation.user == user
    assert (refused is None) == (user is not None)


# -- the order of frames --------------------------------------------------------------------------

RIGHT = (
    HEADER + INIT + AMQP + OPEN + EMPTY,
    HEADER + sasl(0x41, b"\xc0\x0c\x01\xa3\x09ANONYMOUS", wide=True) + AMQP + OPEN,
    HEADER + sasl(0x41, b"\xc0\x0c\x01\xa3\x09ANONYMOUS", extended=b"text") + AMQP + OPEN,
)
WRONG = (
    HEADER + RESPONSE,
    HEADER + sasl(0x41),
    HEADER + sasl(0x40),
    HEADER + sasl(0x43, wide=True),
    HEADER + sasl(0x43, extended=b"text"),
    HEADER + frame(b"\x00\xa3\x09sasl-init\x45", kind=1),
    HEADER + INIT + INIT,
    HEADER + INIT + HEADER,
    HEADER + AMQP,
    *MALFORMED,
)
OUT_OF_ORDER = HEADER + frames.init("PLAIN", None, None) + INIT
CUTS = st.lists(st.integers(0, 200), max_size=12)


def in_pieces(data: bytes, cuts: list[int]) -> tuple[ServerSasl, bytes, proton.Condition | None]:
    negotiation, socket, start, rest = server(), Socket(), 0, b""
    for end in (*sorted(cut % len(data) for cut in cuts), len(data)):
        if negotiation.done:
            return negotiation, rest + data[start:], None
        more, refused = read(negotiation, socket, data[start:end])
        rest, start = rest + more, end
        if refused is not None:
            return negotiation, rest, refused
    return negotiation, rest, None


@given(st.sampled_from(RIGHT), CUTS)
def test_the_standard_s_order_passes(data: bytes, cuts: list[int]) -> None:
    negotiation, rest, refused = in_pieces(data, cuts)
    assert (refused, negotiation.mechanism) == (None, "ANONYMOUS")
    assert rest == data[data.index(AMQP) :]


@given(st.sampled_from((*WRONG, OUT_OF_ORDER)), CUTS)
def test_any_other_is_an_error(data: bytes, cuts: list[int]) -> None:
    negotiation, rest, refused = in_pieces(data, cuts)
    assert refused is not None
    assert (refused.name, rest, negotiation.done) == ("amqp:connection:framing-error", b"", False)


def test_an_error_says_that_amqp_came_too_early() -> None:
    _, _, refused = in_pieces(HEADER + AMQP, [])
    assert refused is not None
    assert "AMQP before the outcome of SASL" in refused.description


@pytest.mark.parametrize(("mechanisms", "allowed"), [(("PLAIN",), False), (("PLAIN", "ANONYMOUS"), True)])
def test_sasl_may_be_left_out_only_where_nobody_needs_a_name(
    mechanisms: tuple[str, ...], *, allowed: bool
) -> None:
    negotiation, socket = server(*mechanisms), Socket()
    rest, refused = read(negotiation, socket, AMQP + OPEN)
    assert (negotiation.done, rest) == ((True, AMQP + OPEN) if allowed else (False, b""))
    assert (refused is None) == allowed
    assert (negotiation.login, socket.written) == (None, b"")


@pytest.mark.parametrize("sent", [*WRONG, AMQP + sasl(0x41), HEADER + INIT + AMQP + OPEN + RESPONSE])
async def test_a_server_ends_that_connection_and_serves_the_next(sent: bytes) -> None:
    async with serving() as (peer, owners):
        _, writer = await asyncio.open_connection(peer.host, peer.port)
        writer.write(sent)
        await owners[0].until(lambda: owners[0].close_reasons)
        writer.close()
        assert owners[0].close_reasons[0].condition is not None
        assert owners[0].close_reasons[0].condition.name == "amqp:connection:framing-error"
        other = Owner()
        engine = await opened(other, peer.host, peer.port)
        await other.until(lambda: other.session)
        engine.abort()


_MESSAGES = st.sampled_from([b"\0alice\0wrong", b"n,,n=alice,r=abc", b"c=biws,r=abc,p=AAAA", b"", None])
_STEPS = st.one_of(
    st.tuples(st.just(frames.init), st.sampled_from([*SCRAM, "PLAIN", "EXTERNAL", "GSSAPI", ""]), _MESSAGES),
    st.tuples(st.just(frames.response), st.just(""), _MESSAGES),
)


@given(st.lists(_STEPS, max_size=6), st.binary(max_size=20), CUTS)
def test_no_sequence_of_frames_lets_a_client_in_that_knows_no_password(
    steps: list[tuple[Any, str, bytes | None]], noise: bytes, cuts: list[int]
) -> None:
    data = HEADER
    for make, name, message in steps:
        data += frames.init(name, message, None) if make is frames.init else frames.response(message or b"")
    negotiation, rest, _ = in_pieces(data + noise + AMQP, cuts)
    assert (negotiation.login, negotiation.done, rest) == (None, False, b"")


def test_only_what_is_possible_is_offered() -> None:
    for named in (("PLAIN",), ("EXTERNAL", "SCRAM-SHA-256"), ("DIGEST-MD5",)):
        negotiation, socket = ServerSasl(SaslServer(mechanisms=named)), Socket()
        read(negotiation, socket, HEADER)
        assert frames.names(frames.read_of_server(socket.take()[16:])[1][0]) == ()
