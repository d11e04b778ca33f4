"""A broker with a handle-max and a channel-max: an excess link or session ends the connection."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from proton import uint, ushort

from tests.broker_stub.raw_client import ATTACH, BEGIN, DETACH, OPEN
from tests.hostile.broker.connection import Arrival, HostileConnection, error
from tests.hostile.broker.listening import HostileBrokers

_CHANNEL_MAX, _HANDLE_MAX = 3, 4


@dataclass
class Limits:
    """The limits of a peer, and its observations.

    :ivar most: the most links attached at the same time.
    :ivar violations: how often a client exceeded the limits.
    """

    handle_max: int | None
    channel_max: int
    later_handle_max: int | None = None
    answers_detach: bool = True
    most: int = 0
    violations: int = 0
    sessions: Counter[int] = field(default_factory=Counter)
    connections: list[Limited] = field(default_factory=list)


class Limited(HostileConnection):
    """Ends a connection that exceeds its limits."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(HostileBrokers(0, ()), random.Random())
        self.limits = limits
        limits.connections.append(self)
        limits.sessions.clear()
        self.fields[OPEN] = {_CHANNEL_MAX: ushort(limits.channel_max)}
        self._allow(limits.handle_max)
        self.then[BEGIN].append(self._begun)
        self.then[ATTACH].append(self._attached)
        self.then[DETACH].append(lambda what: limits.sessions.subtract({what.channel: 1}))
        if not limits.answers_detach:
            self.instead[DETACH] = lambda _: None

    def _allow(self, handle_max: int | None) -> None:
        self.fields[BEGIN] = {_HANDLE_MAX: None if handle_max is None else uint(handle_max)}

    def _begun(self, what: Arrival) -> None:
        self._check(what.channel, self.limits.channel_max)
        if self.limits.later_handle_max is not None:
            self._allow(self.limits.later_handle_max)

    def _attached(self, what: Arrival) -> None:
        self._check(int(what.get(1)), self.limits.handle_max)
        self.limits.sessions[what.channel] += 1
        self.limits.most = max(self.limits.most, self.limits.sessions.total())

    def _check(self, number: int, most: int | None) -> None:
        if most is not None and number > most:
            self.limits.violations += 1
            self.close(error("amqp:connection:framing-error", f"{number} is more than {most}"))
