"""What a search may dial: the topology's candidates, those of the other site, without the barred ones.

``View`` has them with what else the driver of a search knows when it asks what to do now.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.topology import Topology
from haclient.retry.policy import Policy


@dataclass(slots=True)
class View:
    """Arguments of one ``Search.next``.  ``candidates`` leaves out those that its rule 6 bars."""

    now: float
    topology: Topology
    candidates: tuple[Endpoint, ...]
    search_owner: bool
    free_dials: int | None
    resolving: bool


class Candidates:
    """The candidates of one search (rule 10 of ``search``).

    :param now: monotonic seconds, as the search begins.
    :param unstable: dialled last.
    :ivar other_site_at: when those of the site that is not in use are added; infinite: never.
    """

    __slots__ = ("_unstable", "other_site_at")

    def __init__(self, policy: Policy, now: float, unstable: Endpoint | None) -> None:
        self._unstable = unstable
        self.other_site_at = now + policy.dr_after if policy.dr else math.inf

    def of(self, topology: Topology, now: float, barred: Collection[Endpoint]) -> tuple[Endpoint, ...]:
        """Those that may be dialled now, in the order of the list."""
        candidates = topology.candidates(other_site=now >= self.other_site_at)
        if barred:
            candidates = tuple(each for each in candidates if each not in barred)
        if self._unstable is None or self._unstable not in candidates:
            return candidates
        # A member that opens and drops must not keep the search from dialling the others.
        after = candidates.index(self._unstable) + 1
        return candidates[after:] + candidates[:after]
