"""SRV records: in which order to try them, and which name their TLS must carry.  Pure.

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
    """Lowest priority first; within one, at random in proportion to the weights."""
    by_priority = groupby(sorted(services, key=lambda each: each.priority), key=lambda each: each.priority)
    return tuple(service for _, group in by_priority for service in _by_weight(group, rng))


def _by_weight(group: Iterable[Service], rng: random.Random) -> Iterator[Service]:
    # RFC 2782: records of weight 0 stand first and the draw includes 0, so that they have a very
    # small chance and not none.
    left = sorted(group, key=lambda each: each.weight)
    while left:
        sums = list(accumulate(each.weight for each in left))
        drawn = rng.randint(0, sums[-1])
        yield left.pop(next(index for index, total in enumerate(sums) if total >= drawn))


def verified_name(srv_name: str, target: str) -> str:
    """The name that the certificate of an SRV target must carry.

    Plain DNS can be forged, so a target may stand for itself only where a forger gains nothing:
    inside the domain of the name that the user wrote, which is its parent domain as redirects
    know it, or the name itself where it has none.  (MongoDB's "Initial DNS Seedlist Discovery"
    has this rule, without the care for registries.)  Any other target must show a certificate
    for the name that the user wrote.
    """
    name, host = srv_name.removesuffix(".").lower(), target.removesuffix(".").lower()
    return host if host.endswith(f".{parent_domain(name) or name}") else name
