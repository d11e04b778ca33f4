"""The states of this member, as a table.  No I/O.

States
------
A member with an arbiter has these (docs/replication.md):

``connecting``  searches the primary.
``catchup``     receives what it lacks.
``ready``       has every settled message.
``recovering``  is promoted: takes messages, settles none yet.
``primary``     serves clients.

An operator sets the role of a member without an arbiter: ``passive`` or ``primary``.

Rules
-----
* The tables ``WITH_ARBITER`` and ``BY_OPERATOR`` are complete: any other move is an error and changes
  nothing.  ``scripts/state_diagrams.py`` draws them into docs/internals/member.md.
* What decides over a promotion from ``connecting`` or ``ready`` is the arbiter (``generation``);
  in ``catchup`` a promotion is refused without asking it, unless it is forced.
* Without an arbiter, a promotion makes a generation higher than any this member has heard of.
* A member follows a primary only of a generation that is not below its own.

Source: Apache Qpid, "An active-passive, hot-standby design", "Broker discovery and lifecycle".
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace

from haclient.cluster_url.endpoint import Endpoint


class Role(enum.StrEnum):
    """What this member is in the cluster."""

    CONNECTING = "connecting"
    CATCHUP = "catchup"
    READY = "ready"
    RECOVERING = "recovering"
    PASSIVE = "passive"
    PRIMARY = "primary"

    @property
    def serves(self) -> bool:
        """Whether clients are let in."""
        return self in (Role.PRIMARY, Role.RECOVERING)


class Move(enum.StrEnum):
    """What can be asked of a member, or happen to it."""

    PROMOTE = "promote"
    FORCE = "force-primary"
    SHRUNK = "in-sync-set-shrunk"
    RECOVERED = "recovered"
    DEMOTE = "demote"
    FOLLOW = "set-primary"
    FOUND = "found-primary"
    CAUGHT_UP = "caught-up"
    LOST = "lost-primary"


Moves = Mapping[tuple[Role, Move], Role]

WITH_ARBITER: Moves = {
    (Role.CONNECTING, Move.FOUND): Role.CATCHUP,
    (Role.CATCHUP, Move.CAUGHT_UP): Role.READY,
    # The primary has another generation.
    (Role.READY, Move.CAUGHT_UP): Role.READY,
    (Role.CONNECTING, Move.LOST): Role.CONNECTING,
    (Role.CATCHUP, Move.LOST): Role.CONNECTING,
    (Role.READY, Move.LOST): Role.CONNECTING,
    (Role.CONNECTING, Move.PROMOTE): Role.RECOVERING,
    (Role.READY, Move.PROMOTE): Role.RECOVERING,
    (Role.CONNECTING, Move.FORCE): Role.RECOVERING,
    (Role.CATCHUP, Move.FORCE): Role.RECOVERING,
    (Role.READY, Move.FORCE): Role.RECOVERING,
    (Role.RECOVERING, Move.RECOVERED): Role.PRIMARY,
    (Role.RECOVERING, Move.SHRUNK): Role.RECOVERING,
    (Role.PRIMARY, Move.SHRUNK): Role.PRIMARY,
    (Role.RECOVERING, Move.DEMOTE): Role.CONNECTING,
    (Role.PRIMARY, Move.DEMOTE): Role.CONNECTING,
    # The supervisor's report of where the primary is serves for redirects only.
    (Role.CONNECTING, Move.FOLLOW): Role.CONNECTING,
    (Role.CATCHUP, Move.FOLLOW): Role.CATCHUP,
    (Role.READY, Move.FOLLOW): Role.READY,
}
"""The moves of a member whose primary an arbiter decides."""

BY_OPERATOR: Moves = {
    (Role.PASSIVE, Move.PROMOTE): Role.PRIMARY,
    (Role.PASSIVE, Move.FOLLOW): Role.PASSIVE,
    (Role.PRIMARY, Move.DEMOTE): Role.PASSIVE,
}
"""The moves of a member without an arbiter."""


class MoveRefusedError(Exception):
    """A move that the table does not have, or that a newer generation forbids."""


@dataclass(frozen=True, slots=True)
class Membership:
    """What this member is, and what it knows of the primary.

    :param generation: the highest this member has served in or heard of; 0 for none.
    :param primary: where the primary is, as far as a member that does not serve knows.
    :param arbitrated: whether an arbiter decides.
    """

    role: Role = Role.PASSIVE
    generation: int = 0
    primary: Endpoint | None = None
    arbitrated: bool = False

    def promote(self, *, at_least: int = 0) -> Membership:
        """Become the primary, in a generation above this member's and not below ``at_least``."""
        role = self._move(Move.PROMOTE)
        return replace(self, role=role, generation=max(self.generation + 1, at_least), primary=None)

    def demote(self, primary: Endpoint | None = None) -> Membership:
        """Serve no longer."""
        return replace(self, role=self._move(Move.DEMOTE), primary=primary)

    def follow(self, primary: Endpoint | None, *, generation: int = 0) -> Membership:
        """Record where the primary is, or that it is unknown."""
        role = self._move(Move.FOLLOW)
        if primary is not None and generation < self.generation:
            raise MoveRefusedError(
                f"{primary} is of generation {generation}; this member knows of generation {self.generation}"
            )
        return replace(self, role=role, generation=max(generation, self.generation), primary=primary)

    def found(self, primary: Endpoint | None, generation: int) -> Membership:
        """A primary is followed."""
        generation = max(generation, self.generation)
        return replace(self, role=self._move(Move.FOUND), primary=primary, generation=generation)

    def caught_up(self, generation: int) -> Membership:
        """The primary handed over its generation."""
        return replace(self, role=self._move(Move.CAUGHT_UP), generation=max(generation, self.generation))

    def lost(self) -> Membership:
        """The primary is followed no longer."""
        return replace(self, role=self._move(Move.LOST), primary=None)

    def serve(self, generation: int, *, force: bool = False) -> Membership:
        """The arbiter gave this member a generation; ``recovering`` until ``recovered``."""
        role = self._move(Move.FORCE if force else Move.PROMOTE)
        return replace(self, role=role, generation=generation, primary=None)

    def shrunk(self, generation: int) -> Membership:
        """This primary goes on without a replica that was ready, in another generation."""
        return replace(self, role=self._move(Move.SHRUNK), generation=generation)

    def redirect_to(self, primary: Endpoint | None) -> Membership:
        """Send clients to the primary that the supervisor reports, which this member may not follow."""
        return replace(self, role=self._move(Move.FOLLOW), primary=primary)

    def recovered(self) -> Membership:
        """What is complete may be settled."""
        return replace(self, role=self._move(Move.RECOVERED))

    def check(self, move: Move) -> None:
        """Refuse a move that the table does not have.

        :raises MoveRefusedError: with the reason.
        """
        self._move(move)

    def _move(self, move: Move) -> Role:
        role = (WITH_ARBITER if self.arbitrated else BY_OPERATOR).get((self.role, move))
        if role is None:
            raise MoveRefusedError(f"{move}: this member is {self.role}")
        return role
