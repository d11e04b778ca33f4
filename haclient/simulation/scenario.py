"""What happens in a simulated storm, apart from what the clients do about it.

Time 0 is the loss of the old primary; the new one serves ``outage`` seconds later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

WhenFull = Literal["refuse", "drop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The cluster, the outage and the number of clients.

    :param clients: each has one connection, which is lost once.
    :param setup_rate: connections a second that the new primary manages.
    :param outage: seconds from the loss to the new primary.
    :param detection: each client notices the loss within this time, evenly spread; seconds.  A killed
        process is noticed in a round trip (its kernel resets the connections), a dead host by heartbeats.
    :param backlog: connections that wait at the primary; above that it does as ``when_full`` says.
    :param when_full: ``refuse`` is a reset, ``drop`` loses the SYN, which TCP repeats after 1, 3, 7... s.
    :param retry_after: the primary admits as ``broker_stub.admission.rate_limiter`` does and sends
        ``retry-after`` to the clients that it refuses.  Without it, the primary is an ordinary
        broker, which serves connections in the order of their arrival.
    :param accept_rate: what it admits a second; ``None`` for ``setup_rate``.
    :param parking: members hold clients that ask for it; needs ``retry_after``.
    :param members: 1 is an address that moves to the new primary; more are the dead one, the new primary
        and passive ones, in the order in which clients know them.
    :param redirecting: how many of the passive ones redirect (and park); the others only close.
    :param refusal_cost: the primary's work for a refusal with ``retry-after``, as a part of that for a
        connection setup.
    :param round_trip: seconds from a dial to an answer that takes no work.
    :param horizon: seconds after the primary is back when the simulation ends; ``None``: when all are back.
    """

    clients: int = 2000
    setup_rate: float = 200.0
    outage: float = 3.0
    detection: float = 0.1
    backlog: int = 128
    when_full: WhenFull = "refuse"
    retry_after: bool = True
    accept_rate: float | None = None
    parking: bool = False
    members: int = 1
    redirecting: int = 0
    refusal_cost: float = 0.0
    round_trip: float = 0.001
    horizon: float | None = None
    seed: int = 1

    def __post_init__(self) -> None:
        positive = {"setup_rate": self.setup_rate, "accept_rate": self.accepted, "horizon": self.end}
        atleast = {
            "clients": (self.clients, 1),
            "members": (self.members, 1),
            "outage": (self.outage, 0),
            "detection": (self.detection, 0),
            "backlog": (self.backlog, 0),
            "refusal_cost": (self.refusal_cost, 0),
            "round_trip": (self.round_trip, 0),
        }
        for name, value in positive.items():
            if not value > 0:
                raise ValueError(f"{name} is above 0, not {value}")
        for name, (value, least) in atleast.items():
            if not least <= value < math.inf:
                raise ValueError(f"{name} is a number from {least}, not {value}")
        if not 0 <= self.redirecting <= max(0, self.members - 2):
            raise ValueError(
                f"of {self.members} members {self.redirecting} cannot redirect: one died, one serves"
            )
        if self.parking and not self.retry_after:
            raise ValueError(
                "parking goes with retry_after: a parked client gets a reservation of the same rate limiter"
            )
        if self.when_full not in {"refuse", "drop"}:
            raise ValueError(f"when_full is refuse or drop, not {self.when_full!r}")

    @property
    def ideal(self) -> float:
        """Seconds that the primary needs for all clients, N/mu."""
        return self.clients / self.setup_rate

    @property
    def accepted(self) -> float:
        """Connections a second that the primary admits."""
        return self.setup_rate if self.accept_rate is None else self.accept_rate

    @property
    def end(self) -> float:
        """``horizon`` as a number."""
        return math.inf if self.horizon is None else self.horizon
