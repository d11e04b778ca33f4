"""The selector's first choice of a member, with members that answer from a script."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker_stub.local_cluster.managed_members import ManagedMembers
from broker_stub.local_cluster.primary_selector import PrimarySelector
from broker_stub.local_cluster.state import Member, MemberState
from broker_stub.management_client import MemberStatus
from haclient.cluster_url.endpoint import Endpoint


class Admin:
    """A scripted management connection of a member."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def promote(self, *, at_least: int) -> MemberStatus:
        return status(self.name, "primary", at_least, None)

    async def set_primary(self, primary: Endpoint, *, generation: int) -> MemberStatus:
        return status(self.name, "ready", generation, primary.authority)


def status(name: str, role: str, generation: int, primary: str | None) -> MemberStatus:
    return MemberStatus(name, role, generation, primary, 0, {})


def made(number: int, state: MemberState, role: str, primary: str | None) -> Member:
    member = Member(
        f"member-{number}", Endpoint("127.0.0.1", number), cast("Any", SimpleNamespace(pid=number))
    )
    member.state, member.status = state, status(member.name, role, 1, primary)
    member.admin = cast("Any", Admin(member.name))
    return member


async def the_next(successor: str | None, former: MemberState) -> str:
    """Return the member that is promoted when member-1 was the primary, and is demoted."""
    managed = ManagedMembers()
    first = made(1, MemberState.PRIMARY, "primary", None)
    others = [made(number, MemberState.READY, "ready", first.address.authority) for number in (2, 3)]
    managed.members = (first, *others)

    async def refresh(_member: Member) -> None:
        """Do nothing: no fact has changed."""

    selector = PrimarySelector(managed, refresh)
    running = asyncio.create_task(selector.run())
    managed.changed.set()
    while not all(member.follows == first.address for member in others):
        await managed.wait_for_change()
    first.status = status(first.name, "ready", 1, successor)
    managed.set_state(first, former)
    while managed.primary is None:
        await managed.wait_for_change()
    running.cancel()
    assert managed.primary is not None
    return managed.primary.name


@pytest.mark.parametrize("former", [MemberState.READY, MemberState.CONNECTING])
async def test_the_member_that_the_former_primary_names_comes_first(former: MemberState) -> None:
    """Members that still follow the former primary name it, and it may be ready again by then."""
    assert await the_next("127.0.0.1:3", former) == "member-3"


async def test_a_primary_that_was_demoted_for_nobody_comes_last() -> None:
    assert await the_next(None, MemberState.READY) == "member-2"
