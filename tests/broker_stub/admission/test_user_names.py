"""Clients have the names of the user file, and no client acts for another: in separate processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import click
import pytest
from proton import SASL

from broker_stub.admission.user_file import DEFAULT_ADMIN, name_error, write_users
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
PASSWORDS = {DEFAULT_ADMIN: "of the admin", "alice": "wonder", ELSEWHERE: "of mail"}


@pytest.fixture
async def primary(tmp_path: Path) -> AsyncIterator[Endpoint]:
    """A member with a user whose name begins with the name of the cluster-admin."""
    write_users(tmp_path / "users", PASSWORDS)
    async with member(tmp_path, "--users", str(tmp_path / "users"), "--role", "primary") as address:
        yield address


def init(mechanism: bytes, message: bytes | None) -> bytes:
    response = b"\x40" if message is None else b"\xa0" + bytes((len(message),)) + message
    return _frame(0x41, b"\xa3" + bytes((len(mechanism),)) + mechanism, response, kind=1)


def plain(authority: str, name: str, password: str) -> bytes:
    return f"{authority}\0{name}\0{password}".encode()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_name_is_nothing_but_itself(primary: Endpoint, mechanism: str) -> None:
    for user, password in (
        (ELSEWHERE, PASSWORDS[DEFAULT_ADMIN]),
        (DEFAULT_ADMIN, "of mail"),
        ("Alice", "wonder"),
    ):
        client = await Client().connect(primary, user=user, password=password, mechanisms=(mechanism,))
        assert (await client.end()).condition.name == "amqp:unauthorized-access"
    client = await Client().connect(primary, user=ELSEWHERE, password="of mail", mechanisms=(mechanism,))
    with pytest.raises(LinkRefusedError, match="amqp:unauthorized-access"):
        await client.attach("sender", "s", "$management")
    await client.close()


@pytest.mark.parametrize("in_init", [True, False], ids=["in its choice", "in a response"])
@pytest.mark.parametrize(
    ("authority", "allowed"),
    [("", True), ("alice", True), (DEFAULT_ADMIN, False), ("nobody", False), (ELSEWHERE, False)],
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


@pytest.mark.parametrize("line", [f"{DEFAULT_ADMIN} :mail", "a\x07:mail", "\N{LATIN SMALL LIGATURE FI}:mail"])
def test_a_name_that_a_client_cannot_send_is_refused(tmp_path: Path, line: str) -> None:
    file = tmp_path / "users"
    file.write_text(f"alice:wonder\n{line}\n")
    with pytest.raises(click.UsageError, match="line 2: the user name"):
        read_users(file)
    with pytest.raises(ValueError, match="the user name"):
        write_users(tmp_path / "others", {line.partition(":")[0]: "mail"})


def test_other_names_are_allowed() -> None:
    for name in ("Ann of accounts, desk 7", "a@b", "a=b", "J\N{LATIN SMALL LETTER O WITH DIAERESIS}rg"):
        assert not name_error(name)


@pytest.mark.parametrize("command", ["serve", "pair"])
async def test_the_command_names_the_line(tmp_path: Path, command: str) -> None:
    file = tmp_path / "users"
    file.write_text("a\x07:mail\n")
    result = await run(command, "--users", str(file))
    assert (result.exit_code, "line 1: the user name" in result.stderr) == (2, True)
