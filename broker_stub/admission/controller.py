"""Admits, parks, refuses or redirects each client, and chooses the time.

Theory of operation
-------------------
``decide`` judges every Open. On a serving member it asks the ``RateLimiter``. If no slot is free, the refusal
names the time of a slot (``retry-after``), or the client is parked until then. A passive member parks clients
that ask for it, and redirects the others to the primary. If it redirects faster than a primary like itself
admits, the redirect carries ``retry-after`` as well. When the member's role changes, ``role_changed`` gives
every parked connection a slot: to be served, or to be redirected to the new primary.

Rules
-----
* The cluster-admin and its replication links take no slot and never wait.
* If members park a client instead of refusing it, one attempt is enough. When the parking limit is reached,
  the member ignores the request to be parked.
* Parked connections are served or redirected at the accept rate, like all others. Connections to be
  redirected stay until their slot, and so need no ``retry-after``.
* A member that admits all clients at once (``unlimited``, ``announced``) refuses none for its rate, and sends
  no ``retry-after``; see ``fleet``.
* If a passive member learns again of the primary that it knows, parked connections stay; only a new primary
  gives them slots.

Sources: docs/storms.md; AMQP 1.0 part 2, sections 2.8.15 and 2.8.16.
"""

from __future__ import annotations

import asyncio
import enum
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol

import proton

from broker_stub.admission import fleet, refusals
from broker_stub.admission.accept_rate import INTERVAL, AutoRate
from broker_stub.admission.handshakes import Handshakes
from broker_stub.admission.parking import ParkedConnection, Parking
from broker_stub.admission.rate_limiter import DEFAULT_BURST, RateLimiter
from broker_stub.amqp.conditions import RESOURCE_LIMIT_EXCEEDED
from broker_stub.election.roles import Membership
from haclient.engine.settings import Settings

# Clients on one busy machine arrive in bursts. The slots of the last tenth of a second stay usable; otherwise
# they expire while their clients wait for a processor.
_BURST_WINDOW = 0.1


class RateSource(enum.StrEnum):
    """The source of an accept rate that is not given as a number."""

    MEASURED = "measured"
    AUTO = "auto"
    ANNOUNCED = "announced"
    """Admit all clients at once and announce the measured rate: clients spread their dials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionOptions:
    """The number and rate of clients that a member admits.

    :param rate: setups per second, ``math.inf`` for no limit, or the source of the number.
    :param burst: clients admitted at once after an idle time; ``None`` for the slots of ``_BURST_WINDOW``.
    :param max_handshakes: most connections without an Open.
    :param park_limit: most parked connections.
    :param park_timeout: most seconds that a connection stays parked.
    """

    rate: float | RateSource = math.inf
    burst: float | None = None
    max_handshakes: int = 1000
    park_limit: int = 10_000
    park_timeout: float = 600.0


class Decision(enum.Enum):
    """The treatment of a client that is not refused."""

    ADMIT = enum.auto()
    PARK = enum.auto()


class AdmissionRequest(ParkedConnection, Protocol):
    """A client that has sent its Open."""

    admin: bool
    replicates: bool

    @property
    def key(self) -> Hashable:
        """The key that identifies the client when it connects again."""

    @property
    def wants_park(self) -> bool:
        """Return whether the client may be parked."""


class AdmissionController:
    """Admits the clients of one member.

    :param membership: the member's current role; ``role_changed`` reports changes.
    """

    def __init__(
        self, options: AdmissionOptions, membership: Membership, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.handshakes = Handshakes(options.max_handshakes)
        self.parking = Parking(
            loop, limit=options.park_limit, timeout=options.park_timeout, run_slot=self._run_slot
        )
        self._options = options
        self._membership = membership
        self._loop = loop
        rate = options.rate if isinstance(options.rate, float | int) else math.inf
        self._rate_limiter = RateLimiter(rate)
        self._redirect_limiter = RateLimiter(rate, reuse=False)
        self._set_rate(rate)
        self._announced_rate: float | None = None
        self._peak = fleet.Peak(loop.time())
        self._auto: AutoRate | None = None
        self._tick_timer: asyncio.TimerHandle | None = None
        self._admitted = self._refused = self._redirected = self._parked = 0

    def start(self, settings: Settings) -> None:
        """Measure the speed of setups, if the rate depends on it.

        :param settings: the settings of client connections.
        """
        if not isinstance(self._options.rate, RateSource):
            return
        from broker_stub.admission import calibration  # noqa: PLC0415 - only if the rate is not given

        measured = calibration.measure(settings)
        if self._options.rate is RateSource.ANNOUNCED:
            self._announced_rate = measured
            return
        self._set_rate(measured)
        if self._options.rate is RateSource.AUTO:
            self._auto = AutoRate(self._rate_limiter.rate)
            self._schedule_tick()

    def close(self) -> None:
        """Cancel all slots and timers."""
        self.parking.close()
        if self._tick_timer is not None:
            self._tick_timer.cancel()

    # -- decisions ------------------------------------------------------------------------------

    def decide(self, request: AdmissionRequest, *, full: str) -> Decision | proton.Condition:
        """Serve the client, park it, or refuse it with a condition.

        :param full: the reason why there is no room for another connection; empty if there is.
        """
        if request.admin:
            return self._decide_admin(request)
        if not self._membership.role.serves:
            return (None if full else self._park(request)) or self._redirect(request)
        if full:
            return self._refuse(full)
        wait = self._wait_for_slot(request)
        if wait == 0:
            self._admitted += 1
            return Decision.ADMIT
        return self._park(request, wait) or self._refuse(
            "more clients connect than can be admitted at once", wait
        )

    def _decide_admin(self, request: AdmissionRequest) -> Decision | proton.Condition:
        if not request.replicates or self._membership.role.serves:
            return Decision.ADMIT
        return refusals.passive_refusal(self._membership)

    def _wait_for_slot(self, request: AdmissionRequest) -> float:
        if self._rate_limiter.rate == math.inf:
            return 0.0
        # A parked client keeps its connection until its slot; other clients must be recognised when they
        # return.
        name = request if request.wants_park and not self.parking.full else request.key
        wait = self._rate_limiter.reserve(name, self._loop.time())
        if wait > 0 and self._auto is not None:
            self._auto.note_waiting()
        return wait

    def _park(self, request: AdmissionRequest, wait: float | None = None) -> Decision | None:
        if not request.wants_park or self.parking.full:
            return None
        self._parked += 1
        self.parking.park(request)
        if wait is not None:
            self.parking.schedule(request, wait)
        return Decision.PARK

    def _refuse(self, why: str, wait: float = 0.0) -> proton.Condition:
        self._refused += 1
        return refusals.with_retry_after(proton.Condition(RESOURCE_LIMIT_EXCEEDED, why), wait)

    def _redirect(self, request: AdmissionRequest) -> proton.Condition:
        self._redirected += 1
        condition = refusals.passive_refusal(self._membership)
        if self._membership.primary is None or self._redirect_limiter.rate == math.inf:
            return condition
        return refusals.with_retry_after(
            condition, self._redirect_limiter.reserve(request.key, self._loop.time())
        )

    def announcement(self, connections: int) -> dict[str, Any]:
        """Return the properties of the Open that announce the fleet's size and rate, if any.

        :param connections: current connections of all clients.
        """
        if self._announced_rate is None or not self._membership.role.serves:
            return {}
        return fleet.announcement(self._peak.note(connections, self._loop.time()), self._announced_rate)

    def setup_completed(self, seconds: float) -> None:
        """Record the seconds from an admitted client's socket to its Begin."""
        if self._auto is not None:
            self._auto.completed(seconds)

    # -- slots ----------------------------------------------------------------------------------

    def role_changed(self, membership: Membership) -> None:
        """Apply the member's new role, or new knowledge of the primary."""
        before, self._membership = self._membership, membership
        if membership.role.serves:
            if not before.role.serves:
                self.parking.schedule_all(self._next_slot(self._rate_limiter))
        elif membership.primary is None or before.role.serves:
            self.parking.cancel_slots()
        elif _primary_identity(membership) != _primary_identity(before):
            self.parking.schedule_all(self._next_slot(self._redirect_limiter))

    def _next_slot(self, admission: RateLimiter) -> Callable[[ParkedConnection], float]:
        now = self._loop.time()
        return lambda connection: admission.reserve(connection, now)

    def _run_slot(self, connection: ParkedConnection, at_once: bool) -> None:  # noqa: FBT001  (called by ``Parking``)
        """Run the due slot of a parked connection; with ``at_once`` it is reserved already."""
        membership = self._membership
        limiter = self._rate_limiter if membership.role.serves else self._redirect_limiter
        wait = 0.0 if at_once else limiter.reserve(connection, self._loop.time())
        if wait > 0:
            self.parking.schedule(connection, wait)
        elif membership.role.serves:
            self._admitted += 1
            connection.unpark()
        elif membership.primary is not None:
            self._redirected += 1
            connection.close_with(refusals.redirect(membership.primary))

    # -- the rate -------------------------------------------------------------------------------

    def _set_rate(self, rate: float) -> None:
        burst = self._options.burst
        for admission in (self._rate_limiter, self._redirect_limiter):
            admission.rate = rate
            admission.burst = burst or _burst(rate)

    def _schedule_tick(self) -> None:
        due = self._loop.time() + INTERVAL
        self._tick_timer = self._loop.call_at(due, self._tick, due)

    def _tick(self, due: float) -> None:
        assert self._auto is not None
        self._set_rate(self._auto.tick(self._loop.time() - due))
        self._schedule_tick()

    def status(self) -> dict[str, Any]:
        """Return counts of clients by decision, for the status."""
        rate = self._rate_limiter.rate
        return {
            "rate": None if rate == math.inf else rate,
            "admitted": self._admitted,
            "refused": self._refused,
            "redirected": self._redirected,
            "parked": self._parked,
            "parked_now": len(self.parking),
            "slots_kept": self._rate_limiter.waiting,
            "half_open": len(self.handshakes),
            "cut": self.handshakes.aborted,
        }


def _burst(rate: float) -> float:
    return DEFAULT_BURST if rate == math.inf else max(DEFAULT_BURST, rate * _BURST_WINDOW)


def _primary_identity(membership: Membership) -> tuple[object, ...]:
    """Return a key that changes with the primary.

    Without an arbiter, a primary may be promoted again without a loss in between, so the generation counts.
    """
    return membership.primary, None if membership.arbitrated else membership.generation
