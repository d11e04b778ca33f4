"""Reads the addresses of ``connect``, proton's URLs and cluster URLs, into one ``ClusterURL``.

proton's URLs may omit everything (``broker``, ``broker:amqp``, ``//broker/queue``).  They may name a queue:
the address of a sender or receiver, which is not dialled.  Cluster URLs (``cluster_url``) are recognised by
several members or options.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from proton import Url

from haclient.cluster_url.endpoint import Endpoint
from haclient.cluster_url.seed import Secret, Seed
from haclient.cluster_url.url import SCHEME, ClusterURL

# The text before the last URL of a list.
_BEFORE_LAST = re.compile(rf"[^?]*,(?={SCHEME}://)", re.IGNORECASE)
_CLUSTER = re.compile(r"failover:|amqps?\+srv:|[^/]*(//)?[^/]*,|.*\?", re.IGNORECASE)
# A scheme that consoles print and proton does not accept.
_AMQP_SSL = re.compile(r"\Aamqp\+ssl(?=://)", re.IGNORECASE)


def is_cluster_url(address: object) -> bool:
    """Return whether only the grammar of cluster URLs can read the address."""
    return isinstance(address, str) and _CLUSTER.match(address) is not None


def split_path(address: str | Url) -> tuple[str | Url, str | None]:
    """Return the address to dial, and the queue that it names."""
    if isinstance(address, str) and is_cluster_url(address):
        before = match[0] if (match := _BEFORE_LAST.match(address)) else ""
        parts = urlsplit(address[len(before) :])
        if parts.scheme == "failover" or parts.path in {"", "/"}:
            return address, None
        query = f"/?{parts.query}" if parts.query else ""
        return f"{before}{parts.scheme}://{parts.netloc}{query}", unquote(parts.path[1:])
    url = _proton_url(address)
    return url, url.path


def cluster(addresses: Iterable[str | Url], user: str | None, password: str | None) -> ClusterURL:
    """Return the members that these addresses name.

    :param user: for addresses that name no user.
    :raises ClusterURLError: when a cluster URL is wrong.
    :raises ValueError: when there is no address, or a port is invalid.
    """
    listed = list(addresses)
    if len(listed) == 1 and is_cluster_url(listed[0]):
        return _with_user(ClusterURL.parse(str(split_path(listed[0])[0])), user, password)
    seeds: dict[Endpoint, Seed] = {}
    for address in listed:
        url = _proton_url(address)
        endpoint = Endpoint(str(url.host), int(url.port), url.scheme == Url.AMQPS)
        given = url.username or user
        secret = (url.password or password) if given else None
        seeds.setdefault(endpoint, Seed(endpoint, given, None if secret is None else Secret(secret)))
    if not seeds:
        raise ValueError("One of url or urls required")
    return ClusterURL(tuple(seeds.values()))


def _proton_url(address: str | Url) -> Url:
    return Url(_AMQP_SSL.sub(Url.AMQPS, address, count=1) if isinstance(address, str) else address)


def _with_user(parsed: ClusterURL, user: str | None, password: str | None) -> ClusterURL:
    if user is None:
        return parsed
    secret = None if password is None else Secret(password)
    seeds = tuple(
        seed if seed.user is not None else Seed(seed.endpoint, user, secret) for seed in parsed.seeds
    )
    return ClusterURL(seeds, parsed.srv, parsed.options)
