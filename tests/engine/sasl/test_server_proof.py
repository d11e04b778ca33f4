"""With SCRAM the client refuses a peer without the password, whatever it sends, and no other peer.

The server is written by hand after RFC 5802, with hashlib for its computations.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import UNDESCRIBED, Array, Data, symbol, ubyte, uint, ushort

from haclient import aio
from haclient.engine.sasl.mechanisms import (
    FEWEST_ITERATIONS,
    MOST_ITERATIONS,
    UNPROVEN,
    WRONG_ITERATIONS,
)
from haclient.errors import AuthenticationFailed, HaclientError
from tests.broker_stub import raw_client as raw
from tests.certificates import Authority

PASSWORD = "the password of alice"
SALT, ROUNDS = b"salt of alice", 4096
SASL_HEADER, AMQP_HEADER = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
MECHANISMS, CHALLENGE, OUTCOME = 0x40, 0x42, 0x44
FAILED, SUCCEEDED = ubyte(1), ubyte(0)


def sasl(code: int, *fields: object) -> bytes:
    return raw.frame(code, fields, kind=1)


def mechanisms(name: str) -> bytes:
    return sasl(MECHANISMS, symbol(name))


# The first bytes of Begin and Close; no other frame that a client sends here has such bytes.
BEGIN, CLOSE = b"\x00\x53\x11", b"\x00\x53\x18"
OPEN = AMQP_HEADER + raw.frame(raw.OPEN, ["the peer"])


@dataclass
class Conversation:
    """SCRAM up to the client's proof, from a server that knows the password."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    digest: str
    iterations: bytes = b"%d" % ROUNDS
    proof: bytes = b""
    answered: bool = False
    heard: bytearray = field(default_factory=bytearray)

    async def frame(self) -> bytes:
        size = await self.reader.readexactly(4)
        data = await self.reader.readexactly(int.from_bytes(size) - 4)
        self.heard += data
        return data

    async def start(self) -> None:
        """Run from the header to the client-final-message; ``proof`` is the server-final-message then."""
        assert await self.reader.readexactly(8) == SASL_HEADER
        self.writer.write(SASL_HEADER + mechanisms(f"SCRAM-{self.digest}"))
        init = await self.frame()
        bare = init[init.index(b"n=") :]  # the last field except the host's name
        bare = bare[: bare.index(b",r=") + 3 + _length_of_nonce(bare)]
        nonce = bare.partition(b",r=")[2] + b"server"
        first = b"r=%s,s=%s,i=%s" % (nonce, base64.b64encode(SALT), self.iterations)
        self.writer.write(sasl(CHALLENGE, first))
        final = await self.frame()
        self.answered = True
        without_proof = final[final.index(b"c=") : final.index(b",p=")]
        name = self.digest.replace("-", "").lower()
        salted = hashlib.pbkdf2_hmac(name, PASSWORD.encode(), SALT, int(self.iterations))
        key = hmac.digest(salted, b"Server Key", name)
        signature = hmac.digest(key, b",".join((bare, first, without_proof)), name)
        self.proof = b"v=" + base64.b64encode(signature)


def _length_of_nonce(bare: bytes) -> int:
    """Find its end: base64 or not, it has no comma; a constructor or the end follows."""
    text = bare.partition(b",r=")[2]
    return next((i for i, byte in enumerate(text) if not 0x21 <= byte <= 0x7E or byte == 0x2C), len(text))


Play = Callable[[Conversation], Awaitable[None]]


async def in_two_steps(talk: Conversation) -> None:
    await talk.start()
    talk.writer.write(sasl(CHALLENGE, talk.proof))
    await talk.frame()
    talk.writer.write(sasl(OUTCOME, SUCCEEDED) + OPEN)


async def at_once(talk: Conversation) -> None:
    await talk.start()
    talk.writer.write(sasl(CHALLENGE, talk.proof) + sasl(OUTCOME, SUCCEEDED) + OPEN)


async def in_the_outcome(talk: Conversation) -> None:
    await talk.start()
    talk.writer.write(sasl(OUTCOME, SUCCEEDED, talk.proof) + OPEN)


async def byte_by_byte(talk: Conversation) -> None:
    await talk.start()
    for byte in sasl(OUTCOME, SUCCEEDED, talk.proof) + OPEN:
        talk.writer.write(bytes((byte,)))
        await talk.writer.drain()


async def both(talk: Conversation) -> None:
    await talk.start()
    talk.writer.write(sasl(CHALLENGE, talk.proof))
    await talk.frame()
    talk.writer.write(sasl(OUTCOME, SUCCEEDED, talk.proof) + OPEN)


WRONG = b"v=" + base64.b64encode(bytes(32))


def lie(*frames: bytes) -> Play:
    async def play(talk: Conversation) -> None:
        await talk.start()
        talk.writer.write(b"".join(frames) + OPEN)

    return play


async def nothing_is_awaited(talk: Conversation) -> None:
    first = sasl(CHALLENGE, b"r=rogue,s=c2FsdA==,i=4096")
    names = SASL_HEADER + mechanisms("SCRAM-SHA-256")
    talk.writer.write(names + first + sasl(CHALLENGE, WRONG) + sasl(OUTCOME, SUCCEEDED, WRONG) + OPEN)
    await talk.reader.read()


async def one_step_is_left_out(talk: Conversation) -> None:
    assert await talk.reader.readexactly(8) == SASL_HEADER
    talk.writer.write(SASL_HEADER + mechanisms("SCRAM-SHA-256"))
    await talk.frame()
    talk.writer.write(sasl(CHALLENGE, WRONG) + sasl(OUTCOME, SUCCEEDED) + OPEN)


async def no_step_at_all(talk: Conversation) -> None:
    assert await talk.reader.readexactly(8) == SASL_HEADER
    talk.writer.write(SASL_HEADER + mechanisms("SCRAM-SHA-256"))
    await talk.frame()
    talk.writer.write(sasl(OUTCOME, SUCCEEDED) + OPEN)


async def after_mechanisms_that_are_not_ascii(talk: Conversation) -> None:
    """proton takes the list, which Python does not decode."""
    assert await talk.reader.readexactly(8) == SASL_HEADER
    listed = sasl(MECHANISMS, Array(UNDESCRIBED, Data.SYMBOL, symbol("SCRAM-SHA-256"), symbol("XXXX")))
    talk.writer.write(SASL_HEADER + listed.replace(b"XXXX", random.choice((b"\xff\xff", b"\xc3\x28")) * 2))
    await talk.frame()
    talk.writer.write(sasl(OUTCOME, SUCCEEDED) + OPEN)


async def a_wrong_one_in_a_step_of_its_own(talk: Conversation) -> None:
    await talk.start()
    talk.writer.write(sasl(CHALLENGE, WRONG))
    await talk.writer.drain()
    talk.writer.write(sasl(OUTCOME, SUCCEEDED) + OPEN)


async def one_for_another_conversation(talk: Conversation) -> None:
    await talk.start()
    talk.digest = "SHA-512"
    talk.writer.write(sasl(OUTCOME, SUCCEEDED, b"v=" + base64.b64encode(talk.proof)) + OPEN)


async def no_outcome(talk: Conversation) -> None:
    await talk.start()
    talk.writer.write(OPEN)


LIES: dict[str, Play] = {
    "none": lie(sasl(OUTCOME, SUCCEEDED)),
    "empty": lie(sasl(OUTCOME, SUCCEEDED, b"")),
    "wrong, in the outcome": lie(sasl(OUTCOME, SUCCEEDED, WRONG)),
    "wrong, as a challenge": lie(sasl(CHALLENGE, WRONG), sasl(OUTCOME, SUCCEEDED)),
    "wrong, as a challenge and in the outcome": lie(sasl(CHALLENGE, WRONG), sasl(OUTCOME, SUCCEEDED, WRONG)),
    "an empty challenge": lie(sasl(CHALLENGE, b""), sasl(OUTCOME, SUCCEEDED)),
    "another step": a_wrong_one_in_a_step_of_its_own,
    "another conversation": one_for_another_conversation,
    "nothing is awaited": nothing_is_awaited,
    "one step is left out": one_step_is_left_out,
    "no step at all": no_step_at_all,
    "after mechanisms that are not ASCII": after_mechanisms_that_are_not_ascii,
}
MALFORMED: dict[str, Play] = {
    "no code": lie(sasl(OUTCOME)),
    "a code that is no ubyte": lie(sasl(OUTCOME, uint(0))),
    "a code that is null": lie(sasl(OUTCOME, None, WRONG)),
    "a text for a code": lie(sasl(OUTCOME, "no")),
    "no outcome": no_outcome,
}
TRUTHS = (in_two_steps, at_once, in_the_outcome, byte_by_byte, both)
DIGESTS = ("SHA-1", "SHA-256", "SHA-512")


@asynccontextmanager
async def peer(play: Play, digest: str = "SHA-256", tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Start a server that answers each client so; return its ``host:port``."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = Conversation(reader, writer, digest)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            await play(talk)
            while data := await reader.read(65536):
                if BEGIN in data:
                    writer.write(raw.frame(raw.BEGIN, [ushort(0), uint(0), raw.WINDOW, raw.WINDOW]))
                if CLOSE in data:
                    writer.write(raw.frame(raw.CLOSE, []))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def url(address: str, scheme: str = "amqp", **options: str) -> str:
    given = "&".join(f"{name}={value}" for name, value in {"max_attempts": "1", **options}.items())
    return f"{scheme}://alice:{PASSWORD.replace(' ', '%20')}@{address}?{given}"


@pytest.mark.parametrize("digest", DIGESTS)
@pytest.mark.parametrize("play", TRUTHS, ids=lambda play: play.__name__)
async def test_a_server_that_knows_the_password_is_accepted(play: Play, digest: str) -> None:
    async with peer(play, digest) as address, asyncio.timeout(20), aio.connect(url(address)) as connection:
        assert connection.endpoint is not None


@pytest.mark.parametrize("play", LIES.values(), ids=LIES)
async def test_a_server_that_does_not_know_it_is_refused(play: Play) -> None:
    async with peer(play) as address, asyncio.timeout(20):
        with pytest.raises(AuthenticationFailed) as caught:
            await aio.connect(url(address))
    assert caught.value.code == "unproven-server"
    assert UNPROVEN in str(caught.value)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("play", MALFORMED.values(), ids=MALFORMED)
async def test_an_outcome_that_is_none_gets_no_open(play: Play) -> None:
    talks: list[Conversation] = []

    async def noted(talk: Conversation) -> None:
        talks.append(talk)
        await play(talk)

    async with peer(noted) as address, asyncio.timeout(20):
        with pytest.raises(HaclientError):
            await aio.connect(url(address))
    [talk] = talks
    assert talk.answered
    assert b"\x00\x53\x10" not in talk.heard


async def test_an_error_of_scram_is_a_refused_password() -> None:
    async with peer(lie(sasl(CHALLENGE, b"e=invalid-proof"), sasl(OUTCOME, SUCCEEDED))) as address:
        with pytest.raises(AuthenticationFailed) as caught:
            await aio.connect(url(address))
    assert UNPROVEN not in str(caught.value)
    assert caught.value.mechanism == "SCRAM-SHA-256"


def with_iterations(count: bytes, talks: list[Conversation]) -> Play:
    async def play(talk: Conversation) -> None:
        talk.iterations = count
        talks.append(talk)
        await in_two_steps(talk)

    return play


@pytest.mark.parametrize("digest", DIGESTS)
@pytest.mark.parametrize("count", [FEWEST_ITERATIONS, MOST_ITERATIONS])
async def test_the_fewest_and_the_most_iterations_are_computed(count: int, digest: str) -> None:
    play = with_iterations(b"%d" % count, [])
    async with peer(play, digest) as address, asyncio.timeout(20), aio.connect(url(address)) as connection:
        assert connection.endpoint is not None


# Cyrus refuses some as well, with its own text; the client may answer none of them.
COUNTS = (
    *(b"0", b"1", b"4095", b"65537", b"%d" % 2**31, b"%d" % 2**64, b"9" * 1000),
    *(b"", b"-1", b"+4096", b" 4096", b"4096 ", b"0x1000", b"4096\x00", b"1,i=4096", b"4096,i=1", b"4e3"),
)


async def refusal_of(count: bytes, digest: str) -> AuthenticationFailed:
    talks: list[Conversation] = []
    async with peer(with_iterations(count, talks), digest) as address, asyncio.timeout(20):
        with pytest.raises(AuthenticationFailed) as caught:
            await aio.connect(url(address))
    assert talks
    assert not any(talk.answered for talk in talks)
    return caught.value


@pytest.mark.parametrize("digest", DIGESTS)
@pytest.mark.parametrize("count", COUNTS, ids=lambda count: ascii(count[:12]))
async def test_any_other_number_of_iterations_is_not_answered(count: bytes, digest: str) -> None:
    error = await refusal_of(count, digest)
    assert error.code == "scram-iterations"
    assert WRONG_ITERATIONS in str(error)
    assert len(str(error).splitlines()[0]) < 300


@given(count=st.integers(-(2**70), FEWEST_ITERATIONS - 1) | st.integers(MOST_ITERATIONS + 1, 2**70))
@settings(max_examples=20, deadline=None)
def test_no_number_outside_the_bounds_is_answered(count: int) -> None:
    assert asyncio.run(refusal_of(b"%d" % count, "SHA-256")).code == "scram-iterations"


@pytest.mark.parametrize("play", [in_two_steps, in_the_outcome], ids=lambda play: play.__name__)
async def test_within_tls_as_well(tmp_path: Path, play: Play) -> None:
    certificate = Authority(tmp_path).issue("127.0.0.1")
    options = {"scheme": "amqps", "tls_ca": str(certificate.authority.file)}
    async with peer(play, tls=certificate.server_context()) as address, asyncio.timeout(20):
        connection = await aio.connect(url(address, **options))
        await connection.close()
    async with peer(LIES["none"], tls=certificate.server_context()) as address, asyncio.timeout(20):
        with pytest.raises(AuthenticationFailed, match=UNPROVEN):
            await aio.connect(url(address, **options))


async def test_a_password_that_the_server_refuses_is_a_refused_password() -> None:
    async with peer(lie(sasl(OUTCOME, FAILED))) as address, asyncio.timeout(20):
        with pytest.raises(AuthenticationFailed) as caught:
            await aio.connect(url(address))
    assert UNPROVEN not in str(caught.value)
