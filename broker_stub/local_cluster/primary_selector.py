"""Which member of a pair is primary: decides, promotes, demotes, and tells the others.

Theory of operation
-------------------
``run`` looks at all members whenever something changed and does what is missing: promote one when
there is no primary, demote a primary that a newer one replaced, tell passive members where the
primary is.  It compares what is with what should be, so it does not matter which event came
first.

Rules
-----
* Which member may be promoted is the arbiter's business: a refusal means to try the next one.
* Where an operator demoted the primary in favour of a member, that one is tried first.
* A member that refuses because somebody else has just promoted it, is the primary.
* One decision at a time: a planned switch-over (``promote``) is one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from broker_stub.local_cluster.managed_members import Roster
from broker_stub.local_cluster.state import Member, MemberState
from broker_stub.management_client import AdminClient, AdminError, MemberRefusedError, MemberUnreachableError

logger = logging.getLogger("broker_stub.local_cluster.supervisor")

# Until a promotion that was refused is tried again: because of the arbiter, perhaps, which may be back.
_RETRY_PAUSE = 0.5


class Appointment:
    """Appoints the primary among the members of a roster.

    :param look: asks one member how it is.
    :ivar deciding: held while somebody is appointed.
    """

    def __init__(self, roster: Roster, look: Callable[[Member], Awaitable[None]]) -> None:
        self._roster = roster
        self._look = look
        self.deciding = asyncio.Lock()

    async def run(self) -> None:
        """For ever."""
        roster = self._roster
        while True:
            await roster.changed.wait()
            roster.changed.clear()
            try:
                async with self.deciding:
                    await self._reconcile()
                again = roster.primary is None and any(member.state.stands_by for member in roster.members)
            except AdminError as error:
                logger.warning("will try again: %s", error)
                again = True
            if again:
                await asyncio.sleep(_RETRY_PAUSE)
                roster.changed.set()

    async def promote(self, member: Member) -> None:
        """Make a member that is ready primary, in place of the one that is.

        :raises MemberRefusedError: when it is not ready or no heir; another one is appointed if need be.
        :raises MemberUnreachableError: when one of the two does not answer.
        """
        async with self.deciding:
            await self._survey()
            primary = self._roster.primary
            if primary is member:
                return
            if primary is not None:
                if member.state is not MemberState.READY:
                    raise MemberRefusedError(
                        f"{member.name} is {member.state}, and {primary.name} is primary"
                    )
                await self._demote(primary, in_favour_of=member)
            await self._promote(member)

    async def _reconcile(self) -> None:
        if self._roster.primary is None:
            await self._survey()
        primary = self._roster.primary or await self._promote_one()
        if primary is None:
            return
        others = (member for member in self._roster.members if member is not primary and member.alive)
        aligned = (self._align(member, primary) for member in others)
        for failure in await asyncio.gather(*aligned, return_exceptions=True):
            if failure is not None:  # of one that does not answer; the others know the primary by now
                raise failure

    async def _survey(self) -> None:
        """Look at every member anew: an operator may have promoted one since the last probes."""
        looks = (self._look(member) for member in self._roster.members if member.alive)
        for failure in await asyncio.gather(*looks, return_exceptions=True):
            if failure is not None and not isinstance(failure, AdminError):
                raise failure

    async def _promote_one(self) -> Member | None:
        members = self._roster.members
        named = {member.status.primary for member in members if member.alive and member.status is not None}
        standing_by = [member for member in members if member.state.stands_by and member.admin is not None]

        def rank(member: Member) -> tuple[bool, bool]:
            return member.address.authority not in named, member.state is not MemberState.READY

        for member in sorted(standing_by, key=rank):
            try:
                await self._promote(member)
            except MemberRefusedError as refused:
                # Only a refusal is certain: a member that did not answer may be primary by now.
                await self._look(member)
                if member.state.serves:
                    return member
                if member.refusal != str(refused):
                    member.refusal = str(refused)
                    self._roster.tell("failed", member, f"not promoted: {refused}")
            else:
                return member
        return None

    async def _promote(self, member: Member) -> None:
        member.status = await _admin(member).promote(at_least=self._roster.generation + 1)
        member.refusal = ""
        self._roster.tell("promoted", member, f"generation {member.generation}")
        self._roster.now(member, MemberState(member.status.role))

    async def _demote(self, member: Member, *, in_favour_of: Member) -> None:
        member.status = await _admin(member).demote(in_favour_of.address)
        member.follows = None
        self._roster.tell("demoted", member, f"{in_favour_of.name} is primary")
        self._roster.now(member, MemberState(member.status.role))

    async def _align(self, member: Member, primary: Member) -> None:
        """Make a member a passive one that knows the primary."""
        if member.state.serves:
            await self._demote(member, in_favour_of=primary)
        if member.follows != primary.address:
            member.status = await _admin(member).set_primary(primary.address, generation=primary.generation)
            member.follows = primary.address
            self._roster.tell("follows", member, f"{primary.name}, generation {primary.generation}")


def _admin(member: Member) -> AdminClient:
    """The connection to a member.

    :raises MemberUnreachableError: while there is none.
    """
    if member.admin is None:
        raise MemberUnreachableError(f"{member.name} is {member.state}")
    return member.admin
