"""``link``: makes a cluster apply the events of another site."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import click

from broker_stub.amqp.node_names import EXCHANGE_TYPE
from broker_stub.cli.member_requests import (
    JSON,
    MEMBERS,
    MemberRequests,
    MembersType,
    finish,
    flatten,
    request_options,
)
from broker_stub.cli.report import link_line
from broker_stub.management_client import AdminClient, MemberRefusedError
from broker_stub.sites.inbound import CREATE, KEEP, MISSING
from broker_stub.sites.source_config import FROM, PASSWORD_FILE, SourceConfig, SourceConfigError
from haclient.cluster_url.endpoint import Endpoint
from haclient.command_line.groups import Group
from haclient.command_line.signals import run
from haclient.printable.lines import echo_line

# The response to a change waits for the backups: the primary drops a stalled one after ten seconds.
_TIMEOUT = 30.0

_Facts = dict[str, Any]


SOURCE_PASSWORD = click.option(
    "--from-password-file",
    "source_password_file",
    metavar="PATH",
    help="File with the password of the user in --from, at the same path on each member of --to.",
)
"""The path of the password for the source, on each member of the DR site."""


def source_options(source: str, source_password_file: str | None) -> dict[str, str]:
    """Return the options of a link's exchange that name its source.

    :raises click.UsageError: if they are invalid.
    """
    options = {FROM: source}
    if source_password_file is not None:
        options[PASSWORD_FILE] = source_password_file
    try:
        SourceConfig.of(options)
    except SourceConfigError as error:
        raise click.UsageError(f"--from: {error}") from error
    return options


@click.group(cls=Group)
def link() -> None:
    """Follow another site: add, show and remove links."""


@link.command("add")
@click.argument("name")
@click.option("--from", "source", required=True, help="The source's URL for clients, without a password.")
@SOURCE_PASSWORD
@click.option("--to", "members", type=MembersType(), required=True, help="The cluster that shall follow.")
@click.option(
    "--missing",
    type=click.Choice([CREATE, KEEP]),
    default=CREATE,
    show_default=True,
    help="What to do with events for which there is no queue.",
)
@JSON
@request_options(timeout=_TIMEOUT)
def add(
    *,
    name: str,
    source: str,
    source_password_file: str | None,
    members: list[Endpoint],
    missing: str,
    as_json: bool,
    requests: MemberRequests,
) -> None:
    """Start to apply the source's events, on the member that is primary.

    The primary reads the password file each time it connects.  The cluster keeps the URL and the
    path, but not the password.
    """
    options = {"type": "replication", **source_options(source, source_password_file), MISSING: missing}

    async def make(client: AdminClient) -> _Facts:
        await client.create(EXCHANGE_TYPE, name, **options)
        return await _one(client, name)

    _run(requests, members, make, as_json=as_json)


@link.command("list")
@MEMBERS
@JSON
@request_options()
def show_all(*, members: tuple[list[Endpoint], ...], as_json: bool, requests: MemberRequests) -> None:
    """Show every link."""
    _run(requests, flatten(members), links_of, as_json=as_json)


@link.command("status")
@click.argument("name")
@MEMBERS
@JSON
@request_options()
def show(*, name: str, members: tuple[list[Endpoint], ...], as_json: bool, requests: MemberRequests) -> None:
    """Show one link: its state, the last sequence, and counts of events."""
    _run(requests, flatten(members), lambda client: _one(client, name), as_json=as_json)


@link.command("remove")
@click.argument("name")
@MEMBERS
@JSON
@request_options(timeout=_TIMEOUT)
def remove(
    *, name: str, members: tuple[list[Endpoint], ...], as_json: bool, requests: MemberRequests
) -> None:
    """Stop following the source; applied messages stay."""

    async def delete(client: AdminClient) -> _Facts:
        await _one(client, name)
        await client.delete(EXCHANGE_TYPE, name)
        return {"removed": name}

    _run(requests, flatten(members), delete, as_json=as_json)


async def links_of(client: AdminClient) -> list[_Facts]:
    """Return every link of a member."""
    links: list[_Facts] = (await client.status()).facts["site"].get("links", [])
    return links


async def _one(client: AdminClient, name: str) -> _Facts:
    for facts in await links_of(client):
        if facts["name"] == name:
            return facts
    raise MemberRefusedError(f"there is no link {name!r}", 404)


def _run(
    requests: MemberRequests,
    members: list[Endpoint],
    call: Callable[[AdminClient], Awaitable[_Facts | list[_Facts]]],
    *,
    as_json: bool,
) -> None:
    answer = run(requests.at_primary(members, call))
    if as_json:
        click.echo(json.dumps(answer.plain()))
    elif answer.result is not None:
        rows = answer.result if isinstance(answer.result, list) else [answer.result]
        for row in rows:
            echo_line(f"removed {row['removed']}" if "removed" in row else link_line(row))
    finish(answer)
