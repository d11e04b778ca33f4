"""Decide when refusals by every member are final, so that a search gives up.

A member answers ``amqp:not-found`` if it does not serve the virtual host, and ``amqp:invalid-field`` if it
does not accept a field of the Open.  One cause is a wrong URL.  Another is an election: each member of a
Broker-J group answers so until one is the new master, which takes seconds.  So refusals are final only if
they last.

``amqp:not-allowed`` means a limit of connections, a virtual host that the user may not use, or a second
client with the same id.  At the first connect, no known cause ends soon.  After a loss, the client's former
connection may still count, or a virtual host may be starting (Broker-J).

Rules
-----
1. A round is refused if every member refused: the members of both sites, and the targets of redirects.
   A redirect is no refusal and no other answer.  A listed name without an address has not answered.
   A refusal with a ``retry_after`` counts as another answer, as the member asks the client to try again.
2. Refusals are final after ``ROUNDS`` refused rounds in a row, over ``FIRST_SECONDS`` at the first connect
   and over ``refusal_timeout`` after a loss.  At the first connect, ``not-allowed`` from all members is final
   after one round.
3. Any other answer, a round that is not refused, and a usable session restart the count.
4. The time between two rounds counts at most as the longest delay plus one attempt.  No member can answer
   while the process or its machine stands still.
5. A member that names the container id (sole connection enforcement, see Sources) has another connection with
   that id, perhaps of a dead process.  The member serves, but refuses until it notices the death.
   So this refusal is never final at the first connect.  The error of a search mentions it in any case.
   If the other connection belongs to this process, the first such refusal is final: see ``held_here``.
6. At the first connect, wrong credentials and wrong certificates are final at once.  After a loss they are
   final at once only if every member refuses for that reason.  If the other members merely do not serve, they
   are final after ``ROUNDS`` and ``refusal_timeout``: one member may be misconfigured for long, which shows
   only while the primary restarts.  Credentials from a function of the application may change, so they are
   final only after that time.
7. The searches of a factory share one count.  A search that becomes the owner after a final refusal needs one
   round, not another ``refusal_timeout``.  But each search must itself have lasted that long.

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
# Short, so that a user sees the error of a wrong URL; most elections take less.
FIRST_SECONDS = 3.0
# If members give different answers, the first of these is the reason.
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
    """Return the verdict if another connection of this process holds the container id at the member.

    Waiting would not help: only the application can close the other connection.
    """
    return GiveUpReason.INVALID_FIELD, f"{endpoint}: {_HELD_HERE}: {failure.detail or failure.condition}"


def condition_of(reason: GiveUpReason) -> str | None:
    """Return the error condition that belongs to a reason; ``None`` if the reason has none."""
    return next((condition for condition, each in _REASONS.items() if each is reason), None)


class Streak:
    """Refused rounds in a row.

    :ivar rounds: number of rounds.
    :ivar seconds: time from the end of the first to the end of the last, limited by rule 4.
    """

    __slots__ = ("_at", "rounds", "seconds")

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Set the count to zero: there was another answer."""
        self.rounds = 0
        self.seconds = 0.0
        self._at = math.inf

    def extend(self, policy: Policy, now: float) -> None:
        """Count another refused round."""
        self.rounds += 1
        self.seconds += min(max(now - self._at, 0.0), policy.backoff_max + policy.attempt_timeout)
        self._at = now

    def is_final(self, seconds: float | None, lasted: float) -> bool:
        """Return whether the streak is long enough to end a search.

        :param seconds: required duration, in seconds; ``None``: never long enough.
        :param lasted: duration of the search itself, in seconds.
        """
        return seconds is not None and self.rounds >= ROUNDS and min(self.seconds, lasted) >= seconds


class Refusals:
    """The refusals met by the searches of one factory.

    :ivar by_all: rounds in which every member refused.
    :ivar by_some: rounds in which no member served, and some refused the credentials or had a wrong
        certificate.
    """

    __slots__ = ("_in_use", "_text", "by_all", "by_some")

    def __init__(self) -> None:
        self.by_all = Streak()
        self.by_some = Streak()
        self.reset()

    def reset(self) -> None:
        """Forget all refusals: a session is usable, or no search is left."""
        self._in_use: tuple[Endpoint, Failure] | None = None
        self.by_some.restart()
        self._restart()

    def _restart(self) -> None:
        self.by_all.restart()
        self._text = ""

    @property
    def text(self) -> str:
        """Return the reason of the members, for people; empty if they do not agree."""
        if self._in_use is None:
            return self._text
        endpoint, failure = self._in_use
        return f"{endpoint}: {_IN_USE}: {failure.detail or failure.condition}"

    def heard(self, endpoint: Endpoint, failure: Failure) -> None:
        """Take in the end of an attempt."""
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

        :returns: the verdict, if every member refused; else ``None``.
        """
        verdict = _unanimous(tried, topology)
        if verdict is None:
            self._restart()
            return None
        self.by_all.extend(policy, now)
        self._text = verdict[1]
        return (GiveUpReason.INVALID_FIELD, self.text) if self._in_use else verdict

    def are_final(self, reason: GiveUpReason, policy: Policy, lasted: float, *, first: bool) -> bool:
        """Return whether the refusals are final for a search.

        :param reason: reason of the search's last round, which was refused.
        :param lasted: duration of the search, in seconds.
        :param first: whether the search is for the first connect.
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
    """Return whether ``endpoints`` has all members of both sites, and every listed name has an address."""
    unresolved = any(not (is_literal(e.host) or topology.addresses(e)) for e in topology.listed)
    return not unresolved and all(each in endpoints for each in topology.candidates(other_site=True))


def _reason(failure: Failure) -> GiveUpReason | None:
    if failure.kind is not FailureReason.CLOSED or failure.retry_after is not None:
        return None
    return _REASONS.get(failure.condition or "")
