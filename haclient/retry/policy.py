"""How hard, how fast and how long a client looks for the primary.

One frozen record holds every number that discovery uses.  Each default gives its
source; all of them can be set in the cluster URL by the same name.  Times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from haclient.retry.strategies import StrategyName

Redirects = Literal["members", "any", "none"]
PushedMembers = Literal["add", "replace", "ignore"]
Standby = Literal["none", "outage", "warm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules of one search.  Every time is in seconds; ``None`` means no limit."""

    stagger: float = 0.25
    """After this long without TCP the client dials the next endpoint as well
    (the "connection attempt delay" of RFC 8305, section 5)."""

    max_dials: int = 4
    """Attempts pending at once, for all connections of a factory together."""

    attempt_timeout: float = 10.0
    """One deadline from TCP connect to usable session (rabbitmq and Qpid JMS: 10 to 15)."""

    stable_after: float = 5.0
    """A connection usable for this long resets the backoff."""

    deadline: float | None = None
    """Length of an episode after which the client gives up; none: it never gives up."""

    startup_deadline: float | None = 60.0
    """The same for the first connect, where a wrong URL is likelier than an outage."""

    refusal_timeout: float | None = 60.0
    """After a loss every member may answer ``not-found``, ``invalid-field`` or ``not-allowed`` for so long,
    as in a group that elects its primary, or some refuse the credentials while nobody serves; then the
    answer is final.
    Elections take seconds; this is ``startup_deadline``'s."""

    max_attempts: int | None = None
    """Attempts in one episode after which the client gives up."""

    max_redirects: int = 5
    """Hops of one redirect chain; the number that Qpid JMS documents for its redirects."""

    redirects: Redirects = "members"
    """Which redirect targets may be given the credentials, a client certificate too.  ``members``: the hosts
    of the URL on any port, their addresses, and hosts of the same parent domain; ``any``; ``none``:
    redirects are not followed at all, and targets that served are not remembered."""

    pushed_members: PushedMembers = "add"
    """What a ``failover-server-list`` does to the candidates; seeds are always kept."""

    backoff_base: float = 0.1
    """First ceiling of the jittered delay (proton's own first reconnect delay)."""

    backoff_factor: float = 2.0
    """Growth of that ceiling from one failed round to the next."""

    backoff_max: float = 10.0
    """The ceiling never exceeds this (proton's own longest reconnect delay)."""

    backoff_strategy: StrategyName = "adaptive"
    """How a delay is drawn under its ceiling, see ``strategies`` and ``discovery.polling``."""

    max_retry_after: float = 60.0
    """The client honors the delays that servers ask for up to this total since the last stable connection."""

    max_spread: float = 120.0
    """The longest time over which clients spread their dials where a primary announced a large fleet
    (docs/storms.md): enough for 20,000 clients at 200 setups a second.  0 ignores what primaries announce."""

    dr: tuple[str, ...] | None = None
    """The members of a second site, as ``host`` or ``host:port``."""

    dr_after: float = 30.0
    """An episode this long may end at the other site: three times ``attempt_timeout``, so that the client
    has dialled each member of a pair, and a failover between them would have ended."""

    standby: Standby = "outage"
    """When to ask a passive member to hold the connection until it serves (docs/storms.md): never;
    during an outage; or always, with one parked connection beside the live one."""

    park_timeout: float = 30.0
    """While a connection is parked, the search waits this long for it; then it starts rounds again.  Longer
    than most connection floods, in which parked clients wait for a time slice; and short enough for a client
    that is parked because only its own route to the primary is partitioned."""
