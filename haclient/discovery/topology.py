"""The client's view of the cluster: evidence in, a new immutable ``Topology`` out.

This file decides which endpoints exist, which one is believed to be primary, and where credentials may go.
``update`` is pure; the owner of a factory's current topology applies it under its own lock.

Rules
-----
1. The seed list is never forgotten, whatever DNS, members or redirects report.
2. An empty answer of the resolver keeps the last good one.
3. ``failover-server-list``: *add* puts the new members before the older pushed ones, *replace* drops the
   older pushed ones, *ignore* does nothing.  A list must not bypass rule 9.  So if every seed is ``amqps``,
   pushed endpoints without TLS are dropped.  With ``only_trusted``, members that may not get the credentials
   are dropped.
4. Generations count per cluster id.  A primary is stale if it claims a lower generation than the highest seen
   in its cluster.  It is also stale if it claims no generation, but a cluster whose generation is known: a
   real primary of that cluster would announce one.  A claim with neither cannot be compared and is accepted.
   A member that has not proved its identity may announce anything, so its claims make no proven member stale.
   If only stale primaries have served for long (``stale_primaries``), all generations are forgotten: a wrong
   one must not last for ever.
5. ``version`` counts how often the primary was cleared.  Evidence with an older version changes nothing: it
   is about a primary that the topology has dropped already.
   ``Resolved`` has no version, since DNS does not report the primary.
6. The primary is cleared if its connection is lost, or an attempt at it fails.  Failures that this client
   itself caused (``SELF_INFLICTED``) prove nothing about the member.  A failure with a reservation shows that
   the member is the primary.
7. A seed without an address yet is no candidate; it is resolved first.  A pushed name without an address is a
   candidate; it is resolved when it is dialled.
8. The members of a second site (``dr``) are candidates only when the search asks for them.  A primary there
   makes it the site in use: its members are then the first candidates, and the seeds are the other site.  The
   topology drops the pushed members of the site that is no longer in use.
9. Redirects never lead from TLS to no TLS.  With ``redirects=members``, credentials go only to hosts in the
   URL, to their addresses, and to hosts in the parent domain of one; the port does not matter.  A client
   certificate is a credential.  Announced members do not count, as a member could announce any host.
10. A redirect target that served but is in no list stays a candidate, after the members of its site: the
   router that redirected may be unreachable while the broker is not.  Exceptions: ``redirects=none``, and
   credentials that rule 9 does not allow.

Modelled on pymongo's ``topology_description``: one record, one update function.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from haclient.cluster_url.domain import is_literal, parent_domain
from haclient.cluster_url.endpoint import Endpoint, Origin
from haclient.discovery.evidence import (
    AttemptEnded,
    Claimed,
    Evidence,
    Failure,
    FailureReason,
    OnlyStaleServed,
    PrimaryLost,
    Pushed,
    Resolved,
)
from haclient.retry.fleet import NO_FLEET, FleetSize, updated
from haclient.retry.policy import Policy, PushedMembers, Redirects

SELF_INFLICTED = frozenset({FailureReason.DISPLACED, FailureReason.LOST_RACE, FailureReason.STOPPED})

# Limits for data that members announce, so that no peer can make a client's memory grow without bound.
# Clusters have two to seven members; one client meets one cluster, or two during a move.
_MAX_PUSHED = 64
_MAX_SERVED = 8
_MAX_CLUSTERS = 16
_MAX_FAILURES = 256


Generations = tuple[tuple[str | None, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The shared knowledge of one factory's connections.

    :param seeds: the endpoints of the cluster URL, in its order.
    :param pushed_members: the option ``pushed_members``.
    :param only_trusted: whether to refuse foreign members, because attempts send credentials.
    :param redirects: the option ``redirects``.
    :param dr: the endpoints of a second site.
    :param dr_active: whether the last primary was in the second site.
    :param resolved: the last good addresses of each name, seed or pushed.
    :param pushed: members from ``failover-server-list``.
    :param served: targets of redirects that served, the newest first.
    :param primary: the member believed to be primary.
    :param former: the primary whose connection was lost last.
    :param generations: the highest generation seen in each cluster id, the newest last.
    :param proven: the same, only of members that have proved their identity.
    :param version: raised whenever the primary is cleared.
    :param failures: the last failure at each endpoint since its last usable session, the newest last.
    :param fleet: the fleet size announced by the primaries (``retry.fleet``).
    """

    seeds: tuple[Endpoint, ...]
    pushed_members: PushedMembers = "add"
    only_trusted: bool = False
    redirects: Redirects = "members"
    dr: tuple[Endpoint, ...] = ()
    dr_active: bool = False
    resolved: tuple[tuple[Endpoint, tuple[Endpoint, ...]], ...] = ()
    pushed: tuple[Endpoint, ...] = ()
    served: tuple[Endpoint, ...] = ()
    primary: Endpoint | None = None
    former: Endpoint | None = None
    generations: Generations = ()
    proven: Generations = ()
    version: int = 0
    failures: tuple[tuple[Endpoint, Failure], ...] = ()
    fleet: FleetSize = NO_FLEET
    _candidates: tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    @property
    def generation(self) -> int | None:
        """Return the highest generation seen in ``cluster``; ``None`` if no member announced one."""
        return self.generations[-1][1] if self.generations else None

    @property
    def cluster(self) -> str | None:
        """Return the cluster id of ``generation``."""
        return self.generations[-1][0] if self.generations else None

    def candidates(self, *, other_site: bool = False) -> tuple[Endpoint, ...]:
        """Return the candidates in their order: primary, seeds, pushed members, redirect targets that served.

        :param other_site: whether to append the members of the site not in use.
        """
        if self._candidates is None:
            # Computed once: every step of every search reads it, and a topology never changes.
            object.__setattr__(self, "_candidates", self._list())
        assert self._candidates is not None, "worked out just now"
        return self._candidates[other_site]

    def _list(self) -> tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]]:
        here, there = (self.dr, self.seeds) if self.dr_active else (self.seeds, self.dr)
        others = self._addresses_of(there)
        known = [] if self.primary is None else [self.primary]
        known += self._addresses_of(here)
        for member in self.pushed:
            found = self.addresses(member) or ([] if member in self.listed else [member])
            known += [each for each in found if each not in others]
        allowed = (each for each in self.served if not self.only_trusted or self.is_trusted(each))
        known += [each for each in allowed if each not in others]
        return tuple(dict.fromkeys(known)), tuple(dict.fromkeys((*known, *others)))

    def _addresses_of(self, names: Iterable[Endpoint]) -> list[Endpoint]:
        """Return the known addresses of names."""
        found: list[Endpoint] = []
        for name in names:
            found += self.addresses(name) or ([name] if is_literal(name.host) else [])
        return found

    @property
    def listed(self) -> tuple[Endpoint, ...]:
        """Return the members of both sites, as listed in the cluster URL."""
        return (*self.seeds, *self.dr)

    def is_dr(self, endpoint: Endpoint) -> bool | None:
        """Return whether an endpoint is in the second site; ``None`` if no site lists it."""
        wanted = _host_port(endpoint)
        for is_dr, names in ((False, self.seeds), (True, self.dr)):
            if wanted in {_host_port(each) for each in (*names, *self._addresses_of(names))}:
                return is_dr
        return None

    def names(self) -> tuple[Endpoint, ...]:
        """Return the names of seeds and pushed members to resolve in every round."""
        return tuple(e for e in dict.fromkeys((*self.listed, *self.pushed)) if not is_literal(e.host))

    def addresses(self, name: Endpoint) -> tuple[Endpoint, ...]:
        """Return the resolver's last good answer for a name; empty if there was none."""
        return dict(self.resolved).get(name, ())

    def highest(self, cluster: str | None, *, proven: bool = False) -> int | None:
        """Return the highest known generation of a cluster, to compare a claim with.

        :param proven: whether the claiming member has proved its identity.
        """
        return dict(self.proven if proven else self.generations).get(cluster)

    def is_stale(self, generation: int | None, cluster: str | None, *, proven: bool = False) -> bool:
        """Return whether a primary with this claim is stale (rule 4).

        :param proven: whether the primary has proved its identity.
        """
        highest = self.highest(cluster, proven=proven)
        if highest is None:
            return False
        return cluster is not None if generation is None else generation < highest

    def is_member(self, endpoint: Endpoint) -> bool:
        """Return whether host and port belong to a listed member, a known address, or a pushed member."""
        known = (*self.listed, *self.pushed, *(a for _, found in self.resolved for a in found))
        return _host_port(endpoint) in {_host_port(member) for member in known}

    def may_follow(
        self, source: Endpoint, target: Endpoint, policy: Policy, *, credentials: bool
    ) -> str | None:
        """Return why a redirect must not be followed; ``None`` if it may be (rule 9).

        :param credentials: whether the attempt sends credentials or a client certificate.  Otherwise
            ``redirects=members`` allows a foreign target, as it cannot identify the client.
        """
        if source.tls and not target.tls:
            return f"{source} must not redirect to {target}, which has no TLS; no option allows it"
        if policy.redirects == "none":
            return f"redirects=none: {target} is not tried; redirects=members or redirects=any allows it"
        if policy.redirects == "any" or not credentials or self.is_trusted(target):
            return None
        return (
            f"{target} is no host of the URL and not in the domain of one, credentials must not go there,"
            " nor a client certificate; redirects=any allows it"
        )

    def refused_members(self, announced: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
        """Return the members of a ``failover-server-list`` that must not get the credentials (rule 3)."""
        if not self.only_trusted or self.pushed_members == "ignore":
            return ()
        return tuple(endpoint for endpoint in announced if not self.is_trusted(endpoint))

    def is_trusted(self, target: Endpoint) -> bool:
        """Return whether the URL itself allows to send the credentials to a target (rule 9)."""
        listed = (*self.listed, *self._addresses_of(self.listed))
        return target.host.lower() in {each.host.lower() for each in listed} or self._same_domain(target)

    def _same_domain(self, target: Endpoint) -> bool:
        domain = parent_domain(target.host)
        return domain is not None and domain in {
            parent_domain(name) for seed in self.listed for name in (seed.host, seed.tls_name)
        }


def update(topology: Topology, evidence: Evidence) -> Topology:
    """Return the topology after this evidence; the same object if the evidence is ignored."""
    match evidence:
        case Resolved():
            return _resolved(topology, evidence)
        case _ if evidence.topology_version < topology.version:
            return topology
        case Claimed():
            return _claimed(topology, evidence)
        case OnlyStaleServed():
            return replace(topology, generations=(), proven=())
        case PrimaryLost():
            cleared = _cleared(topology, evidence.endpoint, evidence.topology_version)
            return cleared if cleared is topology else replace(cleared, former=evidence.endpoint)
        case AttemptEnded():
            return _attempt_ended(topology, evidence)
        case Pushed():
            return _pushed(topology, evidence)


def _claimed(topology: Topology, claim: Claimed) -> Topology:
    if topology.is_stale(claim.generation, claim.cluster, proven=claim.proven):
        return topology
    failures = _without(topology.failures, claim.endpoint)
    is_dr = topology.is_dr(claim.endpoint)
    served = _served(topology, claim) if is_dr is None else topology.served
    claimed = replace(
        topology,
        primary=claim.endpoint,
        generations=_with(topology.generations, claim),
        proven=_with(topology.proven, claim) if claim.proven else topology.proven,
        failures=failures,
        served=served,
        fleet=_fleet(topology, claim),
    )
    if is_dr in (None, topology.dr_active):
        return claimed
    return replace(claimed, dr_active=is_dr, pushed=(), served=(), fleet=claim.fleet or NO_FLEET)


def _with(known: Generations, claim: Claimed) -> Generations:
    if claim.generation is None:
        return known
    # A proven claim may be lower than an earlier unproven one.
    highest = max(claim.generation, dict(known).get(claim.cluster, claim.generation))
    others = [pair for pair in known if pair[0] != claim.cluster]
    return (*others, (claim.cluster, highest))[-_MAX_CLUSTERS:]


def _fleet(topology: Topology, claim: Claimed) -> FleetSize:
    if claim.fleet is None:
        return topology.fleet
    return updated(topology.fleet, claim.fleet, same_primary=claim.endpoint == topology.primary)


def _served(topology: Topology, claim: Claimed) -> tuple[Endpoint, ...]:
    """Return ``served`` with the claiming member if it is an unlisted redirect target."""
    is_target = claim.usable and claim.endpoint.origin is Origin.REDIRECT
    if not is_target or topology.redirects == "none":
        return topology.served
    return tuple(dict.fromkeys((claim.endpoint, *topology.served)))[:_MAX_SERVED]


def _attempt_ended(topology: Topology, ended: AttemptEnded) -> Topology:
    if ended.failure.kind in SELF_INFLICTED:
        return topology
    others = _without(topology.failures, ended.endpoint)
    failures = (*others, (ended.endpoint, ended.failure))[-_MAX_FAILURES:]
    updated = replace(topology, failures=failures)
    return (
        updated if ended.failure.is_reservation else _cleared(updated, ended.endpoint, ended.topology_version)
    )


def _cleared(topology: Topology, endpoint: Endpoint, version: int) -> Topology:
    if endpoint != topology.primary or version != topology.version:
        return topology
    return replace(topology, primary=None, version=topology.version + 1)


def _pushed(topology: Topology, push: Pushed) -> Topology:
    if topology.pushed_members == "ignore":
        return topology
    only_tls = bool(topology.seeds) and all(seed.tls for seed in topology.seeds)
    refused = topology.refused_members(push.endpoints)
    announced = [e for e in push.endpoints if (e.tls or not only_tls) and e not in refused]
    older = topology.pushed if topology.pushed_members == "add" else ()
    members = tuple(dict.fromkeys((*announced, *older)))[:_MAX_PUSHED]
    return replace(topology, pushed=members, resolved=_kept(topology, members))


def _kept(
    topology: Topology, pushed: Iterable[Endpoint]
) -> tuple[tuple[Endpoint, tuple[Endpoint, ...]], ...]:
    names = {*topology.listed, *pushed}
    return tuple(pair for pair in topology.resolved if pair[0] in names)


def _resolved(topology: Topology, answer: Resolved) -> Topology:
    if not answer.endpoints or answer.seed not in topology.names():
        return topology
    addresses = {**dict(topology.resolved), answer.seed: answer.endpoints}
    return replace(topology, resolved=tuple(addresses.items()))


def _without(
    failures: tuple[tuple[Endpoint, Failure], ...], endpoint: Endpoint
) -> tuple[tuple[Endpoint, Failure], ...]:
    return tuple(pair for pair in failures if pair[0] != endpoint)


def _host_port(endpoint: Endpoint) -> tuple[str, int]:
    return endpoint.host.lower(), endpoint.port
