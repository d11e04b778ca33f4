"""An Ethernet switch in user space with an unreliable cable between each two hosts. Pure: no I/O, no
clock.

Rules
-----
* Each ordered pair of hosts has its own ``Conditions``, so that one direction can fail and the reverse
  not.
* Frames of a pair stay in order at any jitter, unless they are reordered on purpose: then a frame is
  held back and later ones overtake it.
* At most ``queue`` frames of a pair are in flight. Further frames are dropped at the tail, and counted.
* A pair has its own random source: the fate of its n-th frame depends on the seed, and not on other
  pairs' frames.

It does the same as netem (Hemminger, "Network Emulation with NetEm", 2005), for kernels without that
module.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

# A frame begins with its destination; the lowest bit of the first octet marks a group (IEEE 802.3, 3.2.3).
_DESTINATION, _GROUP = slice(0, 6), 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The treatment of frames from one host to another.

    :param delay: seconds, with ``jitter`` more or less, uniformly.
    :param loss: the share of frames that are lost, 0 to 1.
    :param reorder: the share of frames that are held back for ``hold_back`` seconds more, and
        overtaken.
    :param duplicate: the share of frames that arrive twice.
    :param cut: no frame arrives.
    :param queue: the most frames in flight.
    """

    delay: float = 0.0
    jitter: float = 0.0
    loss: float = 0.0
    reorder: float = 0.0
    hold_back: float = 0.05
    duplicate: float = 0.0
    cut: bool = False
    queue: int = 1000

    def __post_init__(self) -> None:
        shares = (self.loss, self.reorder, self.duplicate)
        if min(self.delay, self.jitter, self.hold_back, self.queue) < 0 or self.jitter > self.delay:
            raise ValueError(f"a delay is negative, or its jitter larger: {self}")
        if not all(0 <= share <= 1 for share in shares):
            raise ValueError(f"a share is not within 0 and 1: {self}")


CLEAR = Conditions()


class Cable:
    """The route of frames from one host to another."""

    def __init__(self, rng: random.Random) -> None:
        self.conditions = CLEAR
        self.under_way = 0
        self.counts: Counter[str] = Counter()
        self._rng = rng
        self._last = 0.0

    def dues(self, now: float) -> Iterator[float]:
        """Yield the arrival times of a frame sent now: none, one or two."""
        conditions, rng = self.conditions, self._rng
        self.counts["sent"] += 1
        # The same number of draws for each frame, so that the next frame's fate does not depend on this one.
        lost, late, twice, jitter = rng.random(), rng.random(), rng.random(), rng.uniform(-1, 1)
        if conditions.cut:
            self.counts["cut"] += 1
        elif lost < conditions.loss:
            self.counts["lost"] += 1
        else:
            due = now + conditions.delay + jitter * conditions.jitter
            for copy in range(2 if twice < conditions.duplicate else 1):
                if self.under_way >= conditions.queue:
                    self.counts["dropped"] += 1
                    return
                self.under_way += 1
                self.counts["duplicated"] += copy
                yield self._place(due, reordered=late < conditions.reorder)

    def _place(self, due: float, *, reordered: bool) -> float:
        if reordered:
            self.counts["reordered"] += 1
            return due + self.conditions.hold_back
        self._last = max(self._last, due)
        return self._last


class Switch:
    """The cables of all pairs, and the frames in flight.

    :param addresses: the hosts' hardware addresses, in their order.
    """

    def __init__(self, addresses: Sequence[bytes], seed: int) -> None:
        self._ports = {address: port for port, address in enumerate(addresses)}
        ports = range(len(addresses))
        pairs = itertools.permutations(ports, 2)
        self.cables = {pair: Cable(random.Random(f"{seed} {pair}")) for pair in pairs}
        self._others = {port: [other for other in ports if other != port] for port in ports}
        self._heap: list[tuple[float, int, int, int, bytes]] = []
        self._serial = itertools.count()

    def take(self, source: int, frame: bytes, now: float) -> None:
        """Accept a frame from a host."""
        for target in self._targets(source, frame):
            for due in self.cables[source, target].dues(now):
                heapq.heappush(self._heap, (due, next(self._serial), source, target, frame))

    def due(self, now: float) -> Iterator[tuple[int, bytes]]:
        """Yield the frames that arrive until now, each with its receiving host."""
        while self._heap and self._heap[0][0] <= now:
            _due, _serial, source, target, frame = heapq.heappop(self._heap)
            cable = self.cables[source, target]
            cable.under_way -= 1
            # Cut while the frame was in flight, and so lost.
            if cable.conditions.cut:
                cable.counts["cut"] += 1
            else:
                cable.counts["delivered"] += 1
                yield target, frame

    def next_due(self) -> float | None:
        """Return when the next frame arrives; ``None`` if there is none."""
        return self._heap[0][0] if self._heap else None

    def change(self, pairs: Iterable[tuple[int, int]], conditions: Conditions) -> None:
        """Replace the conditions of these pairs."""
        for pair in pairs:
            self.cables[pair].conditions = conditions

    def counts(self) -> Iterator[tuple[int, int, dict[str, int]]]:
        """Yield the counts of frames by fate, for each pair that sent any."""
        for (source, target), cable in self.cables.items():
            if cable.counts:
                yield source, target, {**cable.counts, "under way": cable.under_way}

    def _targets(self, source: int, frame: bytes) -> Sequence[int]:
        if frame[0] & _GROUP:
            return self._others[source]
        port = self._ports.get(frame[_DESTINATION])
        return () if port is None or port == source else (port,)


def as_facts(conditions: Conditions) -> dict[str, float]:
    """Return the conditions for JSON; ``Conditions(**facts)`` restores them."""
    return dataclasses.asdict(conditions)
