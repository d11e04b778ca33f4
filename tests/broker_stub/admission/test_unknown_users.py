"""A member does not reveal its users: it answers an unknown name as it answers a name of the file."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from proton import SASL

from broker_stub.admission.user_file import write_users
from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.sasl import frames as sasl_frames
from tests.broker_stub.admission.test_sasl_required import SASL_HEADER, _frame
from tests.broker_stub.admission.test_user_names import init, plain
from tests.broker_stub.clients import Client, member

REFUSED = sasl_frames.outcome(SASL.AUTH)
# Of equal length on purpose.
KNOWN, UNKNOWN = "alice", "nobod"
SCRAM = ["SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512"]
_CHALLENGE = re.compile(rb"r=0123456789([!-+\--~]+),s=([!-+\--~]+),i=(\d+)")


@pytest.fixture
async def primary(tmp_path: Path) -> AsyncIterator[Endpoint]:
    write_users(tmp_path / "users", {KNOWN: "wonder"})
    async with member(tmp_path, "--users", str(tmp_path / "users"), "--role", "primary") as address:
        yield address


async def talk(address: Endpoint, *messages: bytes) -> list[bytes]:
    """Return the member's answer to each; the connection ends with the last."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    answers, ended = [], False
    try:
        async with asyncio.timeout(10):
            writer.write(SASL_HEADER)
            await reader.readexactly(8)
            for message in (b"", *messages):
                writer.write(message)
                size = await reader.read(4) if not ended else b""
                ended = not size
                answers.append(size and size + await reader.readexactly(int.from_bytes(size) - 4))
    finally:
        writer.transport.abort()
    return answers[1:]


def response(message: bytes) -> bytes:
    return _frame(0x43, b"\xa0" + bytes((len(message),)) + message, kind=1)


def shape(answer: bytes) -> bytes:
    """Return an answer without its random parts and its name."""

    def same(found: re.Match[bytes]) -> bytes:
        return b"r=,%d,s=%d,i=%b" % (len(found[1]), len(found[2]), found[3])

    return _CHALLENGE.sub(same, answer)


@pytest.mark.parametrize("mechanism", SCRAM)
@pytest.mark.parametrize("in_init", [True, False], ids=["in its choice", "in a response"])
async def test_the_answers_to_scram_do_not_depend_on_whether_a_user_exists(
    primary: Endpoint, mechanism: str, *, in_init: bool
) -> None:
    shapes = []
    for name in (KNOWN, UNKNOWN):
        first = f"n,,n={name},r=0123456789".encode()
        choice = init(mechanism.encode(), first if in_init else None)
        more = () if in_init else (response(first),)
        final = response(b"c=biws,r=0123456789,p=AAAA")
        shapes.append([shape(answer) for answer in await talk(primary, choice, *more, final)])
    assert shapes[0] == shapes[1]
    assert shapes[0][-1] == REFUSED


@pytest.mark.parametrize("mechanism", SCRAM)
async def test_the_salt_of_a_name_stays_the_same(primary: Endpoint, mechanism: str) -> None:
    salts = {}
    for name in (KNOWN, UNKNOWN, UNKNOWN + " ", "other"):
        choice = init(mechanism.encode(), f"n,,n={name},r=0123456789".encode())
        found = [_CHALLENGE.search((await talk(primary, choice))[0]) for _ in range(2)]
        salts[name] = {match[2] for match in found if match is not None}
    assert all(len(each) == 1 for each in salts.values())
    assert len({min(each) for each in salts.values()}) == len(salts)


@pytest.mark.parametrize(
    "message",
    [
        "n,,n={},r=",
        "n,,n={}",
        "n,,n={},r=abc,x=1",
        "n,,m=1,n={},r=abc",
        "p=tls-unique,,n={},r=abc",
        "n,,n={},r=a\x80",
        "n,,n={}=2G,r=abc",
        "",
    ],
)
async def test_an_odd_first_message_is_answered_alike_for_all_names(primary: Endpoint, message: str) -> None:
    answers = [
        await talk(primary, init(b"SCRAM-SHA-256", message.format(name).encode("latin-1")))
        for name in (KNOWN, UNKNOWN)
    ]
    assert answers[0] == answers[1]


async def test_the_answer_to_plain_does_not_depend_on_whether_a_user_exists(primary: Endpoint) -> None:
    answers = [await talk(primary, init(b"PLAIN", plain("", name, "wrong"))) for name in (KNOWN, UNKNOWN)]
    assert answers[0] == answers[1] == [REFUSED]


@pytest.mark.parametrize("mechanism", SCRAM)
async def test_a_client_of_an_unknown_user_gets_the_error_of_a_wrong_password(
    primary: Endpoint, mechanism: str, tmp_path: Path
) -> None:
    """The log names the client's address."""
    for user in (KNOWN, UNKNOWN):
        client = await Client().connect(primary, user=user, password="x", mechanisms=(mechanism,))
        assert (await client.end()).condition.name == "amqp:unauthorized-access"
    line = re.compile(r"from 127\.0\.0\.1:\d+ ended: .*the client did not prove who it is")
    async with asyncio.timeout(10):  # a member writes the line after its Close
        while len(line.findall((tmp_path / "member.log").read_text())) < 2:  # noqa: ASYNC110 - of a file
            await asyncio.sleep(0.01)
