"""The client's side of SASL, with proton's server on Cyrus SASL and with frames of any order."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import SASL, Data, Described, symbol, ubyte, ulong

from haclient.engine.sasl.client import ClientSasl
from haclient.engine.settings import Settings
from tests.peers.cyrus import write_user_database

PASSWORD = "secr\N{PILE OF POO}t, = \N{LATIN SMALL LIGATURE FI}"
HEADER = b"AMQP\x03\x01\x00\x00"
AMQP = b"AMQP\x00\x01\x00\x00"
MECHANISMS, INIT, CHALLENGE, RESPONSE, OUTCOME = range(0x40, 0x45)


SERVER = """
import sys
import proton

while True:
    size = sys.stdin.buffer.read(4)
    if not size:
        break
    said = sys.stdin.buffer.read(int.from_bytes(size))
    if b" AMQP" in said[:20]:
        name, _, said = said.partition(b" ")
        transport = proton.Transport(proton.Transport.SERVER)
        layer = proton.SASL(transport)
        layer.config_path(sys.argv[1])
        layer.config_name("haclient")
        layer.allow_insecure_mechs = True
        layer.allowed_mechs([name.decode()])
    transport.push(said)
    answer = b""
    while (pending := transport.pending()) > 0:
        answer += bytes(transport.peek(pending) or b"")
        transport.pop(pending)
    sys.stdout.buffer.write(len(answer).to_bytes(4) + answer)
    sys.stdout.buffer.flush()
"""


@contextmanager
def protons_server(folder: Path, *further: str) -> Iterator[Callable[[bytes], bytes]]:
    """Start proton's server on Cyrus SASL, which reads its users once per process."""
    names = ("PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512", *further)
    write_user_database(folder, {"alice": PASSWORD}, names)
    command = [sys.executable, "-c", SERVER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        to, of = process.stdin, process.stdout

        def answer(data: bytes) -> bytes:
            to.write(len(data).to_bytes(4) + data)
            to.flush()
            return of.read(int.from_bytes(of.read(4)))

        yield answer
        to.close()


class Socket:
    """Keeps what the client writes."""

    def __init__(self) -> None:
        self.written = b""

    def get_extra_info(self, _name: str) -> None:
        """Return nothing: there is no TLS."""

    def write(self, data: bytes) -> None:
        self.written += data

    def take(self) -> bytes:
        taken, self.written = self.written, b""
        return taken


def client(*mechanisms: str, password: str = PASSWORD, plaintext: bool = True) -> ClientSasl:
    user = None if "ANONYMOUS" in mechanisms else "alice@cluster"
    return ClientSasl(
        Settings(
            container_id="c",
            hostname="a",
            user=user,
            password=password,
            mechanisms=mechanisms,
            plaintext=plaintext,
        )
    )


def frame(code: int, *fields: object) -> bytes:
    data = Data()
    listed: list[Any] = list(fields)
    data.put_object(Described(ulong(code), listed))
    body = bytes(data.encode())
    return (8 + len(body)).to_bytes(4) + b"\x02\x01\x00\x00" + body


def read(sasl: ClientSasl, data: bytes) -> tuple[bytes, bytes, proton.Condition | None]:
    """Return the answer, the rest and the error."""
    socket = Socket()
    rest, wrong = sasl.read(cast("asyncio.Transport", socket), data)
    return socket.written, rest, wrong


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_protons_server_lets_the_right_password_in(tmp_path: Path, mechanism: str) -> None:
    with protons_server(tmp_path) as server:
        for size in (1, 7, 4096):
            sasl, socket = client(mechanism), Socket()
            rest, said = b"", f"{mechanism} ".encode() + HEADER
            while not sasl.ended:
                answer = server(said)
                for start in range(0, len(answer), size):
                    more, wrong = sasl.read(cast("asyncio.Transport", socket), answer[start : start + size])
                    rest += more
                    assert wrong is None
                said = socket.take()
            assert (sasl.mechanism, sasl.outcome, sasl.user) == (mechanism, SASL.OK, "alice@cluster")
            assert sasl.proved == mechanism.startswith("SCRAM")
            assert AMQP.startswith(rest)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_protons_server_refuses_a_wrong_password(tmp_path: Path, mechanism: str) -> None:
    with protons_server(tmp_path) as server:
        sasl, wrong, said = client(mechanism, password="wrong"), None, f"{mechanism} ".encode() + HEADER
        while wrong is None:
            said, _, wrong = read(sasl, server(said))
    assert wrong.name == "amqp:unauthorized-access"
    assert (sasl.outcome, sasl.mechanism, sasl.user, sasl.proved) == (SASL.AUTH, mechanism, None, False)


def test_without_a_common_mechanism_nothing_is_sent() -> None:
    sasl = client("PLAIN", plaintext=False)
    said, rest, wrong = read(sasl, HEADER + frame(MECHANISMS, symbol("PLAIN")))
    assert (said, rest) == (b"", b"")
    assert wrong is not None
    assert (wrong.name, sasl.offered, sasl.mechanism) == ("amqp:unauthorized-access", ("PLAIN",), None)


def test_an_error_of_scram_is_a_refusal_of_the_credentials() -> None:
    sasl = client("SCRAM-SHA-256")
    _, _, wrong = read(
        sasl, HEADER + frame(MECHANISMS, symbol("SCRAM-SHA-256")) + frame(CHALLENGE, b"e=unknown-user")
    )
    assert wrong is not None
    assert (wrong.name, sasl.outcome, sasl.done) == ("amqp:unauthorized-access", SASL.AUTH, False)


def test_bytes_behind_the_outcome_are_of_amqp() -> None:
    sasl = client("ANONYMOUS")
    data = HEADER + frame(MECHANISMS, symbol("ANONYMOUS")) + frame(OUTCOME, ubyte(0)) + AMQP + b"more"
    said, rest, wrong = read(sasl, data)
    assert wrong is None
    assert rest == AMQP + b"more"
    assert b"ANONYMOUS" in said


@pytest.mark.parametrize("more", [b"\0alice\0secret", HEADER, b"AMQP\x02\x01\x00\x00"])
def test_other_bytes_behind_the_outcome_are_refused_and_not_quoted(more: bytes) -> None:
    sasl = client("PLAIN")
    data = HEADER + frame(MECHANISMS, symbol("PLAIN")) + frame(OUTCOME, ubyte(0)) + more
    _, rest, wrong = read(sasl, data)
    assert rest == b""
    assert wrong is not None
    assert (wrong.name, sasl.done) == ("amqp:connection:framing-error", False)
    assert "secret" not in (wrong.description or "")


def test_amqp_may_be_sent_before_the_peers_header_has_arrived() -> None:
    sasl = client("ANONYMOUS")
    data = HEADER + frame(MECHANISMS, symbol("ANONYMOUS")) + frame(OUTCOME, ubyte(0))
    assert read(sasl, data + AMQP[:5])[1:] == (b"", None)
    assert (sasl.ended, sasl.done) == (True, False)
    assert read(sasl, AMQP[5:])[1:] == (AMQP, None)
    assert sasl.done


_RIGHT = [frame(MECHANISMS, symbol("ANONYMOUS")), frame(OUTCOME, ubyte(0))]
_FRAMES = st.sampled_from(
    [
        frame(MECHANISMS, symbol("ANONYMOUS")),
        frame(CHALLENGE, b""),
        frame(OUTCOME, ubyte(0)),
        frame(OUTCOME, ubyte(1)),
        frame(INIT, symbol("ANONYMOUS"), b""),
        frame(RESPONSE, b""),
        frame(0x10, "an open"),
        AMQP,
        HEADER,
    ]
)


@given(frames=st.lists(_FRAMES | st.binary(max_size=20), max_size=6), size=st.integers(1, 40))
def test_only_an_outcome_that_follows_a_choice_ends_sasl(frames: list[bytes], size: int) -> None:
    sasl, data = client("ANONYMOUS"), HEADER + b"".join(frames)
    for start in range(0, len(data), size):
        _, _, wrong = read(sasl, data[start : start + size])
        if wrong is not None:
            assert not sasl.done
            return
        if sasl.done:
            break
    allowed = frames[:3] == [*_RIGHT, AMQP]
    assert not sasl.done or allowed


def test_a_frame_larger_than_the_bound_is_refused_by_its_header() -> None:
    sasl = client("ANONYMOUS")
    _, _, wrong = read(sasl, HEADER + (65537).to_bytes(4) + b"\x02\x01\x00\x00")
    assert wrong is not None
    assert wrong.name == "amqp:connection:framing-error"
