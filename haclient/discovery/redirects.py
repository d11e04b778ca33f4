"""Where a redirect leads, or why the client does not follow it.

Three limits keep redirects from becoming a spin or a leak: a target that the chain has
visited is a loop, a chain has at most ``max_redirects`` hops, and ``Topology.may_follow``
guards TLS and credentials.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from haclient.cluster_url.endpoint import Endpoint, Origin
from haclient.discovery.pending_attempts import PendingAttempt
from haclient.discovery.topology import Topology
from haclient.retry.policy import Policy


@dataclass(frozen=True, slots=True)
class Target:
    """What to dial next, and the members that redirected there, the first one first."""

    endpoint: Endpoint
    chain: tuple[Endpoint, ...] = ()


def targets(
    pending: PendingAttempt, target: Endpoint, topology: Topology, policy: Policy, *, credentials: bool
) -> tuple[Target, ...] | str:
    """What to dial for this redirect, or the reason to refuse it, for people."""
    fresh = tuple(address for address in _addresses(target, topology) if address not in pending.visited)
    if not fresh:
        return f"loop: {target} is in this chain already"
    if len(pending.chain) >= policy.max_redirects:
        return f"chain longer than {policy.max_redirects}: {target}"
    refusal_reason = topology.may_follow(pending.endpoint, target, policy, credentials=credentials)
    return refusal_reason or tuple(Target(address, pending.visited) for address in fresh)


def _addresses(target: Endpoint, topology: Topology) -> tuple[Endpoint, ...]:
    # A known name is dialled by its addresses, as in the list: the same member is then one
    # endpoint, so that it is not dialled twice and a loop is detected.
    addresses = topology.addresses(target) or (target,)
    return tuple(replace(a, server_name=target.tls_name, origin=Origin.REDIRECT) for a in addresses)
