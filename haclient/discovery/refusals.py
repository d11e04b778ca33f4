"""How long every member has refused what the client asks for, and when that is the final answer.

A member answers ``amqp:not-found`` when it does not serve the virtual host, and ``amqp:invalid-field``
when it does not accept a field of the Open.  A wrong URL is one cause.  An election is another: each member
of a Broker-J group answers so until one of them is the new master, which takes seconds.  So the answer
must last.

``amqp:not-allowed`` means a limit of connections, a virtual host that the user may not use, or a second
client with the same id.  At the first connect nothing is known that would end soon.  After a loss it may be
the former connection of this client that counts, or a virtual host that is being started (Broker-J).

Rules
-----
1. A round is refused when every member answered so: those of both sites, and the targets of redirects.
   A member that redirects says nothing about it.  A listed name without an address has not answered.
   With a ``retry_after`` the member asks the client to come back, which is another answer.
2. Refusals are final after ``ROUNDS`` refused rounds in a row, over ``FIRST_SECONDS`` at the first connect
   and over ``refusal_timeout`` after a loss.  ``not-allowed`` from all of them is final after one round at
   the first connect.
3. Any other answer, a round that is not refused, and a usable session begin the count anew.
4. The time between two rounds counts up to one longest delay and one attempt: while a process
   or its machine stands still nobody answers.
5. A member that names the container id (sole connection enforcement, see Sources) has another connection
   with it, perhaps that of a process that died: it serves, and refuses until it notices the death.
   At the first connect that is never final.  The error of a search says so, whatever ended it.
   If the other connection is one of this process, the first such refusal is final: see ``held_here``.
6. Wrong credentials and wrong certificates are final at once at the first connect.  After a loss they are
   when every member has them, and where others only do not serve, after ``ROUNDS`` and ``refusal_timeout``:
   one member may be wrong for long, which shows when the primary is being started again.  Those that a
   function of the application returns may change: so they are final after that time only.
7. The searches of a factory have one count: the search that becomes the owner after a final refusal needs one
   round, not ``refusal_timeout`` anew.  But no search ends before it has lasted as long itself.

Sources: AMQP 1.0 part 2, section 2.8.15 (the conditions); OASIS "AMQP Enforcing Connection Uniqueness 1.0",
section 4 (``invalid-field`` = ``container-id`` in the info map), which ActiveMQ and Artemis send as well.
"""

from __future__ import annotations

import math
from collections.abc import Container

from haclient.cluster_url.domain import is_literal
from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.decision import GiveUpReason, Verdict
from haclient.discovery.evidence import Failure, FailureReason
from haclient.discovery.rounds import Round
from haclient.discovery.topology import Topology
from haclient.retry.policy import Policy

ROUNDS = 3
# A wrong URL should be reported while somebody looks; most elections take less.
FIRST_SECONDS = 3.0
# Where members answer different things, the first of these is the reason.
_REASONS = {
    "amqp:not-found": GiveUpReason.NOT_FOUND,
    "amqp:invalid-field": GiveUpReason.INVALID_FIELD,
    "amqp:not-allowed": GiveUpReason.NOT_ALLOWED,
}
_ORDER = tuple(_REASONS.values())
REDIRECTED = FailureReason.REDIRECTED
_SAYS_NOTHING = frozenset({REDIRECTED, FailureReason.STOPPED})
_IN_USE = (
    "another connection has the container id of this client (option client_id);"
    " if that of a process that died, until the member notices"
)

_HELD_HERE = (
    "this process has another connection with the container id of this one, and this broker takes an id once:"
    " give each connection its own (client_id, or container_id of the drop-in)"
)


def held_here(endpoint: Endpoint, failure: Failure) -> Verdict:
    """The verdict on a refusal of the container id that another connection of this process has there.

    To wait would be in vain, for nothing but the application closes that one.
    """
    return GiveUpReason.INVALID_FIELD, f"{endpoint}: {_HELD_HERE}: {failure.detail or failure.condition}"


def condition_of(reason: GiveUpReason) -> str | None:
    """The condition by which every member refuses, where that is the reason; ``None`` otherwise."""
    return next((condition for condition, each in _REASONS.items() if each is reason), None)


class Streak:
    """Refused rounds in a row.

    :ivar rounds: how many.
    :ivar seconds: from the end of the first to that of the last, as far as it counts (rule 4).
    """

    __slots__ = ("_at", "rounds", "seconds")

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Somebody answered something else."""
        self.rounds = 0
        self.seconds = 0.0
        self._at = math.inf

    def extend(self, policy: Policy, now: float) -> None:
        """One more round was refused."""
        self.rounds += 1
        self.seconds += min(max(now - self._at, 0.0), policy.backoff_max + policy.attempt_timeout)
        self._at = now

    def is_final(self, seconds: float | None, lasted: float) -> bool:
        """Whether it is long enough for a search.

        :param seconds: how long that is; ``None``: never.
        :param lasted: how long the search itself has lasted.
        """
        return seconds is not None and self.rounds >= ROUNDS and min(self.seconds, lasted) >= seconds


class Refusals:
    """The refusals that the searches of one factory have met.

    :ivar by_all: the rounds in which every member refused what the client asks for.
    :ivar by_some: those in which some refused the credentials, or had a wrong certificate, and nobody served.
    """

    __slots__ = ("_in_use", "_text", "by_all", "by_some")

    def __init__(self) -> None:
        self.by_all = Streak()
        self.by_some = Streak()
        self.reset()

    def reset(self) -> None:
        """A session is usable, or nobody searches any more."""
        self._in_use: tuple[Endpoint, Failure] | None = None
        self.by_some.restart()
        self._restart()

    def _restart(self) -> None:
        self.by_all.restart()
        self._text = ""

    @property
    def text(self) -> str:
        """What the members say, for people; empty when they say different things."""
        if self._in_use is None:
            return self._text
        endpoint, failure = self._in_use
        return f"{endpoint}: {_IN_USE}: {failure.detail or failure.condition}"

    def heard(self, endpoint: Endpoint, failure: Failure) -> None:
        """An attempt has ended."""
        if failure.kind in _SAYS_NOTHING:
            return
        if failure.id_in_use:
            self._in_use = endpoint, failure
        elif self._in_use is not None and self._in_use[0] == endpoint:
            self._in_use = None
            self._restart()
        if _reason(failure) is None:
            self._restart()

    def round_ended(self, tried: Round, topology: Topology, policy: Policy, now: float) -> Verdict | None:
        """Count the round.

        :returns: what every member says, if it was refused.
        """
        verdict = _unanimous(tried, topology)
        if verdict is None:
            self._restart()
            return None
        self.by_all.extend(policy, now)
        self._text = verdict[1]
        return (GiveUpReason.INVALID_FIELD, self.text) if self._in_use else verdict

    def are_final(self, reason: GiveUpReason, policy: Policy, lasted: float, *, first: bool) -> bool:
        """Whether a search that lasted so many seconds takes them for the answer.

        :param reason: that of its last round, which was refused.
        :param first: whether it is that of the first connect.
        """
        if first and reason is GiveUpReason.NOT_ALLOWED:
            return True
        seconds = FIRST_SECONDS if first else policy.refusal_timeout
        return not (first and self._in_use) and self.by_all.is_final(seconds, lasted)


def _unanimous(tried: Round, topology: Topology) -> Verdict | None:
    answers = tried.answers
    verdicts = [(reason, e, each) for e, each in answers.items() if (reason := _reason(each))]
    if not verdicts or not is_every_member(answers, topology):
        return None
    if any(_reason(each) is None and each.kind is not REDIRECTED for each in answers.values()):
        return None
    reason, endpoint, failure = min(verdicts, key=lambda verdict: _ORDER.index(verdict[0]))
    return reason, f"{endpoint}: {failure.detail or failure.condition}"


def is_every_member(endpoints: Container[Endpoint], topology: Topology) -> bool:
    """Whether these are all members of both sites, and every listed name has an address."""
    unresolved = any(not (is_literal(e.host) or topology.addresses(e)) for e in topology.listed)
    return not unresolved and all(each in endpoints for each in topology.candidates(other_site=True))


def _reason(failure: Failure) -> GiveUpReason | None:
    if failure.kind is not FailureReason.CLOSED or failure.retry_after is not None:
        return None
    return _REASONS.get(failure.condition or "")
