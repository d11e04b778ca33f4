"""The role of this member, as a table.  No I/O.

States
------
``passive``  refuses clients: with a redirect when it knows the primary, otherwise outright.
``primary``  serves clients.

Rules
-----
* ``MOVES`` is the whole truth: any move that is not in it is refused and changes nothing.
* A promotion makes a generation higher than any this member has heard of.
* A member follows a primary only of a generation that is not below its own.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from broker_stub.address import Address


class Role(enum.StrEnum):
    """What this member is in the cluster."""

    PASSIVE = "passive"
    PRIMARY = "primary"


class Move(enum.StrEnum):
    """What can be asked of a member."""

    PROMOTE = "promote"
    DEMOTE = "demote"
    FOLLOW = "set-primary"


MOVES: dict[tuple[Role, Move], Role] = {
    (Role.PASSIVE, Move.PROMOTE): Role.PRIMARY,
    (Role.PRIMARY, Move.DEMOTE): Role.PASSIVE,
    (Role.PASSIVE, Move.FOLLOW): Role.PASSIVE,
}


class MoveRefusedError(Exception):
    """A move that the table does not have, or that a newer generation forbids."""


@dataclass(frozen=True, slots=True)
class Membership:
    """What this member is, and what it knows of the primary.

    :param generation: the highest this member has served in or heard of; 0 for none.
    :param primary: where the primary is, as far as a passive member knows.
    """

    role: Role = Role.PASSIVE
    generation: int = 0
    primary: Address | None = None

    def promote(self, *, at_least: int = 0) -> Membership:
        """Become the primary, in a generation above this member's and not below ``at_least``."""
        role = self._move(Move.PROMOTE)
        return Membership(role, max(self.generation + 1, at_least))

    def demote(self, primary: Address | None = None) -> Membership:
        """Become passive."""
        return replace(self, role=self._move(Move.DEMOTE), primary=primary)

    def follow(self, primary: Address | None, *, generation: int = 0) -> Membership:
        """Take note of where the primary is, or that nobody knows."""
        role = self._move(Move.FOLLOW)
        if primary is not None and generation < self.generation:
            raise MoveRefusedError(
                f"{primary} is of generation {generation}; this member knows of generation {self.generation}"
            )
        return Membership(role, max(generation, self.generation), primary)

    def _move(self, move: Move) -> Role:
        role = MOVES.get((self.role, move))
        if role is None:
            raise MoveRefusedError(f"{move}: this member is {self.role}")
        return role
