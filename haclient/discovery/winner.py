"""Choose the usable session that becomes the connection (rules 2 and 3 of ``search``).

The winner is the first usable session whose generation is not stale.  Before the search announces the winner,
it abandons the losers, one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from haclient.discovery.evidence import Claimed, FailureReason
from haclient.discovery.pending_attempts import PendingAttempt, PendingAttempts
from haclient.discovery.topology import Topology, update


@dataclass(frozen=True, slots=True)
class Loser:
    """A pending attempt that must be abandoned before the winner is announced, and the reason."""

    pending: PendingAttempt
    reason: FailureReason
    detail: str


def choose(attempts: PendingAttempts, topology: Topology) -> PendingAttempt | Loser:
    """Return the winner, or the next loser to abandon.  At least one session must be usable."""
    claims = [(pending, pending.claim) for pending in attempts if pending.claim is not None]
    for pending, claim in claims:
        # Two claims may arrive before the driver updates the topology.
        facts = claim.generation, claim.cluster, topology.version
        topology = update(topology, Claimed(pending.endpoint, *facts, proven=claim.proven))
    for pending, claim in claims:
        if topology.is_stale(claim.generation, claim.cluster, proven=claim.proven):
            detail = f"generation {claim.generation} is not the newest of cluster {claim.cluster}"
            return Loser(pending, FailureReason.STALE_PRIMARY, detail)
    winner = claims[0][0]
    for pending in attempts:
        if pending.attempt != winner.attempt:
            detail = f"attempt {winner.attempt} at {winner.endpoint} was usable first"
            return Loser(pending, FailureReason.LOST_RACE, detail)
    return winner
