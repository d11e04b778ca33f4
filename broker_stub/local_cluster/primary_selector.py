"""Selects the primary of a local cluster: promotes, demotes, and informs the other members.

Theory of operation
-------------------
Whenever a member changes, ``run`` compares all members with the desired state and repairs the difference. It
promotes a member if none is primary, demotes a primary that a newer one replaced, and sends passive members
the address of the primary. So the order of events does not matter.

Rules
-----
* The arbiter decides which member may be promoted: after a refusal the selector tries the next one.
* If an operator demoted the primary and named a successor, the selector tries that one first.
* If a member refuses because another client has just promoted it, it is the primary.
* The selector makes one decision at a time; a planned switch-over (``promote``) counts as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from broker_stub.local_cluster.managed_members import ManagedMembers
from broker_stub.local_cluster.state import Member, MemberState
from broker_stub.management_client import AdminClient, AdminError, MemberRefusedError, MemberUnreachableError
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.local_cluster.supervisor")

# Seconds until a refused promotion is retried: the arbiter may answer by then.
_RETRY_PAUSE = 0.5


class PrimarySelector:
    """Selects the primary among the managed members.

    :param refresh: reads the status of one member.
    :ivar deciding: the lock of each decision.
    """

    def __init__(self, managed: ManagedMembers, refresh: Callable[[Member], Awaitable[None]]) -> None:
        self._managed = managed
        self._refresh = refresh
        self._former: Member | None = None
        self.deciding = asyncio.Lock()

    async def run(self) -> None:
        """Keep one member primary, until cancelled."""
        managed = self._managed
        while True:
            await managed.changed.wait()
            managed.changed.clear()
            try:
                async with self.deciding:
                    await self._reconcile()
                again = managed.primary is None and any(member.state.stands_by for member in managed.members)
            except AdminError as error:
                logger.warning("will try again: %s", error)
                again = True
            if again:
                await asyncio.sleep(_RETRY_PAUSE)
                managed.changed.set()

    async def promote(self, member: Member) -> None:
        """Replace the primary by a member that is ready.

        :raises MemberRefusedError: if it is not ready or not eligible; another one is promoted if necessary.
        :raises MemberUnreachableError: if one of the two does not answer.
        """
        async with self.deciding:
            await self._refresh_all()
            primary = self._managed.primary
            if primary is member:
                return
            if primary is not None:
                if member.state is not MemberState.READY:
                    raise MemberRefusedError(
                        f"{member.name} is {member.state}, and {primary.name} is primary"
                    )
                await self._demote(primary, successor=member)
            await self._promote(member)

    async def _reconcile(self) -> None:
        if self._managed.primary is None:
            await self._refresh_all()
        primary = self._managed.primary or await self._promote_one()
        if primary is None:
            return
        self._former = primary
        others = (member for member in self._managed.members if member is not primary and member.alive)
        aligned = (self._align(member, primary) for member in others)
        for failure in await asyncio.gather(*aligned, return_exceptions=True):
            if failure is not None:  # one did not answer; the others know the primary by now
                raise failure

    async def _refresh_all(self) -> None:
        """Read every member's status: an operator may have promoted one since the last probes."""
        refreshes = (self._refresh(member) for member in self._managed.members if member.alive)
        for failure in await asyncio.gather(*refreshes, return_exceptions=True):
            if failure is not None and not isinstance(failure, AdminError):
                raise failure

    async def _promote_one(self) -> Member | None:
        members = self._managed.members
        standing_by = [member for member in members if member.state.stands_by and member.admin is not None]
        successor = self._successor()

        def rank(member: Member) -> tuple[bool, bool, bool]:
            is_another = member.address.authority != successor
            return is_another, member.state is not MemberState.READY, member is self._former

        for member in sorted(standing_by, key=rank):
            try:
                await self._promote(member)
            except MemberRefusedError as refused:
                # Only a refusal is certain: a member that did not answer may be primary by now.
                await self._refresh(member)
                if member.state.serves:
                    return member
                if member.refusal != str(refused):
                    member.refusal = str(refused)
                    self._managed.emit("failed", member, f"not promoted: {refused}")
            else:
                return member
        return None

    def _successor(self) -> str | None:
        """Return the successor that the former primary names; other members still name the former one."""
        former = self._former
        return former.status.primary if former is not None and former.alive and former.status else None

    async def _promote(self, member: Member) -> None:
        member.status = await _admin_client(member).promote(at_least=self._managed.generation + 1)
        member.refusal = ""
        self._managed.emit("promoted", member, f"generation {member.generation}")
        self._managed.set_state(member, MemberState(member.status.role))

    async def _demote(self, member: Member, *, successor: Member) -> None:
        member.status = await _admin_client(member).demote(successor.address)
        member.follows = None
        self._managed.emit("demoted", member, f"{successor.name} is primary")
        self._managed.set_state(member, MemberState(member.status.role))

    async def _align(self, member: Member, primary: Member) -> None:
        """Make a member passive and send it the address of the primary."""
        if member.state.serves:
            await self._demote(member, successor=primary)
        if member.follows != primary.address:
            member.status = await _admin_client(member).set_primary(
                primary.address, generation=primary.generation
            )
            member.follows = primary.address
            self._managed.emit("follows", member, f"{primary.name}, generation {primary.generation}")


def _admin_client(member: Member) -> AdminClient:
    """Return the connection to a member.

    :raises MemberUnreachableError: while there is no connection.
    """
    if member.admin is None:
        raise MemberUnreachableError(f"{member.name} is {member.state}")
    return member.admin
