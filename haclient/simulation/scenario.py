"""The conditions of a simulated storm, apart from the clients' policy.

Time 0 is the loss of the old primary; the new one serves ``outage`` seconds later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from haclient.simulation.syn import SynRepeats

WhenFull = Literal["silent", "reset"]
Passive = Literal["close", "refuse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The cluster, the outage and the number of clients.

    :param clients: number of clients; each has one connection, which is lost once.
    :param setup_rate: connections a second that the new primary manages.
    :param outage: seconds from the loss to the new primary.
    :param detection: seconds within which each client notices the loss, evenly spread.  A killed
        process is noticed in a round trip (its kernel resets the connections), a dead host by heartbeats.
    :param dead_host: whether the host of the lost member is gone, so that its address does not answer until
        it serves again.  Otherwise only the process has died, and its port answers with a reset.
    :param backlog: most connections that wait at the primary; ``when_full`` is for more.
    :param when_full: ``silent`` for Linux, which drops the SYN, so that the client's kernel repeats it;
        ``reset`` for a load balancer.
    :param syn_repeats: the client kernel's times for repeating a SYN, see ``syn``; ``linear`` is Linux from
        6.5 on.
    :param retry_after: whether the primary admits clients by ``broker_stub.admission.rate_limiter`` and sends
        ``retry-after`` to others.  Without it, the primary is an ordinary broker, which serves connections
        in the order of their arrival.
    :param accept_rate: connections a second that it admits; ``None`` for ``setup_rate``.
    :param parking: whether members park clients that ask for it; needs ``retry_after``.
    :param fleet_known: whether the lost primary announced ``clients`` and ``setup_rate``, so that haclient's
        clients spread their attempts.  Needs ``retry_after`` off, because a primary never announces both.
    :param members: 1 is an address that moves to the new primary; more are the dead one, the new primary
        and passive ones, in the order of the clients' list.
    :param passive: behaviour of passive members: ``close`` the connection with ``amqp:connection:forced``, or
        ``refuse`` at the port because they do not listen, as the backup of an Artemis pair.
    :param redirecting: number of passive members that redirect (and park) instead.
    :param refusal_cost: the primary's work for a refusal with ``retry-after``, as a part of the work for a
        connection setup.
    :param round_trip: seconds from a dial to an answer of the kernel.
    :param handshake_round_trips: round trips of a connection setup: 1 is TCP alone; with SASL it is 4, with
        TLS 1.3 one more, with TLS 1.2 two.
    :param authentication: seconds that a setup waits for another service, such as a directory; it adds to
        the round trips, and takes none of the primary's time.  The processor time of TLS and
        of a password's hash is part of ``setup_rate``.
    :param horizon: seconds from the primary's return to the end of the simulation; ``None``: until all are
        back.
    """

    clients: int = 2000
    setup_rate: float = 200.0
    outage: float = 3.0
    detection: float = 0.1
    dead_host: bool = False
    backlog: int = 128
    when_full: WhenFull = "silent"
    syn_repeats: SynRepeats = "linear"
    retry_after: bool = True
    accept_rate: float | None = None
    parking: bool = False
    fleet_known: bool = False
    members: int = 1
    passive: Passive = "close"
    redirecting: int = 0
    refusal_cost: float = 0.0
    round_trip: float = 0.001
    handshake_round_trips: int = 1
    authentication: float = 0.0
    horizon: float | None = None
    seed: int = 1

    def __post_init__(self) -> None:
        positive = {"setup_rate": self.setup_rate, "accept_rate": self.accepted, "horizon": self.end}
        at_least = {
            "clients": (self.clients, 1),
            "members": (self.members, 1),
            "outage": (self.outage, 0),
            "detection": (self.detection, 0),
            "backlog": (self.backlog, 0),
            "refusal_cost": (self.refusal_cost, 0),
            "round_trip": (self.round_trip, 0),
            "handshake_round_trips": (self.handshake_round_trips, 1),
            "authentication": (self.authentication, 0),
        }
        for name, value in positive.items():
            if not value > 0:
                raise ValueError(f"{name} is above 0, not {value}")
        if self.setup_rate == math.inf:
            raise ValueError("setup_rate is a number above 0, not inf: the best possible time is not 0")
        for name, (value, least) in at_least.items():
            if not least <= value < math.inf:
                raise ValueError(f"{name} is a number from {least}, not {value}")
        if not 0 <= self.redirecting <= max(0, self.members - 2):
            raise ValueError(
                f"of {self.members} members {self.redirecting} cannot redirect: one died, one serves"
            )
        for name, choice, among in (
            ("when_full", self.when_full, get_args(WhenFull)),
            ("passive", self.passive, get_args(Passive)),
            ("syn_repeats", self.syn_repeats, get_args(SynRepeats)),
        ):
            if choice not in among:
                raise ValueError(f"{name} is {' or '.join(among)}, not {choice!r}")
        self._check_retry_after()

    def _check_retry_after(self) -> None:
        if self.parking and not self.retry_after:
            raise ValueError(
                "parking goes with retry_after: a parked client gets a reservation of the same rate limiter"
            )
        if self.parking and self.passive == "refuse":
            raise ValueError("parking takes passive members that listen: passive is close")
        if self.fleet_known and self.retry_after:
            raise ValueError("a primary with retry_after announces no fleet: fleet_known goes without")

    @property
    def ideal(self) -> float:
        """Seconds that the primary needs for all clients, N/mu."""
        return self.clients / self.setup_rate

    @property
    def setup_latency(self) -> float:
        """Seconds that a connection setup takes in addition to the work of the primary."""
        return self.handshake_round_trips * self.round_trip + self.authentication

    @property
    def accepted(self) -> float:
        """Connections a second that the primary admits."""
        return self.setup_rate if self.accept_rate is None else self.accept_rate

    @property
    def end(self) -> float:
        """``horizon`` as a number."""
        return math.inf if self.horizon is None else self.horizon
