"""Other clients log in at a member by a token, and get the reason if it is refused."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest

from tests.identity_provider import IdentityProvider
from tests.interop.clients.building import MissingClientError
from tests.interop.clients.toolchains import CLIENTS, Client
from tests.members import Member

# Builds the clients, if they are not built.
pytestmark = pytest.mark.timeout(900)

# Seconds for a virtual machine to start on a busy machine.
_PATIENCE = 60.0
_WITH_TOKENS = ("qpid-jms", "protonj2", "go-amqp", "rhea")


@pytest.fixture(scope="module", params=_WITH_TOKENS)
def client(request: pytest.FixtureRequest) -> Client:
    (found,) = (each for each in CLIENTS if each.name == request.param)
    try:
        found.command()
    except MissingClientError as reason:
        pytest.skip(str(reason))
    return found


async def until(pattern: str, client: Client, *arguments: str, **environment: str) -> str:
    """Run a client's program until it prints a line with this pattern; return the line."""
    command = client.command()
    process = await asyncio.create_subprocess_exec(
        *command.arguments,
        *arguments,
        env={**os.environ, **dict(command.environment), **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    printed = list[str]()
    try:
        async with asyncio.timeout(_PATIENCE):
            while line := (await process.stdout.readline()).decode():
                printed.append(line)
                if re.search(pattern, line):
                    return line
    except TimeoutError:
        printed.append("and nothing more")
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
    raise AssertionError(f"no line with {pattern!r}: {''.join(printed)}")


@pytest.mark.parametrize("mechanism", ["XOAUTH2", "PLAIN"])
async def test_a_token_logs_in_a_client_that_sends_and_receives(
    mechanism: str, client: Client, token_member: Member, provider: IdentityProvider, tmp_path: Path
) -> None:
    login = {"CLIENT_USER": "app", "CLIENT_PASSWORD": provider.token(), "CLIENT_MECHANISM": mechanism}
    queue = tmp_path.name
    await until("^accepted 0", client, "send", token_member.address, queue, "p", "100", "50", **login)
    assert "p 0 " in await until("^received", client, "receive", token_member.address, queue, **login)


_REASON = r"\{.*invalid_token.*the token has expired.*\}"
_PROTONJ2 = "ClientConnectionSecuritySaslException: SASL exchange failed to authenticate client"
# PLAIN has no place for the reason, protonj2 drops it, and rhea cannot read it.
_REPORTS = {
    ("qpid-jms", "XOAUTH2"): rf"JMSSecuritySaslException: .* XOAUTH2 \({_REASON}\)",
    ("qpid-jms", "PLAIN"): "JMSSecuritySaslException: .* PLAIN",
    ("protonj2", "XOAUTH2"): _PROTONJ2,
    ("protonj2", "PLAIN"): _PROTONJ2,
    ("go-amqp", "XOAUTH2"): rf"SASL XOAUTH2 auth failed with code 0x1: .*{_REASON}",
    ("go-amqp", "PLAIN"): "SASL PLAIN auth failed with code 0x1",
    ("rhea", "XOAUTH2"): "TypeError: this.mechanism.step is not a function",
    ("rhea", "PLAIN"): "amqp:unauthorized-access Failed to authenticate: 1",
}


@pytest.mark.parametrize("mechanism", ["XOAUTH2", "PLAIN"])
async def test_a_client_reports_that_its_token_is_refused(
    mechanism: str, client: Client, token_member: Member, provider: IdentityProvider
) -> None:
    expired = {"CLIENT_USER": "app", "CLIENT_PASSWORD": provider.token(seconds=-60)}
    report = _REPORTS[client.name, mechanism]
    await until(report, client, "receive", token_member.address, "q", CLIENT_MECHANISM=mechanism, **expired)
