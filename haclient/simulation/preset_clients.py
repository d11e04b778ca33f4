"""Drives the presets: one attempt at a time, the members of the list in turn.

A failed attempt is followed by the next delay of the series.  These clients ignore ``retry-after`` and
redirects, and an answer after ``attempt_timeout``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from haclient.simulation.clock import Kind
from haclient.simulation.presets import Preset
from haclient.simulation.primary import Verdict
from haclient.simulation.world import FIRST_RTO, Role, World


class _Client:
    __slots__ = ("attempts", "delays", "dialled")

    def __init__(self, delays: Iterator[float]) -> None:
        self.delays = delays
        self.attempts = 0
        self.dialled = 0.0


class PresetClients:
    """A fleet of one preset.

    :param rng: one for the whole fleet; see ``fleet``.
    """

    def __init__(self, world: World, preset: Preset, rng: random.Random) -> None:
        self._world = world
        self._preset = preset
        self._rng = rng
        self._clients: dict[int, _Client] = {}

    def begin(self, client: int, at: float) -> None:
        """This client notices the loss."""
        state = self._clients[client] = _Client(self._preset.delays(self._rng))
        self._pass_outage(client, state, at + next(state.delays))

    def handle(self, client: int, kind: Kind, number: int) -> None:
        """An event of the clock; ``number`` is how often the SYN was repeated."""
        state = self._clients.get(client)
        if state is None:
            return
        now = self._world.clock.now
        if kind is Kind.DIAL:
            state.dialled = now
            self._world.count(Role.PRIMARY, now)
        self._attempt(client, state, now, number)

    def _pass_outage(self, client: int, state: _Client, at: float) -> None:
        """Nothing but the primary's answer depends on others: everything before it needs no event."""
        world = self._world
        while (role := world.role(state.attempts % world.scenario.members, at)) is not Role.PRIMARY:
            if at - world.scenario.outage > world.scenario.end:
                return
            world.count(role, at)
            state.dialled = at
            at = self._next(state, at + world.scenario.round_trip)
        world.clock.at(at, client, Kind.DIAL)

    def _attempt(self, client: int, state: _Client, now: float, repeated: int) -> None:
        verdict, known, _ = self._world.primary.attempt(client, now)
        if verdict is Verdict.LOST:
            known = now + FIRST_RTO * 2**repeated
            if known < state.dialled + self._preset.attempt_timeout:
                self._world.clock.at(known, client, Kind.SYN, repeated + 1)
                return
        known += self._world.scenario.round_trip
        latest = state.dialled + self._preset.attempt_timeout
        if verdict is Verdict.USABLE and known <= latest:
            self._world.usable(known)
            del self._clients[client]
            return
        self._pass_outage(client, state, self._next(state, min(known, latest)))

    def _next(self, state: _Client, failed: float) -> float:
        """When the next attempt begins, after one that failed."""
        state.attempts += 1
        delay = next(state.delays)
        return max(failed, state.dialled + delay) if self._preset.from_start else failed + delay
