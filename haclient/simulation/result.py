"""The result of a simulated storm: figures, and the times behind them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from haclient.simulation.scenario import Scenario
from haclient.simulation.syn import SynFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one simulated storm.  Times are seconds after the primary is back.

    :param name: name of the clients' policy.
    :param back: times at which clients became usable, sorted.
    :param attempts: times at which attempts reached the primary, sorted.  Each SYN is an attempt, whether the
        client dialled or its kernel repeated the SYN.
    :param earlier: attempts before the primary was back.
    :param elsewhere: attempts at other members after that.
    :param dials: dials at any member after that.
    :param syns: SYNs of the whole storm, by address.
    :param refused: attempts that the primary's full backlog refused or dropped.
    :param deferred: attempts that the primary refused with ``retry-after``.
    :param parked: attempts that a member parked.
    :param handshakes: work of the primary: connections set up, and refusals with ``retry-after``.
    :param gave_up: clients that gave up.
    """

    name: str
    scenario: Scenario
    back: array[float] = field(repr=False)
    attempts: array[float] = field(repr=False)
    earlier: int
    elsewhere: int
    dials: int
    syns: SynFigures
    refused: int
    deferred: int
    parked: int
    handshakes: int
    gave_up: int

    @property
    def not_back(self) -> int:
        """Clients that were not back at the end."""
        return self.scenario.clients - len(self.back)

    @property
    def last(self) -> float:
        """Time at which the last client was back; infinite if one was not."""
        return math.inf if self.not_back else self.back[-1]

    @property
    def ratio(self) -> float:
        """``last`` as a multiple of N/mu, the shortest possible time under any policy."""
        return self.last / self.scenario.ideal

    @property
    def attempts_per_client(self) -> float:
        """Attempts after the primary was back, at all members."""
        return (len(self.attempts) + self.elsewhere) / self.scenario.clients

    @property
    def peak(self) -> int:
        """Most attempts at the primary in one second."""
        return peak(self.attempts)

    @property
    def wasted(self) -> int:
        """Handshakes of the primary that gave no client a session."""
        return self.handshakes - len(self.back)

    def quantile(self, share: float) -> float:
        """Return the time at which this share of the clients was back (nearest rank)."""
        rank = max(1, math.ceil(share * self.scenario.clients))
        return self.back[rank - 1] if rank <= len(self.back) else math.inf

    def figures(self) -> dict[str, object]:
        """Return the figures by name, for tables and JSON; unknown ones are ``None``."""
        times = {
            "last": self.last,
            "p50": self.quantile(0.5),
            "p99": self.quantile(0.99),
            "ratio": self.ratio,
        }
        return {
            "name": self.name,
            "clients": self.scenario.clients,
            **{name: value if math.isfinite(value) else None for name, value in times.items()},
            "peak_per_second": self.peak,
            "attempts_per_client": self.attempts_per_client,
            "attempts_before": self.earlier / self.scenario.clients,
            "dials_per_client": self.dials / self.scenario.clients,
            "syns_at_host": self.syns.most_at_host,
            "resets_at_host": self.syns.most_resets,
            "syns_of_client": self.syns.most_of_client,
            "smallest_gap": self.syns.smallest_gap if math.isfinite(self.syns.smallest_gap) else None,
            "wasted_handshakes": self.wasted,
            "refused": self.refused,
            "deferred": self.deferred,
            "parked": self.parked,
            "gave_up": self.gave_up,
            "not_back": self.not_back,
        }


def peak(times: Sequence[float]) -> int:
    """Return the highest number of these sorted times within one second."""
    most = first = 0
    for place, time in enumerate(times):
        while times[first] <= time - 1:
            first += 1
        most = max(most, place - first + 1)
    return most
