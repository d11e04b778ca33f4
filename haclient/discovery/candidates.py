"""The endpoints that a search may dial: the topology's candidates without the barred ones.

The members of the other site are added after a while.  ``View`` holds the candidates and the other arguments
of a step of the search.
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
    """Arguments of one ``Search.next``; ``candidates`` lacks the members barred by rule 6 of ``search``."""

    now: float
    topology: Topology
    candidates: tuple[Endpoint, ...]
    search_owner: bool
    free_dials: int | None
    resolving: bool


class Candidates:
    """The candidates of one search (rule 10 of ``search``).

    :param now: start of the search, in monotonic seconds.
    :param unstable: member to dial last, since it opened and then dropped a connection.
    :ivar other_site_at: when the members of the site not in use are added; infinite: never.
    """

    __slots__ = ("_unstable", "other_site_at")

    def __init__(self, policy: Policy, now: float, unstable: Endpoint | None) -> None:
        self._unstable = unstable
        self.other_site_at = now + policy.dr_after if policy.dr else math.inf

    def of(self, topology: Topology, now: float, barred: Collection[Endpoint]) -> tuple[Endpoint, ...]:
        """Return the endpoints that may be dialled now, in the topology's order.

        If the unstable member is among them, the order is rotated to make it the last.
        """
        candidates = topology.candidates(other_site=now >= self.other_site_at)
        if barred:
            candidates = tuple(each for each in candidates if each not in barred)
        if self._unstable is None or self._unstable not in candidates:
            return candidates
        # Last, so that the search still dials the other members.
        after = candidates.index(self._unstable) + 1
        return candidates[after:] + candidates[:after]
