"""Drives the presets: each goes through the members in its own ``Order``.

A failed attempt is followed by the next delay of its series.  These clients ignore ``retry-after`` and
redirects, and an answer after the attempt's timeout.

A *lane* is a sequence of attempts, one after the other.  A client has one; with order ``apart`` it has one
for each member.  Only attempts at the new primary depend on other clients and need events, so at most one
lane of a client has any: the others are advanced to the present whenever that one acts.
"""

from __future__ import annotations

import random
from functools import partial

from benchmarks.grid.presets import Preset
from haclient.retry.policy import Policy
from haclient.simulation import fleet
from haclient.simulation.clock import Kind
from haclient.simulation.fleet import Progress
from haclient.simulation.primary import Verdict
from haclient.simulation.result import Result
from haclient.simulation.scenario import Scenario
from haclient.simulation.world import Role, World


def simulate(
    scenario: Scenario, client: Policy | Preset, *, name: str | None = None, progress: Progress | None = None
) -> Result:
    """Simulate a storm in virtual time, with haclient's clients or the clients of a preset."""
    clients = client if isinstance(client, Policy) else partial(_clients, client)
    return fleet.simulate(scenario, clients, name=name, progress=progress)


def _clients(preset: Preset, world: World, rng: random.Random) -> PresetClients:
    return PresetClients(world, preset, rng)


class _Lane:
    """A series of attempts, one at a time.

    :ivar member: target of the attempt.
    :ivar at: when its next SYN arrives; ``repeated``: how often the dial has sent it before.
    :ivar dialled: when the dial began; ``timeout``: seconds that it may take.
    :ivar wait: the delay after it, where delays count from the start of an attempt.
    """

    __slots__ = ("at", "delays", "dialled", "member", "repeated", "timeout", "timeouts", "wait")

    def __init__(self, preset: Preset, rng: random.Random, member: int, members: int) -> None:
        self.delays = preset.series(rng, members)
        self.timeouts = preset.timeouts(rng)
        self.member = member
        self.at = self.dialled = self.timeout = self.wait = 0.0
        self.repeated = 0


class _Client:
    """``lane`` is the one that reaches the new primary.

    :ivar others: the lanes of the other members.
    :ivar ready: with order ``ready``, when the delay of each member ends, and its series.
    """

    __slots__ = ("lane", "others", "ready")

    def __init__(self, lane: _Lane, others: tuple[_Lane, ...] = ()) -> None:
        self.lane = lane
        self.others = others
        self.ready: list[tuple[float, _Lane]] = []


class PresetClients:
    """A fleet of one preset.

    :param rng: one for the whole fleet; see ``fleet``.
    """

    def __init__(self, world: World, preset: Preset, rng: random.Random) -> None:
        self.name = preset.name
        self._world = world
        self._preset = preset
        self._rng = rng
        self._members = world.scenario.members
        self._horizon = world.scenario.outage + world.scenario.end
        self._clients: dict[int, _Client] = {}

    def begin(self, client: int, at: float) -> None:
        """This client notices the loss."""
        state = self._clients[client] = self._client(at)
        for lane in (state.lane, *state.others):
            self._dial(lane, lane.at)
        self._advance(client, state, state.lane, self._horizon)

    def _client(self, at: float) -> _Client:
        order, members, serving = self._preset.order, self._members, self._world.serving
        if members == 1 or order not in ("ready", "apart"):
            lane = self._lane(int(self._preset.after_lost) % members, members)
            lane.at = at + next(lane.delays)
            return _Client(lane)
        lanes = [self._lane(member, 1) for member in range(members)]
        for lane in lanes:
            lane.at = at if order == "ready" and lane.member else at + next(lane.delays)
        if order == "apart":
            return _Client(lanes.pop(serving), tuple(lanes))
        state = _Client(self._lane(0, 1))
        state.ready = [(lane.at, lane) for lane in lanes]
        self._choose(state, at)
        return state

    def _lane(self, member: int, members: int) -> _Lane:
        return _Lane(self._preset, self._rng, member, members)

    def handle(self, client: int, kind: Kind, number: int) -> None:
        """An event of the clock; ``number`` is how often the SYN was repeated."""
        state = self._clients.get(client)
        if state is None:
            return
        now = self._world.clock.now
        for lane in state.others:
            self._advance(client, state, lane, now)
        self._attempt(client, state, now)

    def _advance(self, client: int, state: _Client, lane: _Lane, until: float) -> None:
        """All attempts until then whose answer does not depend on other clients."""
        world = self._world
        while lane.at <= until:
            role = world.role(lane.member, lane.at)
            if role is Role.PRIMARY:
                kind = Kind.SYN if lane.repeated else Kind.DIAL
                world.clock.at(lane.at, client, kind, lane.repeated)
                return
            world.count(client, lane.member, role, lane.at, repeated=lane.repeated)
            if role is not Role.SILENT or not self._repeats(lane):
                self._fail(state, lane, role)

    def _attempt(self, client: int, state: _Client, now: float) -> None:
        world, lane = self._world, state.lane
        verdict, known, _ = world.primary.attempt(client, now)
        accepted = verdict is Verdict.USABLE
        world.count(client, lane.member, Role.PRIMARY, now, repeated=lane.repeated, accepted=accepted)
        if accepted:
            known += world.scenario.setup_latency
            if known <= lane.dialled + lane.timeout:
                self._back(client, state, known)
                return
            self._next(state, lane, lane.dialled + lane.timeout)
        elif verdict is Verdict.RESET or not self._repeats(lane):
            self._fail(state, lane, Role.DEAD if verdict is Verdict.RESET else Role.SILENT)
        self._advance(client, state, lane, self._horizon)

    def _back(self, client: int, state: _Client, at: float) -> None:
        for lane in state.others:
            self._advance(client, state, lane, at)
        self._world.usable(at)
        del self._clients[client]

    def _repeats(self, lane: _Lane) -> bool:
        """Let the kernel repeat the SYN of this dial, unless the dial ends before."""
        gaps = self._world.syn_gaps
        again = lane.at + gaps[lane.repeated]
        if again >= lane.dialled + lane.timeout or lane.repeated + 1 == len(gaps):
            return False
        lane.at, lane.repeated = again, lane.repeated + 1
        return True

    def _fail(self, state: _Client, lane: _Lane, role: Role) -> None:
        """End a failed dial; the behaviour of the member at its last SYN determines when."""
        scenario = self._world.scenario
        if role is Role.SILENT:
            known = lane.at + self._world.syn_gaps[lane.repeated]
        else:
            known = lane.at + (scenario.round_trip if role is Role.DEAD else scenario.setup_latency)
        self._next(state, lane, min(known, lane.dialled + lane.timeout))

    def _next(self, state: _Client, lane: _Lane, failed: float) -> None:
        """Plan the next attempt after a failed one."""
        if state.ready:
            own = state.ready[lane.member][1]
            state.ready[lane.member] = (failed + next(own.delays), own)
            self._choose(state, failed)
            self._dial(lane, lane.at)
            return
        if self._preset.order != "apart":
            lane.member = (lane.member + 1) % self._members
        from_start = self._preset.from_start
        self._dial(lane, max(failed, lane.dialled + lane.wait) if from_start else failed + next(lane.delays))

    @staticmethod
    def _choose(state: _Client, now: float) -> None:
        """The member whose delay ends first is the next one."""
        at, chosen = min(state.ready, key=lambda entry: (max(entry[0], now), entry[0]))
        state.lane.member, state.lane.at = chosen.member, max(at, now)
        state.lane.timeouts = chosen.timeouts

    def _dial(self, lane: _Lane, at: float) -> None:
        lane.at = lane.dialled = at
        lane.repeated = 0
        lane.timeout = next(lane.timeouts)
        if self._preset.from_start:
            lane.wait = next(lane.delays)
            lane.timeout = max(lane.timeout, lane.wait)
