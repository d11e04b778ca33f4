"""Promotes a member; with a living primary this is a planned switch-over.

Theory of operation
-------------------
A ready backup follows a primary. If the primary lives, the command demotes it first. The primary then settles
no more messages, and its clients resend the unsettled ones. Next, the command promotes the backup by the
usual rule. If the backup refuses, the command promotes the former primary again, so that the cluster has a
primary.

A supervisor of the cluster may promote a member in between. If that is the requested member, the command
succeeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from broker_stub.amqp.endpoints import parse_endpoint
from broker_stub.cli.member_requests import STATUS_TIMEOUT, Answer, MemberRequests
from broker_stub.command_options import REFUSED
from broker_stub.election.roles import Role
from broker_stub.management_client import AdminClient, MemberStatus
from haclient.cluster_url.endpoint import Endpoint

_FOLLOWERS = (Role.READY, Role.PASSIVE)
# Seconds for a primary's status; a slower primary counts as dead, and the promotion stays safe.
_LIVENESS_TIMEOUT = 2.0


async def take_over(
    requests: MemberRequests, member: Endpoint, *, at_least: int = 0, force: bool = False
) -> Answer[MemberStatus]:
    """Promote a member; first demote the primary that it follows.

    :param at_least: the lowest generation, without an arbiter.
    :param force: demote no member and skip rule 1.
    """

    async def promote(client: AdminClient) -> MemberStatus:
        return await client.promote(at_least=at_least, force=force)

    answer = await _take_over(requests, member, promote, at_least=at_least, force=force)
    if force and answer.result is not None:
        await _announce(requests, member, answer.result)
    return answer


async def _announce(requests: MemberRequests, member: Endpoint, status: MemberStatus) -> None:
    """Make the other members read the arbiter, so that a primary among them steps down at once."""
    addresses = (parse_endpoint(text) for text in status.facts["members"])
    others = [Endpoint(found.host, found.port, tls=member.tls) for found in addresses]
    brief = requests.with_timeout_at_most(_LIVENESS_TIMEOUT)
    await asyncio.gather(
        *(brief.one(other, AdminClient.check_arbiter) for other in others if other != member)
    )


async def _take_over(
    requests: MemberRequests,
    member: Endpoint,
    promote: Callable[[AdminClient], Awaitable[MemberStatus]],
    *,
    at_least: int,
    force: bool,
) -> Answer[MemberStatus]:
    before = await requests.with_timeout_at_most(STATUS_TIMEOUT).one(member, AdminClient.status)
    if before.result is None:
        return before
    former = None if force else await _living_primary(requests, member, before.result)
    if former is None:
        return await requests.one(member, promote)
    demoted = await requests.one(former, lambda client: client.demote(member))
    if demoted.result is None:
        return replace(demoted, error=f"the primary was not demoted: {demoted.error}")
    at_least = max(at_least, demoted.result.generation + 1)
    return await _promoted(requests, former, await requests.one(member, promote))


async def _living_primary(
    requests: MemberRequests, member: Endpoint, status: MemberStatus
) -> Endpoint | None:
    """Return the primary that a member follows, if it confirms that it serves."""
    if status.role not in _FOLLOWERS or status.primary is None:
        return None
    where = parse_endpoint(status.primary)
    primary = Endpoint(where.host, where.port, tls=member.tls)
    answer = await requests.with_timeout_at_most(_LIVENESS_TIMEOUT).one(primary, AdminClient.status)
    return primary if answer.result is not None and answer.result.serves else None


async def _promoted(
    requests: MemberRequests, former: Endpoint, answer: Answer[MemberStatus]
) -> Answer[MemberStatus]:
    """Return the answer to a promotion; if it was refused, promote the demoted primary again."""
    if answer.result is not None:
        return answer
    if answer.code != REFUSED:
        return replace(answer, error=f"{answer.error}; {former} was demoted: ask for their status")
    now = await requests.one(answer.address, AdminClient.status)
    if now.result is not None and now.result.serves:
        return now
    back = await requests.one(former, AdminClient.promote)
    if back.result is not None:
        return replace(answer, error=f"{answer.error}; {former} is primary again")
    return replace(answer, error=f"{answer.error}; {former} was demoted, and: {back.error}")
