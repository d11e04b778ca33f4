"""What a member is, and how good a primary it would make: ``ROLE SCORE``, for the Pacemaker agent.

    python -m broker_stub.resource_agents.probe 127.0.0.1:5672 --arbiter directory:/shared/arbiter \
        --password-file /etc/broker-stub/password

Rules
-----
* The score is a wish.  Who may be primary is decided by the generation rule when a member is promoted.
* A member in ``connecting`` that is an heir (``generation``) has every settled message: it must have a
  score.  After the death of the primary, or of all members, nobody is ``ready``, and Pacemaker promotes
  nobody that has none.
* What cannot be told, since the arbiter does not answer, is no heir: its promotion would be refused.
* Everything together takes no longer than ``--timeout``.

Exit codes are those of the other commands: 0 done, 1 refused, 2 usage, 3 not reachable.

Source: Pacemaker Explained, "Promotable clone options"; crm_attribute(8).
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from broker_stub.address import Address
from broker_stub.admission.auth import DEFAULT_ADMIN
from broker_stub.cli.options import ADDRESS, FILE, REFUSED, UNREACHABLE
from broker_stub.election.arbiter import ArbiterUnavailableError, open_arbiter
from broker_stub.election.generation import ArbiterRecord, GenerationState, Pending, may_promote
from broker_stub.election.roles import Role
from broker_stub.management_client import AdminClient, Credentials, MemberRefusedError, MemberUnreachableError

NEVER = "-INFINITY"
# An heir that is not connected to a primary is as complete as a ready one.  But while somebody is ready
# there is a primary, which the heir does not reach: the ready one is the better choice.
HEIR, READY, PRIMARY = "50", "100", "1000"


def score(role: str, *, heir: bool) -> str:
    """The promotion score of a member, as ``crm_attribute`` takes it.

    :param heir: whether the generation rule lets it be promoted now; matters while it is connecting.
    """
    match role:
        case Role.PRIMARY | Role.RECOVERING:
            return PRIMARY
        case Role.READY:
            return READY
        case Role.CONNECTING if heir:
            return HEIR
        case _:
            return NEVER


def is_heir(facts: Mapping[str, Any], record: ArbiterRecord) -> bool:
    """Whether a member with this status may be promoted under that record."""
    replication = facts.get("replication", {})
    pending = None
    if replication.get("pending") is not None:
        pending = Pending(replication["pending"], replication["claim"])
    return may_promote(GenerationState(replication.get("number"), pending), record) is None


async def ask(
    member: Address, arbiter: str, credentials: Credentials, tls_ca: Path | None, timeout: float
) -> tuple[str, str]:
    """Role and score of a member.

    :param timeout: seconds for all of it.
    :raises MemberUnreachableError, MemberRefusedError: see there.
    """
    tls = ssl.create_default_context(cafile=str(tls_ca)) if tls_ca else None
    try:
        async with asyncio.timeout(timeout):
            client = await AdminClient.connect(member, credentials, timeout=timeout, tls=tls)
            async with client:
                status = await client.status()
    except TimeoutError:
        raise MemberUnreachableError(f"{member}: no answer within {timeout:g} s") from None
    heir = status.role == Role.CONNECTING and await _is_heir_now(status.facts, arbiter, timeout)
    return status.role, score(status.role, heir=heir)


async def _is_heir_now(facts: Mapping[str, Any], arbiter: str, timeout: float) -> bool:
    opened = open_arbiter(arbiter, timeout=timeout)
    try:
        return is_heir(facts, await opened.read())
    except ArbiterUnavailableError as error:
        click.echo(str(error), err=True)
        return False
    finally:
        await opened.close()


@click.command()
@click.argument("member", metavar="HOST:PORT", type=ADDRESS)
@click.option("--arbiter", required=True, help="directory:PATH or zookeeper:HOST:PORT/PATH.")
@click.option("--user", default=DEFAULT_ADMIN, show_default=True)
@click.option("--password-file", type=FILE, required=True, help="File with the cluster-admin's password.")
@click.option("--tls-ca", type=FILE, help="Who signs the member's certificate (PEM).")
@click.option("--timeout", type=float, default=5.0, show_default=True, help="Seconds, for all of it.")
def main(
    *, member: Address, arbiter: str, user: str, password_file: Path, tls_ca: Path | None, timeout: float
) -> None:
    """Print a member's role and its promotion score."""
    credentials = Credentials(password_file.read_text().strip(), user)
    try:
        role, wish = asyncio.run(ask(member, arbiter, credentials, tls_ca, timeout / 2))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except MemberRefusedError as error:
        click.echo(str(error), err=True)
        sys.exit(REFUSED)
    except MemberUnreachableError as error:
        click.echo(str(error), err=True)
        sys.exit(UNREACHABLE)
    click.echo(f"{role} {wish}")


if __name__ == "__main__":
    main()
