r"""Prints a member's role and promotion score (``ROLE SCORE``) for the Pacemaker agent.

    python -m broker_stub.resource_agents.probe 127.0.0.1:5672 --arbiter directory:/shared/arbiter \
        --password-file /etc/broker-stub/password

Rules
-----
* The score is a preference. At the promotion, the generation rule decides which member may be primary.
* A member in ``connecting`` that is eligible (``generation``) has every settled message, so it must have a
  score. If the primary or all members died, no member is ``ready``, and Pacemaker promotes no member without
  a score.
* A member that was neither ready nor primary since its start may have just crashed. It scores less than every
  other eligible member. All such members score the same, so that one is promoted at a first start, or after
  the death of all.
* While the arbiter does not answer, no member counts as eligible: its promotion would be refused.
* The member has ``--patience`` to answer; all steps together take at most ``--timeout``.

Exit codes are the same as for the other commands: 0 done, 1 refused, 2 usage, 3 not reachable.

Source: Pacemaker Explained, "Promotable clone options"; crm_attribute(8).
"""

from __future__ import annotations

import asyncio
import ssl
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from broker_stub.admission.user_file import DEFAULT_ADMIN
from broker_stub.command_options import ADDRESS, ARBITER_VARIABLE, FILE, REFUSED, UNREACHABLE
from broker_stub.election.arbiter import ArbiterUnavailableError, open_arbiter
from broker_stub.election.generation import ArbiterRecord, GenerationState, Pending, may_promote
from broker_stub.election.roles import Role
from broker_stub.management_client import AdminClient, MemberRefusedError, MemberUnreachableError
from haclient import Credentials
from haclient.cluster_url.endpoint import Endpoint
from haclient.printable.lines import echo_line

NEVER = "-INFINITY"
# An eligible member without a connection to a primary is as complete as a ready one. But a ready member has a
# primary that the eligible one does not reach, so the ready one is the better choice.
FRESH, ELIGIBLE, READY, PRIMARY = "10", "50", "100", "1000"
# Seconds for the status. If an idle process stays silent longer, the agent takes it for hung and kills it. A
# busy process is asked again (``make monitors`` counts the ones that would be killed).
PATIENCE = 2.0
# Least seconds for the arbiter, however late the member answered.
_LEAST = 0.5


def score(role: str, *, eligible: bool, was_in_sync: bool = True) -> str:
    """Return the promotion score of a member, in the form for ``crm_attribute``.

    :param eligible: true if the generation rule allows its promotion now; matters only while connecting.
    :param was_in_sync: true if it was ready or primary since its start; matters only if eligible.
    """
    match role:
        case Role.PRIMARY | Role.RECOVERING:
            return PRIMARY
        case Role.READY:
            return READY
        case Role.CONNECTING if eligible:
            return ELIGIBLE if was_in_sync else FRESH
        case _:
            return NEVER


def is_eligible(facts: Mapping[str, Any], record: ArbiterRecord) -> bool:
    """Return whether a member with this status may be promoted under that record."""
    replication = facts.get("replication", {})
    pending = None
    if replication.get("pending") is not None:
        pending = Pending(replication["pending"], replication["claim"])
    claim, cluster = (str(replication.get(key) or "") for key in ("number_claim", "cluster"))
    return may_promote(GenerationState(replication.get("number"), pending, claim, cluster), record) is None


async def read_role_and_score(
    member: Endpoint,
    arbiter: str,
    credentials: Credentials,
    tls_ca: Path | None,
    *,
    patience: float,
    timeout: float,
) -> tuple[str, str]:
    """Read a member's role and compute its score.

    :param patience: seconds for the member's answer; ``timeout`` includes this and the arbiter's answer.
    :raises MemberUnreachableError, MemberRefusedError: see ``AdminClient``.
    """
    began = time.monotonic()
    tls = ssl.create_default_context(cafile=str(tls_ca)) if tls_ca else None
    try:
        async with asyncio.timeout(patience):
            client = await AdminClient.connect(member, credentials, timeout=patience, tls=tls)
            async with client:
                status = await client.status()
    except TimeoutError:
        raise MemberUnreachableError(f"{member}: no answer within {patience:g} s") from None
    left = max(timeout - (time.monotonic() - began), _LEAST)
    eligible = status.role == Role.CONNECTING and await _is_eligible_now(status.facts, arbiter, left)
    was_in_sync = bool(status.facts.get("replication", {}).get("was_in_sync", True))
    return status.role, score(status.role, eligible=eligible, was_in_sync=was_in_sync)


async def _is_eligible_now(facts: Mapping[str, Any], arbiter: str, timeout: float) -> bool:
    opened = open_arbiter(arbiter, timeout=timeout)
    try:
        return is_eligible(facts, await opened.read())
    except ArbiterUnavailableError as error:
        echo_line(str(error), err=True)
        return False
    finally:
        await opened.close()


@click.command()
@click.argument("member", metavar="HOST:PORT", type=ADDRESS)
@click.option(
    "--arbiter",
    envvar=ARBITER_VARIABLE,
    required=True,
    help="directory:PATH or zookeeper:HOST:PORT/PATH.",
)
@click.option("--user", default=DEFAULT_ADMIN, show_default=True)
@click.option("--password-file", type=FILE, required=True, help="File with the cluster-admin's password.")
@click.option("--tls-ca", type=FILE, help="Certificates of the authority that signs the member's (PEM).")
@click.option("--patience", type=float, default=PATIENCE, show_default=True, help="Seconds for the member.")
@click.option("--timeout", type=float, default=5.0, show_default=True, help="Seconds for all steps together.")
def main(
    *,
    member: Endpoint,
    arbiter: str,
    user: str,
    password_file: Path,
    tls_ca: Path | None,
    patience: float,
    timeout: float,
) -> None:
    """Print a member's role and its promotion score."""
    credentials = Credentials(user=user, password=password_file.read_text().strip())
    try:
        role, promotion_score = asyncio.run(
            read_role_and_score(
                member,
                arbiter,
                credentials,
                tls_ca,
                patience=min(patience, timeout),
                timeout=timeout,
            )
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except MemberRefusedError as error:
        echo_line(str(error), err=True)
        sys.exit(REFUSED)
    except MemberUnreachableError as error:
        echo_line(str(error), err=True)
        sys.exit(UNREACHABLE)
    echo_line(f"{role} {promotion_score}")


if __name__ == "__main__":
    main()
