"""Where a redirect leads, or why it is not followed.

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
    flight: PendingAttempt, target: Endpoint, topology: Topology, policy: Policy, *, credentials: bool
) -> tuple[Target, ...] | str:
    """What to dial for this redirect, or the objection to it, for people."""
    fresh = tuple(place for place in _places(target, topology) if place not in flight.visited)
    if not fresh:
        return f"loop: {target} is in this chain already"
    if len(flight.chain) >= policy.max_redirects:
        return f"chain longer than {policy.max_redirects}: {target}"
    objection = topology.may_follow(flight.endpoint, target, policy, credentials=credentials)
    return objection or tuple(Target(place, flight.visited) for place in fresh)


def _places(target: Endpoint, topology: Topology) -> tuple[Endpoint, ...]:
    # A known name is dialled by its addresses, as the list does: the same member is then one
    # endpoint, and neither dialled twice nor missed in a loop.
    addresses = topology.addresses(target) or (target,)
    return tuple(replace(a, server_name=target.tls_name, origin=Origin.REDIRECT) for a in addresses)
