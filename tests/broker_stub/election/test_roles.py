from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from broker_stub.election.roles import (
    BY_OPERATOR,
    WITH_ARBITER,
    Membership,
    Move,
    MoveRefusedError,
    Moves,
    Role,
)
from haclient.cluster_url.endpoint import Endpoint

HERE = Endpoint("127.0.0.1", 5672)


CALLS: dict[Move, Callable[[Membership], Membership]] = {
    Move.PROMOTE: lambda membership: membership.promote(),
    Move.FORCE: lambda membership: membership.serve(membership.generation, force=True),
    Move.SHRUNK: lambda membership: membership.shrunk(membership.generation),
    Move.DEMOTE: lambda membership: membership.demote(),
    Move.FOLLOW: lambda membership: membership.follow(HERE, generation=membership.generation),
    Move.FOUND: lambda membership: membership.found(HERE, membership.generation),
    Move.CAUGHT_UP: lambda membership: membership.caught_up(membership.generation),
    Move.LOST: lambda membership: membership.lost(),
    Move.RECOVERED: lambda membership: membership.recovered(),
}


def make(membership: Membership, move: Move) -> Membership:
    return CALLS[move](membership)


@pytest.mark.parametrize(("role", "move"), [*itertools.product(Role, Move)])
@pytest.mark.parametrize(
    ("arbitrated", "table"), [(True, WITH_ARBITER), (False, BY_OPERATOR)], ids=["arbiter", "operator"]
)
def test_a_move_is_in_the_table_or_refused(role: Role, move: Move, arbitrated: bool, table: Moves) -> None:
    membership = Membership(role, 3, arbitrated=arbitrated)
    if (role, move) in table:
        assert make(membership, move).role is table[role, move]
    else:
        with pytest.raises(MoveRefusedError, match=f"{move}: this member is {role}"):
            make(membership, move)


def test_a_ready_replica_stays_ready_when_it_gets_another_generation() -> None:
    membership = Membership(Role.READY, 3, arbitrated=True)
    assert membership.caught_up(3) == membership


def test_a_promotion_raises_the_generation_above_all_that_was_heard_of() -> None:
    heard = Membership().follow(HERE, generation=7)
    assert heard.promote().generation == 8
    assert heard.promote(at_least=12).generation == 12


def test_a_primary_of_an_older_generation_is_not_followed() -> None:
    with pytest.raises(MoveRefusedError, match="generation 4"):
        Membership(generation=5).follow(HERE, generation=4)


def test_a_demoted_member_keeps_its_generation_and_learns_the_primary() -> None:
    assert Membership(Role.PRIMARY, 4).demote(HERE) == Membership(Role.PASSIVE, 4, HERE)
