"""``status``, ``promote``, ``demote`` and ``set-members``: manage running members."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable

import click

from broker_stub.cli.member_requests import (
    JSON,
    MEMBERS,
    Answer,
    MemberRequests,
    finish,
    flatten,
    request_options,
)
from broker_stub.cli.options import cluster_url
from broker_stub.cli.report import report
from broker_stub.cli.switch_over import take_over
from broker_stub.command_options import ADDRESS, REFUSED, UNREACHABLE
from broker_stub.election.roles import Role
from broker_stub.management_client import AdminClient, MemberStatus
from haclient.cluster_url.endpoint import Endpoint
from haclient.cluster_url.errors import ClusterURLError
from haclient.cluster_url.url import ClusterURL
from haclient.command_line.signals import run
from haclient.printable.lines import echo_line

# A promotion waits up to five seconds for the arbiter, and until all received events are applied.
_MOVE_TIMEOUT = 20.0


@click.command()
@MEMBERS
@click.option("--all", "everywhere", is_flag=True, help="Show the members that these know of, too.")
@click.option(
    "--expect",
    type=click.Choice([str(role) for role in Role]),
    multiple=True,
    help="Exit with 1 unless every member is in this state (repeat for one of several).",
)
@JSON
@request_options()
def status(
    *,
    members: tuple[list[Endpoint], ...],
    everywhere: bool,
    expect: tuple[str, ...],
    as_json: bool,
    requests: MemberRequests,
) -> None:
    """Show role, generation, replicas, store and queues of each member.

    Exits with 3 if a member cannot be reached, with 1 if a member refuses or is not in an expected
    state.
    """
    ask = requests.everywhere if everywhere else requests.status
    answers = run(ask(flatten(members)))
    _print_each(answers, lambda found: report(found.facts), as_json=as_json)
    unexpected = [
        answer.result for answer in answers if answer.result and _is_unexpected(answer.result, expect)
    ]
    for found in unexpected:
        echo_line(f"{found.name} is {found.role}, not {' or '.join(expect)}", err=True)
    sys.exit(max(REFUSED if unexpected else 0, *(answer.code for answer in answers)))


def _print_each(
    answers: list[Answer[MemberStatus]], line: Callable[[MemberStatus], str], *, as_json: bool
) -> None:
    if as_json:
        click.echo(json.dumps([answer.plain() for answer in answers]))
    for answer in answers:
        if answer.result is None:
            echo_line(answer.error, err=True)
        elif not as_json:
            click.echo(line(answer.result))  # the report has several lines


def _is_unexpected(found: MemberStatus, expected: tuple[str, ...]) -> bool:
    return bool(expected) and found.role not in expected


@click.command()
@click.argument("member", metavar="HOST:PORT", type=ADDRESS)
@click.option(
    "--generation", type=click.IntRange(0), default=0, help="Without arbiter: the lowest generation."
)
@click.option(
    "--force-primary",
    is_flag=True,
    help="Promote whatever its store lacks; warns of what that may lose.  Fences no other primary.",
)
@JSON
@request_options(timeout=_MOVE_TIMEOUT)
def promote(
    *, member: Endpoint, generation: int, force_primary: bool, as_json: bool, requests: MemberRequests
) -> None:
    """Make a member the primary.

    If the member follows a living primary, the primary is demoted first: a planned switch-over.
    """
    answer = run(take_over(requests, member, at_least=generation, force=force_primary))
    _print(answer, as_json=as_json)


@click.command()
@click.argument("member", metavar="HOST:PORT", type=ADDRESS)
@click.option("--primary", type=ADDRESS, help="The member that it redirects its clients to.")
@JSON
@request_options(timeout=_MOVE_TIMEOUT)
def demote(*, member: Endpoint, primary: Endpoint | None, as_json: bool, requests: MemberRequests) -> None:
    """Make the primary a backup; it closes its client connections."""
    _print(run(requests.one(member, lambda client: client.demote(primary))), as_json=as_json)


def _print(answer: Answer[MemberStatus], *, as_json: bool) -> None:
    found = answer.result
    if as_json:
        click.echo(json.dumps(answer.plain()))
    elif found is not None:
        echo_line(f"{found.name} is {found.role}, generation {found.generation}")
    if found is not None and found.warning:
        echo_line(f"warning: {found.warning}", err=True)
    finish(answer)


@click.command("set-members")
@click.argument("members", metavar="HOST:PORT...", type=ADDRESS, nargs=-1, required=True)
@click.option(
    "--at", type=ADDRESS, multiple=True, help="A member of the cluster, if none of these is in it yet."
)
@click.option(
    "--broker-url",
    help="Where members search each other instead.  [default: their --broker-url, or else this list]",
)
@JSON
@request_options()
def set_members(
    *,
    members: tuple[Endpoint, ...],
    at: tuple[Endpoint, ...],
    broker_url: str | None,
    as_json: bool,
    requests: MemberRequests,
) -> None:
    """Give every running member new addresses of the cluster.

    The members announce the addresses to clients (failover-server-list). Backups without their own broker URL
    search for the primary there. Members that are only in the old list get the new list too.

    Exits with 3 if a member of the new list cannot be reached; the other members then have the new list.
    """
    if broker_url is not None:
        broker_url = cluster_url(broker_url)
        try:
            ClusterURL.parse(broker_url)
        except ClusterURLError as error:
            raise click.UsageError(f"--broker-url: {error}") from error
    answers = run(_push(requests, members, at, broker_url))
    _print_each(answers, lambda found: f"{found.name} has {len(members)} members", as_json=as_json)
    updated = any(answer.result is not None for answer in answers)
    # A member that leaves the cluster may have stopped already.
    required = [answer for answer in answers if answer.address in members or answer.code == REFUSED]
    codes = [answer.code for answer in required]
    sys.exit(max(codes, default=0) if updated else UNREACHABLE)


async def _push(
    requests: MemberRequests, members: tuple[Endpoint, ...], at: tuple[Endpoint, ...], broker_url: str | None
) -> list[Answer[MemberStatus]]:
    async def update(client: AdminClient) -> MemberStatus:
        return await client.set_members(members, broker_url)

    found = await requests.everywhere(dict.fromkeys((*at, *members)))
    reached = [answer for answer in found if answer.result is not None]
    updated = await asyncio.gather(*(requests.one(answer.address, update) for answer in reached))
    return [*updated, *(answer for answer in found if answer.result is None)]
