"""The members as clients meet them, and counts of their attempts."""

from __future__ import annotations

import enum
from array import array

from haclient.simulation.clock import Clock
from haclient.simulation.primary import Primary
from haclient.simulation.scenario import Scenario

FIRST_RTO = 1.0  # s; RFC 6298, section 2: doubled from one repetition of a SYN to the next


class Role(enum.IntEnum):
    """What a member does with an attempt."""

    DEAD = 0
    """No process listens: a reset."""
    PASSIVE = 1
    """Closes with ``amqp:connection:forced``."""
    PARKS = 2
    REDIRECTS = 3
    PRIMARY = 4


class World:
    """Everything that is not a client.

    :ivar back: when clients became usable, in seconds after the primary is back.
    :ivar attempts: the same for attempts at the primary.
    :ivar earlier: attempts before the primary is back.
    :ivar elsewhere: attempts at other members after that.
    :ivar parked: attempts that a member parked.
    :ivar gave_up: clients that gave up.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.clock = Clock()
        self.primary = Primary(scenario)
        self.back = array("d")
        self.attempts = array("d")
        self.earlier = 0
        self.elsewhere = 0
        self.parked = 0
        self.gave_up = 0
        self._serves = 0 if scenario.members == 1 else 1
        self._redirects_from = scenario.members - scenario.redirecting

    @property
    def serving(self) -> int:
        """The place of the new primary in the clients' list."""
        return self._serves

    def role(self, member: int, now: float, *, may_park: bool = False) -> Role:
        """What this member does with an attempt that begins now."""
        is_up = now >= self.scenario.outage
        if member == self._serves and is_up:
            return Role.PRIMARY
        if member == 0:
            return Role.DEAD
        knows = member >= self._redirects_from
        if is_up:
            return Role.REDIRECTS if knows else Role.PASSIVE
        parks = may_park and self.scenario.parking and (knows or member == self._serves)
        return Role.PARKS if parks else Role.PASSIVE

    def count(self, role: Role, now: float) -> None:
        """An attempt begins."""
        if now < self.scenario.outage:
            self.earlier += 1
        elif role is Role.PRIMARY:
            self.attempts.append(now - self.scenario.outage)
        else:
            self.elsewhere += 1

    def usable(self, now: float) -> None:
        """A client has a session."""
        self.back.append(now - self.scenario.outage)
