"""The memory of one round: one pass over all candidates.

A round is finite whatever the peers do.  The list is computed anew at every step, so that an
address that DNS finds under way is dialled in the same round, but at most twice its greatest
length is dialled: enough for a list that resolving replaces as a whole, and an end for one
that a peer keeps rewriting.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.decision import GiveUpReason
from haclient.discovery.evidence import Failure, FailureReason, valid_hint

# Asking the same member again would meet the same answer, or lock the account.
FATAL = {
    FailureReason.AUTHENTICATION: GiveUpReason.AUTHENTICATION,
    FailureReason.TLS_VERIFICATION: GiveUpReason.TLS_VERIFICATION,
}
# Errors of Open and Begin that blame what the client asked for (AMQP 1.0 part 2, section 2.8.15).
_FATAL_EVERYWHERE = {
    "amqp:not-found": GiveUpReason.NOT_FOUND,
    "amqp:invalid-field": GiveUpReason.INVALID_FIELD,
}


@dataclass(slots=True)
class Round:
    """What was dialled in this round and what came of it.

    :param redirected: what was dialled because of a redirect.
    :param hints: the hints since the last delay, in seconds, but for those that name a slot.
    """

    number: int = 0
    dialled: set[Endpoint] = field(default_factory=set)
    redirected: frozenset[Endpoint] = frozenset()
    misses: dict[Endpoint, Failure] = field(default_factory=dict)
    hints: dict[Endpoint, float] = field(default_factory=dict)
    listed: int = 0
    longest: int = 0

    def note(self, endpoint: Endpoint, miss: Failure) -> None:
        """Remember how an attempt ended."""
        self.misses[endpoint] = miss
        if miss.retry_after is not None and not miss.is_slot:
            hint = valid_hint(miss.retry_after)
            if hint is not None:
                self.hints[endpoint] = hint

    def take_hint(self) -> float | None:
        """The largest hint; the delay that begins now obeys them all."""
        hint = max(self.hints.values(), default=None)
        self.hints.clear()
        return hint

    def next_listed(self, candidates: tuple[Endpoint, ...], flying: Container[Endpoint]) -> Endpoint | None:
        """The next candidate whose turn has not come yet."""
        self.longest = max(self.longest, len(candidates))
        if self.listed >= 2 * self.longest:
            return None
        for candidate in candidates:
            if candidate not in self.dialled and candidate not in flying:
                return candidate
        return None

    def unknown_everywhere(self, candidates: tuple[Endpoint, ...]) -> tuple[GiveUpReason, str] | None:
        """The verdict when no member knows what the client asked for, container or host name.

        A member that redirected has not spoken about it; its target has.
        """
        if not any(m.condition in _FATAL_EVERYWHERE for m in self.misses.values()):
            return None
        spoken = [(e, m) for e, m in self.misses.items() if m.kind is not FailureReason.REDIRECTED]
        verdicts = [(reason, e, m) for e, m in spoken if (reason := _verdict(m))]
        if not spoken or len(verdicts) < len(spoken) or any(c not in self.misses for c in candidates):
            return None
        reason, endpoint, miss = min(verdicts, key=lambda v: v[0] is not GiveUpReason.NOT_FOUND)
        return reason, f"{endpoint}: {miss.detail or miss.condition}"


def _verdict(miss: Failure) -> GiveUpReason | None:
    return _FATAL_EVERYWHERE.get(miss.condition or "") if miss.kind is FailureReason.CLOSED else None
