"""Clients have the names of the user file, and no client acts for another: in separate processes."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import click
import pytest
from proton import SASL

from broker_stub.admission.user_database import DEFAULT_ADMIN, name_error, password_realms, write_users
from broker_stub.cli.options import read_users
from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.sasl import frames as sasl_frames
from tests.broker_stub.admission.test_sasl_required import (
    AMQP_HEADER,
    CLOSE,
    OPEN,
    SASL_HEADER,
    _frame,
    answer,
)
from tests.broker_stub.clients import Client, LinkRefusedError, member
from tests.broker_stub.commands import run

OK, REFUSED = sasl_frames.outcome(SASL.OK), sasl_frames.outcome(SASL.AUTH)
ELSEWHERE = f"{DEFAULT_ADMIN}@mail.example"
PASSWORDS = {DEFAULT_ADMIN: "of the admin", "alice": "wonder"}


@pytest.fixture
async def primary(tmp_path: Path) -> AsyncIterator[Endpoint]:
    """A member whose database has users of another realm too, as ``saslpasswd2`` makes them."""
    users = tmp_path / "users"
    users.mkdir()
    write_users(users, PASSWORDS)
    for realm, name in (("mail.example", DEFAULT_ADMIN), ("a", "alice")):
        command = ["/usr/sbin/saslpasswd2", "-c", "-p", "-f", str(users / "sasldb2"), "-u", realm, name]
        subprocess.run(command, input=b"of mail", check=True)
    async with member(tmp_path, "--users", str(users), "--role", "primary") as address:
        yield address


def init(mechanism: bytes, message: bytes | None) -> bytes:
    response = b"\x40" if message is None else b"\xa0" + bytes((len(message),)) + message
    return _frame(0x41, b"\xa3" + bytes((len(mechanism),)) + mechanism, response, kind=1)


def plain(authority: str, name: str, password: str) -> bytes:
    return f"{authority}\0{name}\0{password}".encode()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256"])
async def test_a_name_with_a_realm_is_nobody(primary: Endpoint, mechanism: str) -> None:
    for user, password in (
        (ELSEWHERE, "of mail"),
        ("alice@a", "of mail"),
        (f"alice@{password_realms()[0]}", PASSWORDS["alice"]),
    ):
        client = await Client().connect(primary, user=user, password=password, mechanisms=(mechanism,))
        assert (await client.end()).condition.name == "amqp:unauthorized-access"


async def test_a_name_without_a_realm_is_not_that_of_another_realm(primary: Endpoint) -> None:
    client = await Client().connect(primary, user="alice", password="of mail", mechanisms=("PLAIN",))
    assert (await client.end()).condition.name == "amqp:unauthorized-access"
    client = await Client().connect(primary, user="alice", password="wonder", mechanisms=("PLAIN",))
    with pytest.raises(LinkRefusedError, match="amqp:unauthorized-access"):
        await client.attach("sender", "s", "$management")
    await client.close()


@pytest.mark.parametrize("in_init", [True, False], ids=["in its choice", "in a response"])
@pytest.mark.parametrize(
    ("authority", "allowed"),
    [("", True), ("alice", True), (DEFAULT_ADMIN, False), ("nobody", False), ("alice@a", False)],
)
async def test_a_client_that_asks_for_the_authority_of_another_name_is_refused(
    primary: Endpoint, authority: str, *, allowed: bool, in_init: bool
) -> None:
    message = plain(authority, "alice", "wonder")
    response = _frame(0x43, b"\xa0" + bytes((len(message),)) + message, kind=1)
    sasl = init(b"PLAIN", message) if in_init else init(b"PLAIN", None) + response
    answered = await answer(primary, None, SASL_HEADER + sasl, AMQP_HEADER + OPEN + CLOSE)
    assert answered.count(AMQP_HEADER) == int(allowed)
    assert OK in answered if allowed else answered.endswith(REFUSED)


def scram_final(header: str, bare: str, server_first: str, password: str) -> bytes:
    """Return the last message of a client that knows the password (RFC 5802, section 3)."""
    fields = dict(part.split("=", 1) for part in server_first.split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    final = f"c={base64.b64encode(header.encode()).decode()},r={fields['r']}"
    key = hmac.digest(salted, b"Client Key", "sha256")
    everything = f"{bare},{server_first},{final}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), everything, "sha256")
    proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
    return f"{final},p={base64.b64encode(proof).decode()}".encode()


@pytest.mark.parametrize(("authority", "allowed"), [("", True), ("alice", True), (DEFAULT_ADMIN, False)])
async def test_scram_gives_the_authority_of_no_other_name(
    primary: Endpoint, authority: str, *, allowed: bool
) -> None:
    """The client knows the password of alice, and proves it."""
    header = f"n,a={authority}," if authority else "n,,"
    bare = "n=alice,r=0123456789"
    reader, writer = await asyncio.open_connection(primary.host, primary.port)
    writer.write(SASL_HEADER + init(b"SCRAM-SHA-256", f"{header}{bare}".encode()))
    said = b""
    async with asyncio.timeout(10):
        while not (found := re.search(rb"r=0123456789[!-~]+,s=[!-~]+,i=\d+", said)):
            said += await reader.read(65536)
        final = scram_final(header, bare, found[0].decode(), "wonder")
        for message in (final, b""):
            writer.write(_frame(0x43, b"\xa0" + bytes((len(message),)) + message, kind=1))
        while OK not in said and REFUSED not in said:
            said += await reader.read(65536)
    writer.close()
    await writer.wait_closed()
    assert (OK in said) == allowed


def test_a_file_with_a_name_that_would_become_another_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "users"
    for line in (f"{ELSEWHERE}:mail", f"{DEFAULT_ADMIN} :mail", "a\x07:mail"):
        file.write_text(f"alice:wonder\n{line}\n")
        with pytest.raises(click.UsageError, match="line 2: the user name"):
            read_users(file)
        with pytest.raises(ValueError, match="the user name"):
            write_users(tmp_path, {line.partition(":")[0]: "mail"})
    assert not (tmp_path / "sasldb2").exists()
    assert not name_error("Ann of accounts, desk 7")


@pytest.mark.parametrize("command", ["serve", "pair"])
async def test_the_command_names_the_line(tmp_path: Path, command: str) -> None:
    file = tmp_path / "users"
    file.write_text(f"{ELSEWHERE}:mail\n")
    result = await run(command, "--users", str(file))
    assert (result.exit_code, "line 1: the user name" in result.stderr) == (2, True)
