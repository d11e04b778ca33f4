"""The members from the clients' point of view, and counts of attempts at them."""

from __future__ import annotations

import enum
from array import array

from haclient.simulation.clock import Clock
from haclient.simulation.primary import Primary
from haclient.simulation.scenario import Scenario
from haclient.simulation.syn import SYN_GAPS, SynCounter


class Role(enum.IntEnum):
    """A member's response to an attempt."""

    DEAD = 0
    """No process listens: a reset."""
    PASSIVE = 1
    """Closes with ``amqp:connection:forced``."""
    PARKS = 2
    REDIRECTS = 3
    PRIMARY = 4
    SILENT = 5
    """No host: packets get no answer."""


class World:
    """The environment of the clients.

    :ivar syn_gaps: seconds from each SYN of one dial to the next; the last is until the failure of the dial.
    :ivar back: times at which clients became usable, in seconds after the primary is back.
    :ivar attempts: times at which SYNs reached the primary, likewise.
    :ivar earlier: SYNs before the primary is back.
    :ivar elsewhere: SYNs at other members after that.
    :ivar dials: dials after that, each with one SYN or more.
    :ivar parked: attempts that a member parked.
    :ivar gave_up: clients that gave up.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.clock = Clock()
        self.syn_gaps = SYN_GAPS[scenario.syn_repeats]
        self.syns = SynCounter(scenario.clients, scenario.members)
        self.primary = Primary(scenario)
        self.back = array("d")
        self.attempts = array("d")
        self.earlier = 0
        self.elsewhere = 0
        self.dials = 0
        self.parked = 0
        self.gave_up = 0
        self._resets = scenario.when_full == "reset"
        self._serves = 0 if scenario.members == 1 else 1
        self._redirects_from = scenario.members - scenario.redirecting
        self._lost = Role.SILENT if scenario.dead_host else Role.DEAD
        self._passive = Role.PASSIVE if scenario.passive == "close" else Role.DEAD

    @property
    def serving(self) -> int:
        """The place of the new primary in the clients' list."""
        return self._serves

    def role(self, member: int, now: float, *, may_park: bool = False) -> Role:
        """Return this member's response to an attempt that begins now."""
        is_up = now >= self.scenario.outage
        if member == self._serves and is_up:
            return Role.PRIMARY
        if member == 0:
            return self._lost
        knows = member >= self._redirects_from
        if is_up:
            return Role.REDIRECTS if knows else self._passive
        parks = may_park and self.scenario.parking and (knows or member == self._serves)
        return Role.PARKS if parks else self._passive

    def count(
        self, client: int, member: int, role: Role, now: float, *, repeated: int = 0, accepted: bool = False
    ) -> None:
        """Count a SYN that reaches a member.

        :param repeated: number of earlier SYNs of this dial.
        :param accepted: whether the primary begins a connection setup, or answers with ``retry-after``.
        """
        outage = self.scenario.outage
        if now < outage:
            self.earlier += 1
        else:
            self.dials += not repeated
            if role is Role.PRIMARY:
                self.attempts.append(now - outage)
            else:
                self.elsewhere += 1
        resets = role is Role.DEAD or (role is Role.PRIMARY and not accepted and self._resets)
        self.syns.count(client, member, now, reset=resets, served=accepted)

    def usable(self, now: float) -> None:
        """Record that a client has a session."""
        self.back.append(now - self.scenario.outage)
