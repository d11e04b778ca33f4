"""Promotion as an operator means it: with a living primary it is a planned switch-over.

Theory of operation
-------------------
A backup that is ready follows a primary.  If that one lives it is demoted first: it settles nothing
more, and what it did not settle its clients send again.  Then the backup is promoted, by the same
rule as ever.  When it is refused all the same, the former primary is promoted again, so that the
cluster is not left without one.

A manager that watches the cluster may promote a member in between.  If it was the one that was
asked for, all is well.
"""

from __future__ import annotations

from dataclasses import replace

from broker_stub.address import Address
from broker_stub.cli.member_requests import LOOK_TIMEOUT, Answer, Asking
from broker_stub.cli.options import REFUSED
from broker_stub.election.roles import Role
from broker_stub.management_client import AdminClient, MemberStatus

_FOLLOWERS = (Role.READY, Role.PASSIVE)
# A primary that takes longer to say that it lives is as good as dead: the promotion is safe all the same.
_LIVES_WITHIN = 2.0


async def take_over(
    asking: Asking, member: Address, *, at_least: int = 0, force: bool = False
) -> Answer[MemberStatus]:
    """Promote a member; first demote the primary that it follows.

    :param at_least: the lowest generation, without an arbiter.
    :param force: demote nobody and skip rule 1.
    """

    async def promote(client: AdminClient) -> MemberStatus:
        return await client.promote(at_least=at_least, force=force)

    before = await asking.at_most(LOOK_TIMEOUT).one(member, AdminClient.status)
    if before.result is None:
        return before
    former = None if force else await _living_primary(asking, member, before.result)
    if former is None:
        return await asking.one(member, promote)
    demoted = await asking.one(former, lambda client: client.demote(member))
    if demoted.result is None:
        return replace(demoted, error=f"the primary was not demoted: {demoted.error}")
    at_least = max(at_least, demoted.result.generation + 1)
    return await _promoted(asking, former, await asking.one(member, promote))


async def _living_primary(asking: Asking, member: Address, status: MemberStatus) -> Address | None:
    """The primary that a member follows, if it answers that it is one."""
    if status.role not in _FOLLOWERS or status.primary is None:
        return None
    where = Address.parse(status.primary)
    primary = Address(where.host, where.port, tls=member.tls)
    answer = await asking.at_most(_LIVES_WITHIN).one(primary, AdminClient.status)
    return primary if answer.result is not None and answer.result.serves else None


async def _promoted(asking: Asking, former: Address, answer: Answer[MemberStatus]) -> Answer[MemberStatus]:
    """After the former primary was demoted: what came of the promotion, made good where it was refused."""
    if answer.result is not None:
        return answer
    if answer.code != REFUSED:
        return replace(answer, error=f"{answer.error}; {former} was demoted: ask for their status")
    now = await asking.one(answer.address, AdminClient.status)
    if now.result is not None and now.result.serves:
        return now
    back = await asking.one(former, AdminClient.promote)
    if back.result is not None:
        return replace(answer, error=f"{answer.error}; {former} is primary again")
    return replace(answer, error=f"{answer.error}; {former} was demoted, and: {back.error}")
