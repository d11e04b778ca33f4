"""Azure's client of Service Bus with our broker: its own AMQP engine, and claims-based security."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.program import Program
from tests.interop.installed import AZURE, needs_azure
from tests.members import Member, Members

pytestmark = needs_azure

_PROGRAM = Path(__file__).with_name("azure_client.py")
_NAME, _KEY = "RootManageSharedAccessKey", "the key of the emulator"


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    folder = tmp_path_factory.mktemp("azure")
    keys = folder / "keys"
    keys.write_text(f"{_NAME}:{_KEY}\n")
    with Members(folder) as members:
        yield members.start("alone", role="primary", anonymous=False, cbs=True, **{"sas-keys": keys})


def client(member: Member, key: str) -> Program:
    host, _, port = member.address.partition(":")
    command = (sys.executable, "-P", _PROGRAM, host, port, _NAME, key, "orders", "20")  # beside numbers.py
    return Program.of(*command, PYTHONPATH=AZURE)


async def test_messages_go_through(member: Member) -> None:
    async with client(member, _KEY) as program:
        printed = await program.end()
    assert printed.splitlines() == [f"message {number}" for number in range(20)]
    assert member.depth("orders") == 0


async def test_a_wrong_key_is_refused(member: Member) -> None:
    async with client(member, "another key") as program:
        await program.line("ServiceBusAuthenticationError")
    assert "a token was refused: the signature is not by a known key" in member.log.read_text()
