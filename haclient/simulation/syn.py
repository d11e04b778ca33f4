"""SYNs: the kernel's repeats of unanswered ones, and the load of SYNs at each address.

Rules
-----
1. Linux repeats a SYN after 1 s (RFC 6298, section 2).  From 6.5 on the first ``tcp_syn_linear_timeouts`` (4)
   repeats do not double that time, and ``tcp_syn_retries`` (6) more do.  Repeats are then at 1, 2, 3, 4, 5,
   7, 11, 19, 35, 67 s after the dial, and ``connect`` fails after 131 s.  Older kernels double from the first
   one: 1, 3, 7, 15, 31, 63 s, and 127 s.  Source: Documentation/networking/ip-sysctl.rst.
   A full backlog drops SYNs whatever ``tcp_abort_on_overflow`` is.
2. The load of an address is counted in whole seconds of virtual time: all SYNs, and SYNs answered by a reset.
3. For one client at one address, the SYNs within any second are counted, and the smallest gap of two is kept.
   A SYN that begins a connection setup is excluded, because it does no harm.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

SynRepeats = Literal["linear", "exponential"]

_SECOND = 1 - 1e-9  # sums of times are not exact


def gaps(linear_timeouts: int, retries: int = 6) -> tuple[float, ...]:
    """Return the seconds from each SYN of a dial to the next, and from the last one to the failure."""
    found, timeout = [], 1.0
    for repeat in range(linear_timeouts + retries + 1):
        found.append(timeout)
        if repeat >= linear_timeouts:
            timeout *= 2
    return tuple(found)


SYN_GAPS: Mapping[SynRepeats, tuple[float, ...]] = {"linear": gaps(4), "exponential": gaps(0)}
"""The gaps in Linux from 6.5 on, and before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SynFigures:
    """The SYNs of a whole storm, the outage included.

    :param most_at_host: most SYNs in a second at one address, from all clients together.
    :param most_resets: most SYNs in a second at one address that got a reset.
    :param most_of_client: most SYNs of one client at one address within a second (rule 3).
    :param smallest_gap: seconds between two SYNs of one client at one address (rule 3); infinite without two.
    """

    most_at_host: int = 0
    most_resets: int = 0
    most_of_client: int = 0
    smallest_gap: float = math.inf


class SynCounter:
    """Counts the SYNs of a storm; for each client and member they must be counted in order of time."""

    __slots__ = ("_all", "_last", "_members", "_recent", "_resets", "most_of_client", "smallest_gap")

    def __init__(self, clients: int, members: int) -> None:
        self._members = members
        self._all: tuple[dict[int, int], ...] = tuple({} for _ in range(members))
        self._resets: tuple[dict[int, int], ...] = tuple({} for _ in range(members))
        self._last = array("d", [-math.inf]) * (clients * members)
        self._recent: dict[int, Sequence[float]] = {}
        self.most_of_client = 0
        self.smallest_gap = math.inf

    def count(self, client: int, member: int, now: float, *, reset: bool, served: bool) -> None:
        """Count a SYN that reaches a member."""
        second = int(now)
        host = self._all[member]
        host[second] = host.get(second, 0) + 1
        if reset:
            host = self._resets[member]
            host[second] = host.get(second, 0) + 1
        if served:
            return
        place = client * self._members + member
        gap = now - self._last[place]
        self._last[place] = now
        self.smallest_gap = min(self.smallest_gap, gap)
        if gap >= _SECOND:
            self._recent.pop(place, None)
            self.most_of_client = max(self.most_of_client, 1)
            return
        recent = self._recent.get(place, (now - gap,))
        recent = self._recent[place] = (*(time for time in recent if time > now - _SECOND), now)
        self.most_of_client = max(self.most_of_client, len(recent))

    def figures(self) -> SynFigures:
        """Return the figures of all SYNs so far."""
        return SynFigures(
            most_at_host=max((most for host in self._all for most in host.values()), default=0),
            most_resets=max((most for host in self._resets for most in host.values()), default=0),
            most_of_client=self.most_of_client,
            smallest_gap=self.smallest_gap,
        )
