"""The commands and their exit codes."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker_stub.admission.user_file import DEFAULT_ADMIN, write_users
from broker_stub.local_cluster.member_process import MemberProcess, MemberStartError, free_addresses
from haclient.cluster_url.endpoint import Endpoint
from tests.broker_stub.clients import member
from tests.broker_stub.commands import run

PASSWORD = "planted-secret"


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[Endpoint]:
    users = tmp_path / "users"
    write_users(users, {DEFAULT_ADMIN: PASSWORD})
    (tmp_path / "password").write_text(PASSWORD + "\n")
    async with member(tmp_path, "--users", str(users), "--name", "north", "--log-level", "debug") as address:
        yield address


async def test_status_shows_a_member_and_its_role(address: Endpoint, tmp_path: Path) -> None:
    result = await run("status", f"amqp://{address.authority}", "--password-file", str(tmp_path / "password"))
    assert result.exit_code == 0
    assert "north" in result.output
    assert "passive" in result.output


async def test_status_in_json_has_everything(address: Endpoint) -> None:
    result = await run("status", "--json", address.authority, BROKER_STUB_PASSWORD=PASSWORD)
    [facts] = json.loads(result.stdout)
    assert (facts["name"], facts["role"], facts["generation"]) == ("north", "passive", 0)


async def test_status_with_an_expected_state_tells_by_its_exit_code_whether_it_is_so(
    address: Endpoint,
) -> None:
    arguments = ("status", address.authority, "--expect")
    assert (await run(*arguments, "passive", BROKER_STUB_PASSWORD=PASSWORD)).exit_code == 0
    several = (*arguments, "primary", "--expect", "passive")
    assert (await run(*several, BROKER_STUB_PASSWORD=PASSWORD)).exit_code == 0
    other = await run(*arguments, "primary", BROKER_STUB_PASSWORD=PASSWORD)
    assert (other.exit_code, other.stderr) == (1, "north is passive, not primary\n")


async def test_promote_is_done_once_and_refused_the_second_time(address: Endpoint, tmp_path: Path) -> None:
    done = await run("promote", address.authority, BROKER_STUB_PASSWORD=PASSWORD)
    assert (done.exit_code, done.output) == (0, "north is primary, generation 1\n")
    refused = await run("promote", address.authority, BROKER_STUB_PASSWORD=PASSWORD)
    assert refused.exit_code == 1
    assert "this member is primary" in refused.stderr
    assert PASSWORD not in (tmp_path / "member.log").read_text()


async def test_a_wrong_password_is_a_refusal_and_does_not_appear_anywhere(address: Endpoint) -> None:
    result = await run("status", address.authority, BROKER_STUB_PASSWORD="wrong-secret")
    assert result.exit_code == 1
    assert "amqp:unauthorized-access" in result.stderr
    assert "wrong-secret" not in result.output


async def test_a_member_that_is_not_there_is_not_reachable() -> None:
    [nowhere] = free_addresses((Endpoint("127.0.0.1", 0),))
    result = await run("status", nowhere.authority, BROKER_STUB_PASSWORD="x")
    assert result.exit_code == 3
    assert "Connection refused" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "127.0.0.1:5672"),
        ("status", "nonsense", "--user", "x"),
        ("promote",),
        ("serve", "--listen", "x"),
        ("serve", "--tls-key", __file__),
        ("serve", "--users", __file__),
        ("serve", "--max-frame-size", "511"),
        ("serve", "--max-frame-size", str(2**24 + 1)),
        ("serve", "--advertise", "nonsense"),
        ("pair", "--max-frame-size", "0"),
        ("pair", "--members", "3", "--listen", "127.0.0.1:0"),
        ("pair", "--memory", "--store", "/nonexistent/store"),
        ("pair", "--arbiter", "memory:"),
        ("queue", "add", "orders"),
        ("exchange", "add", "prices", "127.0.0.1:5672", "--type", "round"),
    ],
)
async def test_wrong_usage_is_reported_with_exit_code_2(arguments: tuple[str, ...]) -> None:
    assert (await run(*arguments)).exit_code == 2


NAMELESS = ("--arbiter", "directory:/nonexistent", "--password-file", __file__, "--member", "127.0.0.1:1")
CLUSTER = (*NAMELESS, "--name", "a")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*CLUSTER, "--role", "primary"), "broker-stub promote"),
        ((*CLUSTER, "--generation", "3"), "--generation does not go with --arbiter"),
        ((*CLUSTER, "--primary", "127.0.0.1:1"), "--primary does not go with --arbiter"),
        (NAMELESS, "--arbiter needs --name"),
        ((*NAMELESS, "--name", ""), "--arbiter needs --name"),
        (CLUSTER[:4] + CLUSTER[6:], "--arbiter needs --member"),
        (CLUSTER[:2] + CLUSTER[4:], "--arbiter needs --password-file"),
        ((*CLUSTER[2:], "--arbiter", "memory:"), "every member would win"),
        ((*CLUSTER[2:], "--arbiter", "etcd:x"), "'etcd:x' names no arbiter"),
        ((*CLUSTER, "--broker-url", "amqp://a:b:c"), "--broker-url"),
        (("--store", "/nonexistent/store"), "--store DIR needs --arbiter"),
        (("--force-primary",), "--force-primary needs --arbiter"),
        (("--broker-url", "amqp://127.0.0.1:1"), "--broker-url needs --arbiter"),
        (("--role", "primary", "--primary", "127.0.0.1:1"), "does not go with --role primary"),
        (("--tls-client-ca", __file__), "--tls-client-ca needs --tls-cert"),
    ],
)
async def test_serve_refuses_options_that_contradict_each_other_and_says_what_to_do(
    arguments: tuple[str, ...], words: str
) -> None:
    result = await run("serve", *arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())


@pytest.mark.parametrize("loop", ["asyncio", "auto"])
async def test_serve_says_where_it_listens_and_stops_on_sigterm(loop: str, tmp_path: Path) -> None:
    process = MemberProcess(("--listen", "127.0.0.1:0", "--loop", loop), tmp_path / "log")
    await process.start()
    process.signal(signal.SIGTERM)
    assert await process.wait() == 0
    assert "listens on amqp://127.0.0.1:" in (tmp_path / "log").read_text()


async def test_serve_fails_with_the_reason_when_the_port_is_taken(address: Endpoint, tmp_path: Path) -> None:
    process = MemberProcess(("--listen", address.authority), tmp_path / "second.log")
    with pytest.raises(MemberStartError, match="exit code 1"):
        await process.start()
    assert "cannot listen" in (tmp_path / "second.log").read_text()
