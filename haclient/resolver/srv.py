"""Order of SRV records, and the name that a target's certificate must carry.  Pure.

Sources: RFC 2782 (priority and weight), RFC 6125 section 6.2.1 (names that came from DNS).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, groupby

from haclient.cluster_url.domain import parent_domain


@dataclass(frozen=True, slots=True)
class Service:
    """One SRV record.

    :param target: an absolute name, with its final dot.
    """

    target: str
    port: int
    priority: int
    weight: int


def in_order(services: Iterable[Service], rng: random.Random) -> tuple[Service, ...]:
    """Return services by priority, lowest first; within one priority at random, weighted."""
    by_priority = groupby(sorted(services, key=lambda each: each.priority), key=lambda each: each.priority)
    return tuple(service for _, group in by_priority for service in _by_weight(group, rng))


def _by_weight(group: Iterable[Service], rng: random.Random) -> Iterator[Service]:
    # RFC 2782: records of weight 0 come first and the draw includes 0, so that they have a very small chance
    # and not none.
    left = sorted(group, key=lambda each: each.weight)
    while left:
        sums = list(accumulate(each.weight for each in left))
        drawn = rng.randint(0, sums[-1])
        yield left.pop(next(index for index, total in enumerate(sums) if total >= drawn))


def verified_name(srv_name: str, target: str) -> str:
    """Return the name that the certificate of an SRV target must carry.

    Plain DNS can be forged.  So a target's own name counts only inside the domain of the name that the user
    wrote, where a forger gains nothing.  That domain is the parent domain, by the rule for redirects, or the
    name itself if it has none.  MongoDB's "Initial DNS Seedlist Discovery" has this rule, without the care
    for registries.  Any other target must show a certificate for the name that the user wrote.
    """
    name, host = srv_name.removesuffix(".").lower(), target.removesuffix(".").lower()
    return host if host.endswith(f".{parent_domain(name) or name}") else name
