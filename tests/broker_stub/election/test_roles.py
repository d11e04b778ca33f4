from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from broker_stub.address import Address
from broker_stub.election.roles import MOVES, Membership, Move, MoveRefusedError, Role

HERE = Address("127.0.0.1", 5672)


CALLS: dict[Move, Callable[[Membership], Membership]] = {
    Move.PROMOTE: lambda membership: membership.promote(),
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
def test_a_move_is_in_the_table_or_refused(role: Role, move: Move) -> None:
    membership = Membership(role, 3)
    if (role, move) == (Role.READY, Move.CAUGHT_UP):
        # The primary hands a new number to a replica that is ready already.
        assert make(membership, move) == membership
    elif (role, move) in MOVES:
        assert make(membership, move).role is MOVES[role, move]
    else:
        with pytest.raises(MoveRefusedError, match=str(role)):
            make(membership, move)


def test_a_promotion_raises_the_generation_above_all_that_was_heard_of() -> None:
    heard = Membership().follow(HERE, generation=7)
    assert heard.promote().generation == 8
    assert heard.promote(at_least=12).generation == 12


def test_a_primary_of_an_older_generation_is_not_followed() -> None:
    with pytest.raises(MoveRefusedError, match="generation 4"):
        Membership(generation=5).follow(HERE, generation=4)


def test_a_demoted_member_keeps_its_generation_and_learns_the_primary() -> None:
    assert Membership(Role.PRIMARY, 4).demote(HERE) == Membership(Role.PASSIVE, 4, HERE)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("a:5672", Address("a", 5672)),
        ("amqps://a:5671", Address("a", 5671, tls=True)),
        ("[::1]:5672", Address("::1", 5672)),
        ("amqp://127.0.0.1:1/", Address("127.0.0.1", 1)),
    ],
)
def test_an_address_is_read_as_it_is_written(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize("text", ["", "a", "a:", "a:x", "a:70000", "::1:5672", "http://a:1", ":5672"])
def test_what_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"host:port|brackets|scheme"):
        Address.parse(text)
