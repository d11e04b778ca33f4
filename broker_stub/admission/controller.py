"""Who is let in, when, and what the others are told.

Theory of operation
-------------------
Every Open comes here (``decide``).  A member that serves asks its ``Admission``: there is a slot now, or
the client is told when (``retry-after``), or it is parked until then.  A passive member parks who
wants to be parked, and sends the others to the primary; when it does that faster than a primary
like itself admits, it says when to come there as well.  When the member's role changes, ``became``
gives those who are parked their turns: to be served, or to be sent to the new primary.

Rules
-----
* The cluster-admin and its replication links take no slot and never wait.
* A client that is parked wherever it could be refused costs one attempt; a lot that is full is
  as if the client had not asked.
* A turn is a slot: the parked are served, or sent on, at the accept rate, like everybody else.
  Those who are sent on stay until their turn, and so need no hint.
* Who is parked at a passive member stays when that member hears of its primary again and again; only
  one that was not known before is news.

Sources: DESIGN section 6; AMQP 1.0 part 2, sections 2.8.15 and 2.8.16.
"""

from __future__ import annotations

import asyncio
import enum
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol

import proton

from broker_stub.admission import auth, calibration
from broker_stub.admission.accept_rate import INTERVAL, AutoRate
from broker_stub.admission.handshakes import Handshakes
from broker_stub.admission.parking import Guest, Lot
from broker_stub.admission.rate_limiter import DEFAULT_BURST, Admission
from broker_stub.election.roles import Membership
from haclient.engine.settings import Settings

RETRY_AFTER = proton.symbol("retry-after")
_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"
# Clients on one busy machine come in clumps: whoever could have come within the last tenth of a second
# is let in at once, or slots pass unused while those whose they are wait for a processor.
_CLUMP = 0.1
# The wire has 32 bits of milliseconds.
_LONGEST_HINT = 2**32 - 1


class RateSource(enum.StrEnum):
    """Where an accept rate comes from that is not a number."""

    MEASURED = "measured"
    AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntranceOptions:
    """How many are let in, and how fast.

    :param rate: set-ups a second, ``math.inf`` for no limit, or where the number comes from.
    :param burst: how many may come at once after an idle time; ``None`` for those of ``_CLUMP``.
    :param max_handshakes: connections without an Open at most.
    :param park_limit: how many are parked at most.
    :param park_timeout: seconds that one is parked at most.
    """

    rate: float | RateSource = math.inf
    burst: float | None = None
    max_handshakes: int = 1000
    park_limit: int = 10_000
    park_timeout: float = 600.0


class Decision(enum.Enum):
    """What becomes of a client that is not refused."""

    ADMIT = enum.auto()
    PARK = enum.auto()


class Comer(Guest, Protocol):
    """A client whose Open has come."""

    admin: bool
    replicates: bool

    @property
    def key(self) -> Hashable:
        """What it is known by when it comes again."""

    @property
    def wants_park(self) -> bool:
        """Whether it may be parked."""


class Entrance:
    """The door of one member.

    :param membership: what the member is; ``became`` tells what it becomes.
    """

    def __init__(
        self, options: EntranceOptions, membership: Membership, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.handshakes = Handshakes(options.max_handshakes)
        self.lot = Lot(loop, limit=options.park_limit, timeout=options.park_timeout, turn=self._turn)
        self._options = options
        self._membership = membership
        self._loop = loop
        rate = options.rate if isinstance(options.rate, float | int) else math.inf
        self._admission = Admission(rate)
        self._redirects = Admission(rate, reuse=False)
        self._set_rate(rate)
        self._auto: AutoRate | None = None
        self._look: asyncio.TimerHandle | None = None
        self._admitted = self._refused = self._redirected = self._parked = 0

    def start(self, settings: Settings) -> None:
        """Measure how fast set-ups are, where the rate depends on it.

        :param settings: what connections are opened with.
        """
        if not isinstance(self._options.rate, RateSource):
            return
        self._set_rate(calibration.measure(settings))
        if self._options.rate is RateSource.AUTO:
            self._auto = AutoRate(self._admission.rate)
            self._look_later()

    def close(self) -> None:
        """Nobody's turn comes any more."""
        self.lot.close()
        if self._look is not None:
            self._look.cancel()

    # -- decisions ------------------------------------------------------------------------------

    def decide(self, comer: Comer, *, full: bool) -> Decision | proton.Condition:
        """Whether a client is served, parked, or refused and why.

        :param full: whether there are as many connections as there may be.
        """
        if comer.admin:
            return self._decide_privileged(comer)
        if not self._membership.role.serves:
            return (None if full else self._park(comer)) or self._send_on(comer)
        if full:
            return self._refuse("there are as many connections as there may be")
        wait = self._wait_for_slot(comer)
        if wait == 0:
            self._admitted += 1
            return Decision.ADMIT
        return self._park(comer, wait) or self._refuse("more come than can be let in at once", wait)

    def _decide_privileged(self, comer: Comer) -> Decision | proton.Condition:
        if not comer.replicates or self._membership.role.serves:
            return Decision.ADMIT
        return auth.passive_refusal(self._membership)

    def _wait_for_slot(self, comer: Comer) -> float:
        if self._admission.rate == math.inf:
            return 0.0
        # Who is parked comes to its turn as the same connection; others must be known again.
        name = comer if comer.wants_park and not self.lot.full else comer.key
        wait = self._admission.ask(name, self._loop.time())
        if wait > 0 and self._auto is not None:
            self._auto.wanted()
        return wait

    def _park(self, comer: Comer, wait: float | None = None) -> Decision | None:
        if not comer.wants_park or self.lot.full:
            return None
        self._parked += 1
        self.lot.park(comer)
        if wait is not None:
            self.lot.schedule(comer, wait)
        return Decision.PARK

    def _refuse(self, why: str, wait: float = 0.0) -> proton.Condition:
        self._refused += 1
        return _hinted(proton.Condition(_LIMIT_EXCEEDED, why), wait)

    def _send_on(self, comer: Comer) -> proton.Condition:
        self._redirected += 1
        condition = auth.passive_refusal(self._membership)
        if self._membership.primary is None or self._redirects.rate == math.inf:
            return condition
        return _hinted(condition, self._redirects.ask(comer.key, self._loop.time()))

    def set_up(self, seconds: float) -> None:
        """A client that was admitted began a session so long after its socket was accepted."""
        if self._auto is not None:
            self._auto.completed(seconds)

    # -- turns ----------------------------------------------------------------------------------

    def became(self, membership: Membership) -> None:
        """The member is another one, or knows more of the primary."""
        before, self._membership = self._membership, membership
        if membership.role.serves:
            if not before.role.serves:
                self.lot.schedule_all(self._next_slot(self._admission))
        elif membership.primary is None or before.role.serves:
            self.lot.forget_turns()
        elif _leader(membership) != _leader(before):
            self.lot.schedule_all(self._next_slot(self._redirects))

    def _next_slot(self, admission: Admission) -> Callable[[Guest], float]:
        now = self._loop.time()
        return lambda guest: admission.ask(guest, now)

    def _turn(self, guest: Guest, at_once: bool) -> None:  # noqa: FBT001  (called by the lot)
        """It is the turn of somebody who is parked; what did not have to wait has its slot already."""
        membership = self._membership
        gate = self._admission if membership.role.serves else self._redirects
        wait = 0.0 if at_once else gate.ask(guest, self._loop.time())
        if wait > 0:
            self.lot.schedule(guest, wait)
        elif membership.role.serves:
            self._admitted += 1
            guest.unpark()
        elif membership.primary is not None:
            self._redirected += 1
            guest.turn_away(auth.redirect(membership.primary))

    # -- the rate -------------------------------------------------------------------------------

    def _set_rate(self, rate: float) -> None:
        burst = self._options.burst
        for admission in (self._admission, self._redirects):
            admission.rate = rate
            admission.burst = burst or _burst(rate)

    def _look_later(self) -> None:
        due = self._loop.time() + INTERVAL
        self._look = self._loop.call_at(due, self._adapt, due)

    def _adapt(self, due: float) -> None:
        assert self._auto is not None
        self._set_rate(self._auto.look(self._loop.time() - due))
        self._look_later()

    def status(self) -> dict[str, Any]:
        """How many came, and what became of them."""
        rate = self._admission.rate
        return {
            "rate": None if rate == math.inf else rate,
            "admitted": self._admitted,
            "refused": self._refused,
            "redirected": self._redirected,
            "parked": self._parked,
            "parked_now": len(self.lot),
            "slots_kept": self._admission.waiting,
            "half_open": len(self.handshakes),
            "cut": self.handshakes.cut,
        }


def _burst(rate: float) -> float:
    return DEFAULT_BURST if rate == math.inf else max(DEFAULT_BURST, rate * _CLUMP)


def _leader(membership: Membership) -> tuple[object, ...]:
    """What is another primary: without an arbiter a primary that is promoted again is never lost between."""
    return membership.primary, None if membership.arbitrated else membership.generation


def _hinted(condition: proton.Condition, wait: float) -> proton.Condition:
    """The condition with the time to come: AMQP's ``info`` map, milliseconds."""
    if wait <= 0:
        return condition
    hint = proton.uint(min(math.ceil(wait * 1000), _LONGEST_HINT))
    info = condition.info if isinstance(condition.info, dict) else {}
    return proton.Condition(condition.name, condition.description, {**info, RETRY_AFTER: hint})
