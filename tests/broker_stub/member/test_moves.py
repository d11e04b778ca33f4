"""The tables of a member's roles: every row is needed, and no other move is allowed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from broker_stub.election import roles
from broker_stub.election.generation import ArbiterRecord
from broker_stub.election.roles import BY_OPERATOR, WITH_ARBITER, Membership, Move, MoveRefusedError, Role
from broker_stub.member.member import Member
from haclient.cluster_url.endpoint import Endpoint
from tests.broker_stub.member.parts import Parts

HERE = Endpoint("127.0.0.1", 5672)
LATER = ArbiterRecord(2, "claim")


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    """A started member, which is stopped at the end of the test."""
    made = Parts()
    await made.member.start()
    yield made
    made.member.replica_set, former = None, made.member.replica_set
    if former is not None:
        await former.close()
    await made.member.stop()


async def catches_up(member: Member) -> None:
    member.found_primary(HERE, 1)


async def is_ready(member: Member) -> None:
    await catches_up(member)
    member.caught_up(1, ())


async def recovers(member: Member) -> None:
    """Promote a member while another replica of the old primary is missing."""
    member.others = ("c",)
    await member.promote()
    assert member.membership.role is Role.RECOVERING


async def is_ready_twice(member: Member) -> None:
    await is_ready(member)
    member.caught_up(2, ())


async def promoted(member: Member) -> None:
    await member.promote()


async def forced(member: Member) -> None:
    await member.promote(force=True)


async def lost(member: Member) -> None:
    member.lost_primary()


async def shrunk(member: Member) -> None:
    member.generation_changed(LATER)


async def demoted(member: Member) -> None:
    await member.demote(HERE)


async def hinted(member: Member) -> None:
    member.follow_hint(HERE)


Step = Callable[[Member], Awaitable[None]]

SCENARIOS: dict[tuple[Role, Move], tuple[Step, ...]] = {
    (Role.CONNECTING, Move.FOUND): (catches_up,),
    (Role.CATCHUP, Move.CAUGHT_UP): (is_ready,),
    (Role.READY, Move.CAUGHT_UP): (is_ready_twice,),
    (Role.CONNECTING, Move.LOST): (lost,),
    (Role.CATCHUP, Move.LOST): (catches_up, lost),
    (Role.READY, Move.LOST): (is_ready, lost),
    (Role.CONNECTING, Move.PROMOTE): (promoted,),
    (Role.READY, Move.PROMOTE): (is_ready, promoted),
    (Role.CONNECTING, Move.FORCE): (forced,),
    (Role.CATCHUP, Move.FORCE): (catches_up, forced),
    (Role.READY, Move.FORCE): (is_ready, forced),
    (Role.RECOVERING, Move.RECOVERED): (promoted,),
    (Role.RECOVERING, Move.SHRUNK): (recovers, shrunk),
    (Role.PRIMARY, Move.SHRUNK): (promoted, shrunk),
    (Role.RECOVERING, Move.DEMOTE): (recovers, demoted),
    (Role.PRIMARY, Move.DEMOTE): (promoted, demoted),
    (Role.CONNECTING, Move.FOLLOW): (hinted,),
    (Role.CATCHUP, Move.FOLLOW): (catches_up, hinted),
    (Role.READY, Move.FOLLOW): (is_ready, hinted),
}

OPERATED: dict[tuple[Role, Move], Callable[[Membership], Membership]] = {
    (Role.PASSIVE, Move.PROMOTE): lambda alone: alone.promote(),
    (Role.PASSIVE, Move.FOLLOW): lambda alone: alone.follow(HERE, generation=1),
    (Role.PRIMARY, Move.DEMOTE): lambda alone: alone.promote().demote(),
}


async def run(member: Member, row: tuple[Role, Move]) -> None:
    for step in SCENARIOS[row]:
        await step(member)


def name(row: tuple[Role, Move]) -> str:
    return f"{row[0]}-{row[1]}"


def test_every_row_has_a_scenario() -> None:
    """A new row needs a scenario that shows its reason."""
    assert SCENARIOS.keys() == WITH_ARBITER.keys()
    assert OPERATED.keys() == BY_OPERATOR.keys()


@pytest.mark.parametrize("row", SCENARIOS, ids=name)
async def test_a_member_with_an_arbiter_takes_every_row(row: tuple[Role, Move], parts: Parts) -> None:
    """Each move consists of calls of the member's backup, replica set and broker."""
    await run(parts.member, row)
    assert WITH_ARBITER[row] in {membership.role for membership in parts.host.shown}
    assert parts.host.shown[-1] == parts.member.membership


@pytest.mark.parametrize("row", SCENARIOS, ids=name)
async def test_no_row_can_be_deleted(
    row: tuple[Role, Move], parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its row the scenario raises an error."""
    rest = {key: to for key, to in WITH_ARBITER.items() if key != row}
    monkeypatch.setattr(roles, "WITH_ARBITER", rest)
    with pytest.raises(MoveRefusedError) as refused:
        await run(parts.member, row)
    assert f"{row[1]}: this member is {row[0]}" in f"{refused.value} {refused.value.__context__}"


@pytest.mark.parametrize("row", OPERATED, ids=name)
def test_no_row_without_an_arbiter_can_be_deleted(
    row: tuple[Role, Move], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scenario works with the whole table, and fails without its row."""
    assert OPERATED[row](Membership()).role is BY_OPERATOR[row]
    monkeypatch.setattr(roles, "BY_OPERATOR", {key: to for key, to in BY_OPERATOR.items() if key != row})
    with pytest.raises(MoveRefusedError, match=f"{row[1]}: this member is {row[0]}"):
        OPERATED[row](Membership())
