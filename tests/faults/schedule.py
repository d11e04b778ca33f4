"""The order of the faults: a pure function of the seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Seconds of traffic before a fault, and by how much it is held longer than it needs.
_CALM = (0.1, 1.0)
_LONGER = (0.0, 0.5)


@dataclass(frozen=True, slots=True)
class Step:
    """One fault of a run.

    :param calm: seconds of traffic before it.
    :param longer: seconds that it lasts beyond its ``Fault.hold``.
    :param seed: the seed of its random choices.
    """

    number: int
    fault: str
    calm: float
    longer: float
    seed: int

    def __str__(self) -> str:
        return f"{self.number:4} {self.fault} (after {self.calm:.2f} s, for {self.longer:.2f} s, {self.seed})"


def schedule(seed: int, faults: Sequence[str]) -> Iterator[Step]:
    """Yield faults without end: every one once in random order, then all again.

    Each cycle has its own order, so a fault recurs within two cycles.
    """
    rng = random.Random(seed)
    number = 0
    while True:
        for fault in rng.sample(sorted(faults), len(faults)):
            number += 1
            calm, longer = rng.uniform(*_CALM), rng.uniform(*_LONGER)
            yield Step(number, fault, calm, longer, rng.getrandbits(32))
