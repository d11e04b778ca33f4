"""The roles of this member and the moves between them, as tables. No I/O.

Roles
------
A member with an arbiter has these (docs/replication.md):

``connecting``  searches for the primary.
``catchup``     receives the messages that it lacks.
``ready``       has every settled message.
``recovering``  is promoted: accepts messages, but settles none yet.
``primary``     serves clients.

An operator sets the role of a member without an arbiter: ``passive`` or ``primary``.

Rules
-----
* The tables ``WITH_ARBITER`` and ``BY_OPERATOR`` are complete: any other move is an error and changes
  nothing. ``scripts/state_diagrams.py`` draws them into docs/internals/member.md.
* The arbiter decides on a promotion from ``connecting`` or ``ready`` (``generation``). In ``catchup`` a
  promotion is refused without asking the arbiter, unless it is forced.
* Without an arbiter, a promotion makes a generation higher than any that this member knows.
* A member follows a primary only if the primary's generation is not below its own.

Source: Apache Qpid, "An active-passive, hot-standby design", "Broker discovery and lifecycle".
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace

from haclient.cluster_url.endpoint import Endpoint


class Role(enum.StrEnum):
    """The role of this member in the cluster."""

    CONNECTING = "connecting"
    CATCHUP = "catchup"
    READY = "ready"
    RECOVERING = "recovering"
    PASSIVE = "passive"
    PRIMARY = "primary"

    @property
    def serves(self) -> bool:
        """Return whether clients are admitted."""
        return self in (Role.PRIMARY, Role.RECOVERING)


class Move(enum.StrEnum):
    """A request to a member, or an event that changes its role."""

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
    # The supervisor's report of the primary's address only serves redirects.
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
    """A move that the table lacks, or that a newer generation forbids."""


@dataclass(frozen=True, slots=True)
class Membership:
    """The role of this member, and its knowledge of the primary.

    :param generation: the highest generation in which this member served or that it knows; 0 for none.
    :param primary: the address of the primary, if known, on a member that does not serve.
    :param arbitrated: true if an arbiter decides.
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
        """Stop serving."""
        return replace(self, role=self._move(Move.DEMOTE), primary=primary)

    def follow(self, primary: Endpoint | None, *, generation: int = 0) -> Membership:
        """Record the address of the primary, or that it is unknown."""
        role = self._move(Move.FOLLOW)
        if primary is not None and generation < self.generation:
            raise MoveRefusedError(
                f"{primary} is of generation {generation}; this member knows of generation {self.generation}"
            )
        return replace(self, role=role, generation=max(generation, self.generation), primary=primary)

    def found(self, primary: Endpoint | None, generation: int) -> Membership:
        """Begin to catch up from a primary."""
        generation = max(generation, self.generation)
        return replace(self, role=self._move(Move.FOUND), primary=primary, generation=generation)

    def caught_up(self, generation: int) -> Membership:
        """Become ready: the primary handed over its generation."""
        return replace(self, role=self._move(Move.CAUGHT_UP), generation=max(generation, self.generation))

    def lost(self) -> Membership:
        """Return to ``connecting``: the primary was lost."""
        return replace(self, role=self._move(Move.LOST), primary=None)

    def serve(self, generation: int, *, force: bool = False) -> Membership:
        """Serve in a generation from the arbiter; ``recovering`` until ``recovered``."""
        role = self._move(Move.FORCE if force else Move.PROMOTE)
        return replace(self, role=role, generation=generation, primary=None)

    def shrunk(self, generation: int) -> Membership:
        """Continue in another generation, without a replica that was ready."""
        return replace(self, role=self._move(Move.SHRUNK), generation=generation)

    def redirect_to(self, primary: Endpoint | None) -> Membership:
        """Redirect clients to the primary that the supervisor reports; this member need not follow it."""
        return replace(self, role=self._move(Move.FOLLOW), primary=primary)

    def recovered(self) -> Membership:
        """Become ``primary``: complete messages may be settled."""
        return replace(self, role=self._move(Move.RECOVERED))

    def check(self, move: Move) -> None:
        """Refuse a move that the table lacks.

        :raises MoveRefusedError: with the reason.
        """
        self._move(move)

    def _move(self, move: Move) -> Role:
        role = (WITH_ARBITER if self.arbitrated else BY_OPERATOR).get((self.role, move))
        if role is None:
            raise MoveRefusedError(f"{move}: this member is {self.role}")
        return role
