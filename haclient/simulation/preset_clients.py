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
from haclient.simulation.world import Role, World


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
        self._attempt(client, state, self._world.clock.now, number)

    def _pass_outage(self, client: int, state: _Client, at: float, repeated: int = 0) -> None:
        """Nothing but the primary's answer depends on others: everything before it needs no event.

        :param at: when the next SYN arrives.
        :param repeated: how often the same dial has sent it before.
        """
        world = self._world
        scenario = world.scenario
        while at - scenario.outage <= scenario.end:
            member = state.attempts % scenario.members
            if not repeated:
                state.dialled = at
            role = world.role(member, at)
            if role is Role.PRIMARY:
                world.clock.at(at, client, Kind.SYN if repeated else Kind.DIAL, repeated)
                return
            world.count(client, member, role, at, repeated=repeated)
            if role is Role.SILENT and (again := self._again(state, at, repeated)) is not None:
                at, repeated = again, repeated + 1
                continue
            at, repeated = self._next(state, self._failed(state, role, at, repeated)), 0

    def _attempt(self, client: int, state: _Client, now: float, repeated: int) -> None:
        world = self._world
        verdict, known, _ = world.primary.attempt(client, now)
        accepted = verdict is Verdict.USABLE
        member = state.attempts % world.scenario.members
        world.count(client, member, Role.PRIMARY, now, repeated=repeated, accepted=accepted)
        if accepted:
            known += world.scenario.setup_latency
            latest = state.dialled + self._preset.attempt_timeout
            if known <= latest:
                world.usable(known)
                del self._clients[client]
                return
            failed = latest
        elif verdict is Verdict.RESET:
            failed = self._failed(state, Role.DEAD, now, repeated)
        elif (again := self._again(state, now, repeated)) is not None:
            world.clock.at(again, client, Kind.SYN, repeated + 1)
            return
        else:
            failed = self._failed(state, Role.SILENT, now, repeated)
        self._pass_outage(client, state, self._next(state, failed))

    def _again(self, state: _Client, now: float, repeated: int) -> float | None:
        """When the kernel repeats the SYN of this dial; ``None`` when the dial ends before."""
        gaps = self._world.syn_gaps
        again = now + gaps[repeated]
        in_time = again < state.dialled + self._preset.attempt_timeout and repeated + 1 < len(gaps)
        return again if in_time else None

    def _failed(self, state: _Client, role: Role, now: float, repeated: int) -> float:
        """When a dial has failed whose last SYN arrived now."""
        scenario = self._world.scenario
        if role is Role.SILENT:
            known = now + self._world.syn_gaps[repeated]
        else:
            known = now + (scenario.round_trip if role is Role.DEAD else scenario.setup_latency)
        return min(known, state.dialled + self._preset.attempt_timeout)

    def _next(self, state: _Client, failed: float) -> float:
        """When the next attempt begins, after one that failed."""
        state.attempts += 1
        delay = next(state.delays)
        return max(failed, state.dialled + delay) if self._preset.from_start else failed + delay
