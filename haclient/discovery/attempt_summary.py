"""Summary of an episode's failed attempts for people: one line for each endpoint.

    amqp://amqp-a:5672: 27 times connection refused; last 0.4 s ago

The endpoint tried last is listed first, and so is the latest reason of an endpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from haclient.cluster_url.endpoint import Endpoint, Origin
from haclient.discovery.evidence import AttemptRecord, Failure

# The number of lines that fit a terminal.
_MOST_ENDPOINTS = 20
# Limited, since a peer may word each refusal differently.
_MOST_REASONS = 5


@dataclass(slots=True)
class _Found:
    """The failures at one endpoint; reasons in the order of their last occurrence."""

    ended: float
    reasons: Counter[str] = field(default_factory=Counter)


def summarize(attempts: Sequence[AttemptRecord], now: float) -> list[str]:
    """Return one line for each endpoint that was tried.

    After ``_MOST_ENDPOINTS`` of them, a line gives the number of the others.  If the records lack earlier
    attempts, the last line says how many of all attempts they cover.

    :param now: monotonic seconds, on the clock of the records.
    """
    found: dict[str, _Found] = {}
    for record in sorted(attempts, key=lambda record: record.ended):
        endpoint, reason = endpoint_text(record.endpoint), reason_of(record.failure)
        one = found.pop(endpoint, None) or _Found(record.ended)
        count = one.reasons.pop(reason, 0)
        one.reasons[reason], one.ended = count + 1, record.ended
        found[endpoint] = one
    lines = [
        f"{endpoint}: {_reasons(one.reasons)}; last {max(0.0, now - one.ended):.1f} s ago"
        for endpoint, one in reversed(found.items())
    ]
    made, kept = max((record.number for record in attempts), default=0), len(attempts)
    dropped = [f"(the last {kept:,} of {made:,} attempts)"] if made > kept else []
    return [*_at_most(_MOST_ENDPOINTS, lines, "endpoints"), *dropped]


def describe_failures(failures: Iterable[tuple[Endpoint, Failure]]) -> str:
    """Return the given failures of endpoints on one line, in their order: ``_MOST_ENDPOINTS`` at most."""
    each = [f"{endpoint_text(endpoint)}: {reason_of(failure)}" for endpoint, failure in failures]
    return "; ".join(_at_most(_MOST_ENDPOINTS, each, "endpoints"))


def endpoint_text(endpoint: Endpoint) -> str:
    """Return the endpoint as text, with the name if its address was resolved from one."""
    found = endpoint.origin is Origin.RESOLVED and endpoint.tls_name != endpoint.host
    return f"{endpoint} ({endpoint.tls_name})" if found else str(endpoint)


def reason_of(failure: Failure) -> str:
    """Return why an attempt failed, on one line: the failure's detail, or else the peer's condition.

    The kind of failure precedes it, unless the text contains it.  It stands alone if there is no text.
    """
    text = " ".join(failure.detail.split()) or failure.condition or ""
    kind = failure.kind.value
    if not text:
        return kind
    return text if kind.replace("-", " ") in text.lower() else f"{kind} ({text})"


def _reasons(reasons: Counter[str]) -> str:
    latest_first = [f"{_times(count)} {reason}" for reason, count in reversed(reasons.items())]
    return ", ".join(_at_most(_MOST_REASONS, latest_first, "reasons"))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _at_most(most: int, parts: list[str], noun: str) -> list[str]:
    more = len(parts) - most
    return parts if more <= 0 else [*parts[:most], f"and {more:,} more {noun}"]
