"""On members with users, a client cannot send with another user-id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from proton import Message

from broker_stub.admission.user_file import write_users
from haclient.cluster_url.endpoint import Endpoint
from haclient.testing.threads import in_thread
from tests.broker_stub.clients import Client, member

ALICE = {"user": "alice", "password": "wonder"}
ADMIN = {"user": "cluster-admin", "password": "secret"}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    folder = tmp_path_factory.mktemp("users")
    write_users(folder / "users", {each["user"]: each["password"] for each in (ALICE, ADMIN)})
    with in_thread(member(folder, "--users", str(folder / "users"), "--role", "primary")) as address:
        yield address


@pytest.fixture(scope="module")
def unsecured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with in_thread(member(tmp_path_factory.mktemp("open"), "--role", "primary")) as address:
        yield address


async def condition_of(address: Endpoint, user_id: bytes | None, to: str | None, **credentials: Any) -> str:
    """Return the refusal of a message with that user-id, empty if it is accepted."""
    client = await Client().connect(address, **credentials)
    message = Message(body="x", address="q")
    if user_id is not None:
        message.user_id = user_id
    [outcome] = await client.send(await client.attach("sender", "s", to), message)
    await client.close()
    assert outcome is not None
    return outcome.condition or ""


@pytest.mark.parametrize("to", ["q", None], ids=["queue", "relay"])
async def test_a_user_sends_as_nobody_else(secured: Endpoint, to: str | None) -> None:
    assert await condition_of(secured, b"alice", to, **ALICE) == ""
    assert await condition_of(secured, None, to, **ALICE) == ""
    assert await condition_of(secured, b"bob", to, **ALICE) == "amqp:unauthorized-access"
    assert await condition_of(secured, b"x" * 10_000, to, **ALICE) == "amqp:unauthorized-access"
    assert await condition_of(secured, b"alice", to) == "amqp:unauthorized-access", "who has no name"
    assert await condition_of(secured, b"alice", to, **ADMIN) == "", "who moves the messages of others"


async def test_where_nobody_proves_a_name_any_is_taken(unsecured: Endpoint) -> None:
    assert await condition_of(unsecured, b"bob", "q") == ""
