"""The cells of the grid: one storm each, at an ordinary broker that sends no ``retry-after``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Any, Literal

from haclient.simulation.scenario import Scenario

Kind = Literal["reset", "silent", "dead host"]
Part = Literal["short", "whole", "large"]

KINDS: Mapping[Kind, Mapping[str, Any]] = MappingProxyType(
    {
        "reset": {"when_full": "reset", "dead_host": False},
        "silent": {"when_full": "silent", "dead_host": False},
        "dead host": {"when_full": "silent", "dead_host": True},
    }
)
"""Behaviour of a full backlog and of the lost member: reset and dead port; silence and dead port; silence and
dead host."""

CLIENTS = (5, 20, 100, 300, 700, 2000)
LARGE = 20_000
OUTAGES = (0.3, 1.0, 3.0, 30.0, 300.0)
"""Seconds."""
MEMBERS = (1, 3)
"""1: one address that moves.  3: the lost member, the new primary, and a passive member."""

_SEEDS = 5
_LARGE_FLEET = 300
_LONG, _HORIZON = 300.0, 2000.0
_SHORT: Mapping[float, int] = MappingProxyType({0.3: 700, 1.0: 700, 3.0: 2000, 30.0: 100, 300.0: 5})
"""Maximum clients of the short part by outage, so that it takes minutes on two processors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One storm, or several that differ by their seed.

    :param clients: number of clients.
    :param outage: seconds.
    :param base: other fields of the scenario.
    """

    members: int
    kind: Kind
    clients: int
    outage: float
    base: tuple[tuple[str, Any], ...] = ()

    @property
    def seeds(self) -> Sequence[int]:
        """Return the seeds; one suffices for a large fleet."""
        return range(1, 2 if self.clients >= LARGE else _SEEDS + 1)

    def scenario(self, seed: int) -> Scenario:
        """Return the scenario of one seed; it ends if a client takes half an hour longer than the outage."""
        varied = {**KINDS[self.kind], "members": self.members, "clients": self.clients}
        return Scenario(
            **{"horizon": _HORIZON, **dict(self.base), **varied, "outage": self.outage},
            retry_after=False,
            seed=seed,
        )

    @property
    def fleet_known(self) -> bool:
        """Return whether the lost primary announced a fleet so large that its clients spread their dials."""
        return self.clients >= _LARGE_FLEET and self.scenario(1).fleet_known

    @property
    def best(self) -> float:
        """Return the time that the primary needs to set up all clients, in seconds."""
        return self.scenario(1).ideal


def cells(
    part: Part, axes: Mapping[str, Sequence[Any]] | None = None, base: Mapping[str, Any] | None = None
) -> list[Cell]:
    """Return the cells of a part of the grid.

    :param part: ``whole`` is all cells up to 2,000 clients; ``short`` has fewer clients for longer outages;
        ``large`` is 20,000 clients, without the longest outage.
    :param axes: other values of ``members``, ``kind``, ``clients`` or ``outage``, which the part does not
        restrict.
    :raises ValueError: if an axis or a kind is unknown.
    """
    given = dict(axes or {})
    chosen: dict[str, Sequence[Any]] = {
        "members": MEMBERS,
        "kind": tuple(KINDS),
        "clients": (LARGE,) if part == "large" else CLIENTS,
        "outage": OUTAGES,
    }
    if unknown := sorted({*given} - {*chosen}):
        raise ValueError(f"the grid varies {', '.join(chosen)}, not {', '.join(unknown)}")
    if wrong := [kind for kind in given.get("kind", ()) if kind not in KINDS]:
        raise ValueError(f"kind is one of {', '.join(KINDS)}, not {wrong[0]}")
    chosen.update(given)
    chosen["outage"] = [float(seconds) for seconds in chosen["outage"]]
    free = {"clients", "outage"} <= {*given}
    extra = tuple(sorted((base or {}).items()))
    every = (
        Cell(**dict(zip(chosen, values, strict=True)), base=extra) for values in product(*chosen.values())
    )
    return [cell for cell in every if free or _is_in(part, cell)]


def _is_in(part: Part, cell: Cell) -> bool:
    if part == "short":
        return cell.clients <= next((most for outage, most in _SHORT.items() if cell.outage <= outage), 0)
    return part == "whole" or cell.outage < _LONG
