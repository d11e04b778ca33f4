"""``link``: which other site's events a cluster carries out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import click

from broker_stub.address import Address
from broker_stub.cli.member_requests import JSON, MEMBERS, Asking, MembersType, finish, flat, how
from broker_stub.cli.report import link_line
from broker_stub.management import EXCHANGE_TYPE
from broker_stub.management_client import AdminClient, MemberRefusedError
from broker_stub.sites.inbound import CREATE, MISSING, PARK
from broker_stub.sites.source_config import FROM, PASSWORD_FILE, Way, WayError

# A change is answered when the backups have it: a stalled one is dropped after ten seconds.
_TIMEOUT = 30.0

_Facts = dict[str, Any]


SOURCE_PASSWORD = click.option(
    "--from-password-file",
    "source_password_file",
    metavar="PATH",
    help="File with the password of the user in --from, at the same path on each member of --to.",
)
"""Where the members of the DR site have the password for the source."""


def way_options(source: str, source_password_file: str | None) -> dict[str, str]:
    """What the exchange of a link is told of its source.

    :raises click.UsageError: when that cannot be used.
    """
    options = {FROM: source}
    if source_password_file is not None:
        options[PASSWORD_FILE] = source_password_file
    try:
        Way.of(options)
    except WayError as error:
        raise click.UsageError(f"--from: {error}") from error
    return options


@click.group()
def link() -> None:
    """Follow another site: make, show and remove links."""


@link.command("add")
@click.argument("name")
@click.option("--from", "source", required=True, help="The source, as clients know it, without a password.")
@SOURCE_PASSWORD
@click.option("--to", "members", type=MembersType(), required=True, help="The cluster that is to follow.")
@click.option(
    "--missing",
    type=click.Choice([CREATE, PARK]),
    default=CREATE,
    show_default=True,
    help="What to do with events for which there is no queue.",
)
@JSON
@how(timeout=_TIMEOUT)
def add(
    *,
    name: str,
    source: str,
    source_password_file: str | None,
    members: list[Address],
    missing: str,
    as_json: bool,
    asking: Asking,
) -> None:
    """Carry the source's events out, from now on, in whichever member is primary.

    That one reads the password file each time it connects.  The URL and the path are kept by the
    cluster; the password is not.
    """
    options = {"type": "replication", **way_options(source, source_password_file), MISSING: missing}

    async def make(client: AdminClient) -> _Facts:
        await client.create(EXCHANGE_TYPE, name, **options)
        return await _one(client, name)

    _run(asking, members, make, as_json=as_json)


@link.command("list")
@MEMBERS
@JSON
@how()
def show_all(*, members: tuple[list[Address], ...], as_json: bool, asking: Asking) -> None:
    """Show every link."""
    _run(asking, flat(members), links_of, as_json=as_json)


@link.command("status")
@click.argument("name")
@MEMBERS
@JSON
@how()
def show(*, name: str, members: tuple[list[Address], ...], as_json: bool, asking: Asking) -> None:
    """Show one link: its state, the last sequence, and what became of the events."""
    _run(asking, flat(members), lambda client: _one(client, name), as_json=as_json)


@link.command("remove")
@click.argument("name")
@MEMBERS
@JSON
@how(timeout=_TIMEOUT)
def remove(*, name: str, members: tuple[list[Address], ...], as_json: bool, asking: Asking) -> None:
    """Follow no longer; what was carried out stays."""

    async def delete(client: AdminClient) -> _Facts:
        await _one(client, name)
        await client.delete(EXCHANGE_TYPE, name)
        return {"removed": name}

    _run(asking, flat(members), delete, as_json=as_json)


async def links_of(client: AdminClient) -> list[_Facts]:
    """Every link of a member."""
    links: list[_Facts] = (await client.status()).facts["site"].get("links", [])
    return links


async def _one(client: AdminClient, name: str) -> _Facts:
    for facts in await links_of(client):
        if facts["name"] == name:
            return facts
    raise MemberRefusedError(f"there is no link {name!r}", 404)


def _run(
    asking: Asking,
    members: list[Address],
    what: Callable[[AdminClient], Awaitable[_Facts | list[_Facts]]],
    *,
    as_json: bool,
) -> None:
    answer = asyncio.run(asking.at_primary(members, what))
    if as_json:
        click.echo(json.dumps(answer.plain()))
    elif answer.result is not None:
        rows = answer.result if isinstance(answer.result, list) else [answer.result]
        for row in rows:
            click.echo(f"removed {row['removed']}" if "removed" in row else link_line(row))
    finish(answer)
