"""A stranger that listens at a member's address never gets the cluster-admin's password, whatever it
offers.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import click.testing
import pytest

from broker_stub.admission.user_file import DEFAULT_ADMIN
from broker_stub.cli.options import PASSWORD_VARIABLE
from broker_stub.local_cluster.member_process import free_addresses
from broker_stub.management_client import AdminClient, MemberRefusedError, MemberUnreachableError
from broker_stub.resource_agents import probe
from haclient import Credentials
from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.sasl.mechanisms import UNPROVEN
from tests.broker_stub.commands import run
from tests.broker_stub.rogue import Rogue, rogue
from tests.certificates import Authority
from tests.forked import ForkedMember

# No piece of it occurs in a frame, in a name or in base64 by chance.
PASSWORD = "z!Q?7#w~Vk$3^p;M|x@9"
LIES = pytest.mark.parametrize(
    "offered",
    [
        ("PLAIN",),
        ("ANONYMOUS",),
        ("PLAIN", "ANONYMOUS", "EXTERNAL"),
        ("SCRAM-SHA-1", "PLAIN"),
        ("PLAIN", "SCRAM-SHA-256"),
        ("OAUTHBEARER",),
    ],
    ids="+".join,
)


@asynccontextmanager
async def backup(folder: Path, member: Endpoint, *arguments: str) -> AsyncIterator[Path]:
    """Start a backup that looks for its primary at a member's address; return its log."""
    (folder / "arbiter").mkdir()
    for name, text in (("users", f"{DEFAULT_ADMIN}:{PASSWORD}\n"), ("password", PASSWORD)):
        (folder / name).write_text(text)
    [own] = free_addresses((Endpoint("127.0.0.1", 0),))
    given = ("--listen", own.authority, "--name", "b", "--member", str(member), "--log-level", "debug")
    cluster = ("--arbiter", f"directory:{folder / 'arbiter'}", "--users", str(folder / "users"))
    password = ("--password-file", str(folder / "password"))
    process = ForkedMember((*given, *cluster, *password, *arguments), folder / "log")
    await process.start()
    try:
        yield folder / "log"
    finally:
        await process.kill()


async def until_logged(log: Path, pattern: str) -> None:
    async with asyncio.timeout(30):
        while not re.search(pattern, log.read_text()):  # noqa: ASYNC110 - written by another process
            await asyncio.sleep(0.02)


@LIES
async def test_a_backup_shows_a_rogue_primary_nothing_of_the_password(
    tmp_path: Path, offered: tuple[str, ...]
) -> None:
    async with rogue(*offered) as other, backup(tmp_path, other.address) as log:
        if "SCRAM-SHA-256" in offered:
            await _opened(other)
            await until_logged(log, UNPROVEN)
        else:
            await other.wait_ended(1)
            await until_logged(log, "this client may use SCRAM-SHA-256;")
        assert PASSWORD not in log.read_text()
    assert other.heard
    assert not other.knows_of(PASSWORD)
    assert not other.was_sent_amqp


async def _opened(other: Rogue) -> None:
    """Wait until a client has finished SASL, or has stopped for lack of a mechanism other than PLAIN."""
    async with asyncio.timeout(30):
        while not any(b"p=" in heard for heard in other.heard):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


COMMANDS = (
    ("status",),
    ("promote",),
    ("demote",),
    ("queue", "list"),
    ("set-members",),
    ("link", "status", "x"),
)


@LIES
async def test_no_command_shows_a_rogue_member_anything_of_the_password(offered: tuple[str, ...]) -> None:
    async with rogue(*offered) as other:
        for command in COMMANDS:
            given = (*command, other.address.authority, "--timeout", "2")
            result = await run(*given, **{PASSWORD_VARIABLE: PASSWORD})
            assert result.exit_code != 0, command
            assert PASSWORD not in result.output
            if "SCRAM-SHA-256" not in offered:
                assert "a password is sent by SCRAM-SHA-256 only" in result.stderr, command
                assert f"the peer offers {' '.join(offered)}" in result.stderr
            else:
                assert UNPROVEN in result.stderr, command
    assert not other.was_sent_amqp
    assert len(other.heard) >= len(COMMANDS)
    assert not other.knows_of(PASSWORD)


@LIES
async def test_the_probe_of_the_resource_agent_shows_nothing_of_it(
    tmp_path: Path, offered: tuple[str, ...]
) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    async with rogue(*offered) as other:
        given = (other.address.authority, "--arbiter", f"directory:{tmp_path}", "--timeout", "2")
        given += ("--password-file", str(tmp_path / "password"))
        result = await asyncio.to_thread(click.testing.CliRunner().invoke, probe.main, given)
        assert result.exit_code in {1, 3}
    assert other.heard
    assert not other.knows_of(PASSWORD)


def contexts(folder: Path, name: str) -> tuple[ssl.SSLContext, Path]:
    """Return a listener's TLS context with a certificate for that name, and the file of its authority."""
    certificate = Authority(folder).issue(name)
    return certificate.server_context(), certificate.authority.file


WRONG: dict[str, Callable[[Path], tuple[ssl.SSLContext, Path]]] = {
    "another authority": lambda folder: (
        contexts(folder / "rogue", "127.0.0.1")[0],
        contexts(folder / "ours", "127.0.0.1")[1],
    ),
    "another name": lambda folder: contexts(folder / "ours", "elsewhere.example"),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_tls_that_is_not_verified_carries_no_password(
    tmp_path: Path, wrong: Callable[[Path], tuple[ssl.SSLContext, Path]]
) -> None:
    context, ca = wrong(tmp_path)
    async with rogue("PLAIN", context=context) as other:
        async with backup(tmp_path, other.address, "--tls-ca", str(ca)) as log:
            await until_logged(log, "the certificate was not accepted")
        given = ("status", str(other.address), "--tls-ca", str(ca), "--timeout", "5")
        result = await run(*given, **{PASSWORD_VARIABLE: PASSWORD})
        assert (result.exit_code, "certificate verify failed" in result.stderr) == (3, True)
    assert not other.knows_of(PASSWORD)


async def test_a_url_cannot_weaken_what_a_backup_asks_for(tmp_path: Path) -> None:
    """The URL can neither disable verification nor select PLAIN."""
    context, ca = contexts(tmp_path / "ca", "elsewhere.example")
    async with rogue("PLAIN", context=context) as other:
        url = f"{other.address}?tls_verify=false&sasl_mechanisms=PLAIN&sasl_plaintext=true&tls_ca={ca}"
        async with backup(tmp_path, other.address, "--broker-url", url) as log:
            await other.wait_ended(1)
            await until_logged(log, "this client may use SCRAM-SHA-256;")
    assert not other.knows_of(PASSWORD)


async def test_plain_inside_verified_tls_is_used(tmp_path: Path) -> None:
    """This also shows that these tests notice a sent password."""
    context, ca = contexts(tmp_path / "ca", "127.0.0.1")
    async with rogue("PLAIN", context=context) as other:
        async with backup(tmp_path, other.address, "--tls-ca", str(ca)):
            async with asyncio.timeout(30):
                while not other.knows_of(PASSWORD):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        other.heard.clear()
        given = ("status", str(other.address), "--tls-ca", str(ca), "--timeout", "1")
        assert (await run(*given, **{PASSWORD_VARIABLE: PASSWORD})).exit_code == 3
        assert other.knows_of(PASSWORD)


async def test_a_context_without_verification_gets_no_plain(tmp_path: Path) -> None:
    context, ca = contexts(tmp_path / "ca", "127.0.0.1")
    trusting = ssl.create_default_context(cafile=ca)
    trusting.check_hostname = False
    async with rogue("PLAIN", context=context) as other:
        for tls in (trusting, None):
            with pytest.raises((MemberRefusedError, MemberUnreachableError)):
                await AdminClient.connect(
                    other.address, Credentials(user=DEFAULT_ADMIN, password=PASSWORD), tls=tls, timeout=5
                )
    assert other.heard
    assert not other.knows_of(PASSWORD)
