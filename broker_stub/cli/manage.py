"""``status``, ``promote``, ``demote`` and ``set-members``: what an operator asks of running members."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable

import click

from broker_stub.address import Address
from broker_stub.cli.member_requests import JSON, MEMBERS, Answer, Asking, finish, flat, how
from broker_stub.cli.options import ADDRESS, REFUSED, UNREACHABLE
from broker_stub.cli.report import report
from broker_stub.cli.switch_over import take_over
from broker_stub.election.roles import Role
from broker_stub.management_client import AdminClient, MemberStatus

# A promotion waits for the arbiter, which has five seconds, and for what is being applied.
_MOVE_TIMEOUT = 20.0


@click.command()
@MEMBERS
@click.option("--all", "everywhere", is_flag=True, help="Ask every member that these know of, too.")
@click.option(
    "--expect",
    type=click.Choice([str(role) for role in Role]),
    multiple=True,
    help="Exit with 1 unless every member is in this state (repeat for one of several).",
)
@JSON
@how()
def status(
    *,
    members: tuple[list[Address], ...],
    everywhere: bool,
    expect: tuple[str, ...],
    as_json: bool,
    asking: Asking,
) -> None:
    """Show role, generation, replicas, store and queues of each member.

    Exits with 3 when one of them cannot be reached, with 1 when one refuses, or is not in the
    state that was expected.
    """
    ask = asking.everywhere if everywhere else asking.status
    answers = asyncio.run(ask(flat(members)))
    _tell_each(answers, lambda found: report(found.facts), as_json=as_json)
    unexpected = [answer.result for answer in answers if answer.result and _unlike(answer.result, expect)]
    for found in unexpected:
        click.echo(f"{found.name} is {found.role}, not {' or '.join(expect)}", err=True)
    sys.exit(max(REFUSED if unexpected else 0, *(answer.code for answer in answers)))


def _tell_each(
    answers: list[Answer[MemberStatus]], line: Callable[[MemberStatus], str], *, as_json: bool
) -> None:
    if as_json:
        click.echo(json.dumps([answer.plain() for answer in answers]))
    for answer in answers:
        if answer.result is None:
            click.echo(answer.error, err=True)
        elif not as_json:
            click.echo(line(answer.result))


def _unlike(found: MemberStatus, expected: tuple[str, ...]) -> bool:
    return bool(expected) and found.role not in expected


@click.command()
@click.argument("member", metavar="HOST:PORT", type=ADDRESS)
@click.option("--generation", type=click.IntRange(0), default=0, help="Without arbiter: in no lower one.")
@click.option(
    "--force-primary",
    is_flag=True,
    help="Whatever its store lacks; says what that may lose.  Fences no other primary.",
)
@JSON
@how(timeout=_MOVE_TIMEOUT)
def promote(*, member: Address, generation: int, force_primary: bool, as_json: bool, asking: Asking) -> None:
    """Make a member the primary.

    When it follows a living primary, that one is demoted first: a planned switch-over.
    """
    answer = asyncio.run(take_over(asking, member, at_least=generation, force=force_primary))
    _tell(answer, as_json=as_json)


@click.command()
@click.argument("member", metavar="HOST:PORT", type=ADDRESS)
@click.option("--primary", type=ADDRESS, help="Where its clients should go.")
@JSON
@how(timeout=_MOVE_TIMEOUT)
def demote(*, member: Address, primary: Address | None, as_json: bool, asking: Asking) -> None:
    """Make the primary a backup; its clients are sent away."""
    _tell(asyncio.run(asking.one(member, lambda client: client.demote(primary))), as_json=as_json)


def _tell(answer: Answer[MemberStatus], *, as_json: bool) -> None:
    found = answer.result
    if as_json:
        click.echo(json.dumps(answer.plain()))
    elif found is not None:
        click.echo(f"{found.name} is {found.role}, generation {found.generation}")
    if found is not None and found.warning:
        click.echo(f"warning: {found.warning}", err=True)
    finish(answer)


@click.command("set-members")
@click.argument("members", metavar="HOST:PORT...", type=ADDRESS, nargs=-1, required=True)
@click.option(
    "--at", type=ADDRESS, multiple=True, help="Where the cluster is, if none of these is in it yet."
)
@JSON
@how()
def set_members(
    *, members: tuple[Address, ...], at: tuple[Address, ...], as_json: bool, asking: Asking
) -> None:
    """Give every running member new addresses of the cluster.

    They tell them to clients (failover-server-list), and backups look for the primary there.
    Members that only the old list has are told too.  Exits with 3 when a member of the new list
    cannot be reached; the others have it then.
    """
    answers = asyncio.run(_push(asking, members, at))
    _tell_each(answers, lambda found: f"{found.name} has {len(members)} members", as_json=as_json)
    told = any(answer.result is not None for answer in answers)
    # A member that is to go may be gone already.
    required = [answer for answer in answers if answer.address in members or answer.code == REFUSED]
    codes = [answer.code for answer in required]
    sys.exit(max(codes, default=0) if told else UNREACHABLE)


async def _push(
    asking: Asking, members: tuple[Address, ...], at: tuple[Address, ...]
) -> list[Answer[MemberStatus]]:
    async def tell(client: AdminClient) -> MemberStatus:
        return await client.set_members(members)

    found = await asking.everywhere(dict.fromkeys((*at, *members)))
    reached = [answer for answer in found if answer.result is not None]
    told = await asyncio.gather(*(asking.one(answer.address, tell) for answer in reached))
    return [*told, *(answer for answer in found if answer.result is None)]
