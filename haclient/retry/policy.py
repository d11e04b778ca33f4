"""Limits and times of a client's search for the primary.

One frozen record holds every number that discovery uses.  Each default states its source.  Each field is
also an option of the cluster URL with the same name.  Times are seconds.
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
    """The same for the first connect, at which a wrong URL is likelier than an outage."""

    refusal_timeout: float | None = 60.0
    """After a loss, refusals by every member (``not-found``, ``invalid-field``, ``not-allowed``) are final
    only after this time, as a group may be electing its primary.  So are credentials that some members
    refuse, if no member serves.  Elections take seconds; same default as ``startup_deadline``."""

    max_attempts: int | None = None
    """Attempts in one episode after which the client gives up."""

    max_redirects: int = 5
    """Hops of one redirect chain; the number that Qpid JMS documents for its redirects."""

    redirects: Redirects = "members"
    """The redirect targets that may get the credentials, including a client certificate.  ``members``: hosts
    of the URL on any port, their addresses, and hosts of the same parent domain; ``any``: all.  ``none``:
    redirects are not followed, and targets that served are not remembered."""

    pushed_members: PushedMembers = "add"
    """Effect of a ``failover-server-list`` on the candidates; seeds are always kept."""

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
    """The longest time over which clients spread their dials if a primary announced a large fleet
    (docs/storms.md): enough for 20,000 clients at 200 setups a second.  0 ignores announcements."""

    dr: tuple[str, ...] | None = None
    """The members of a second site, as ``host`` or ``host:port``."""

    dr_after: float = 30.0
    """Length of an episode after which the other site may be used.  Three times ``attempt_timeout``: by then
    the client has dialled each member of a pair, and a failover between them would have ended."""

    standby: Standby = "outage"
    """When to ask a passive member to hold the connection until it serves (docs/storms.md): never;
    during an outage; or always, with one parked connection beside the live one."""

    park_timeout: float = 30.0
    """Time for which the search waits for a parked connection before it starts rounds again.  Longer than
    most connection floods, in which parked clients wait for a time slice.  Short enough for a client that is
    parked because only its own route to the primary is partitioned."""
