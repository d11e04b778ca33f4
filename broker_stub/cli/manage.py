"""``status`` and ``promote``: what an operator asks of running members."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from broker_stub.access import DEFAULT_ADMIN
from broker_stub.address import Address
from broker_stub.admin import (
    AdminClient,
    Credentials,
    MemberRefusedError,
    MemberStatus,
    MemberUnreachableError,
)
from broker_stub.cli.options import ADDRESS, FILE, PASSWORD_VARIABLE, REFUSED, UNREACHABLE


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of asking one member."""

    address: Address
    status: MemberStatus | None = None
    error: str = ""
    code: int = 0

    def facts(self) -> dict[str, Any]:
        """For ``--json``."""
        if self.status is not None:
            return self.status.facts
        return {"address": self.address.authority, "error": self.error}


class MembersType(click.ParamType[list[Address]]):
    """A member, or the URL of a cluster: ``amqp://a:5672,b:5672``."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Address]:
        """Every member of the URL."""
        scheme, separator, hosts = str(value).rpartition("://")
        return [ADDRESS.convert(f"{scheme}{separator}{host}", param, ctx) for host in hosts.split(",")]


def _how(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say as whom, and how long."""
    for option in (
        click.option("--tls-ca", type=FILE, help="Who signs the members' certificates (PEM)."),
        click.option("--timeout", type=float, default=5.0, show_default=True, help="Seconds for a member."),
        click.option(
            "--password-file",
            type=FILE,
            help=f"File with the cluster-admin's password; or set ${PASSWORD_VARIABLE}.",
        ),
        click.option("--user", default=DEFAULT_ADMIN, show_default=True),
    ):
        command = option(command)
    return command


def _credentials(user: str, password_file: Path | None) -> Credentials:
    password = password_file.read_text().strip() if password_file else os.environ.get(PASSWORD_VARIABLE)
    if not password:
        raise click.UsageError(f"give --password-file, or set {PASSWORD_VARIABLE}")
    return Credentials(password, user)


@click.command()
@click.argument("members", metavar="URL...", type=MembersType(), nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Everything the members say, as JSON.")
@_how
def status(
    *,
    members: tuple[list[Address], ...],
    as_json: bool,
    user: str,
    password_file: Path | None,
    timeout: float,
    tls_ca: Path | None,
) -> None:
    """Show role, generation and queues of each member.

    Exits with 3 when one of them cannot be reached, with 1 when one refuses.
    """
    asking = Asking(_credentials(user, password_file), timeout, tls_ca)
    addresses = [address for group in members for address in group]
    answers = asyncio.run(asking.all(addresses))
    if as_json:
        click.echo(json.dumps([answer.facts() for answer in answers]))
    else:
        _show(answers)
    sys.exit(max(answer.code for answer in answers))


@click.command()
@click.argument("member", metavar="HOST:PORT", type=ADDRESS)
@click.option("--generation", type=click.IntRange(0), default=0, help="Become primary in no lower one.")
@_how
def promote(
    *,
    member: Address,
    generation: int,
    user: str,
    password_file: Path | None,
    timeout: float,
    tls_ca: Path | None,
) -> None:
    """Make a passive member the primary."""
    asking = Asking(_credentials(user, password_file), timeout, tls_ca)
    answer = asyncio.run(asking.one(member, lambda client: client.promote(at_least=generation)))
    if answer.status is None:
        click.echo(answer.error, err=True)
    else:
        click.echo(f"{answer.status.name} is {answer.status.role}, generation {answer.status.generation}")
    sys.exit(answer.code)


@dataclass(frozen=True, slots=True)
class Asking:
    """How members are asked."""

    credentials: Credentials
    timeout: float
    tls_ca: Path | None

    async def all(self, addresses: list[Address]) -> list[Answer]:
        """The status of several members, asked at the same time."""
        return await asyncio.gather(*(self.one(address, AdminClient.status) for address in addresses))

    async def one(self, address: Address, what: Callable[[AdminClient], Any]) -> Answer:
        """What one member says."""
        tls = ssl.create_default_context(cafile=str(self.tls_ca)) if self.tls_ca else None
        try:
            client = await AdminClient.connect(address, self.credentials, timeout=self.timeout, tls=tls)
            async with client:
                return Answer(address, await what(client))
        except MemberRefusedError as error:
            return Answer(address, error=str(error), code=REFUSED)
        except MemberUnreachableError as error:
            return Answer(address, error=str(error), code=UNREACHABLE)


def _show(answers: list[Answer]) -> None:
    table = Table("member", "address", "role", "generation", "connections", "queues", "messages")
    for answer in answers:
        if answer.status is None:
            click.echo(answer.error, err=True)
            continue
        facts = answer.status.facts
        queues = [queue for queue in facts["queues"] if not queue["temporary"]]
        messages = sum(queue["depth"] for queue in queues)
        numbers = (facts["generation"], facts["connections"], len(queues), messages)
        table.add_row(facts["name"], facts["address"], facts["role"], *map(str, numbers))
    if table.row_count:
        Console().print(table)
