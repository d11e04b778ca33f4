"""Reads the argument ``url`` of ``connect``: one cluster URL, parsed or not, or a list of URLs.

    ["amqp://a:5672", "b:5673"]                   as "amqp://a:5672,b:5673"
    ["amqp://u:p@a", "amqps://v:q@b"]             as "failover:(amqp://u:p@a,amqps://v:q@b)"

Rules
-----
* An entry without a scheme is a host, or host:port, with the scheme and the credentials of the URL before it.
* Every other entry has its own credentials, or none.
* Options apply to the whole cluster, in whatever entry they are.  If two entries give an option different
  values, it is an error.
* The entries keep their order, and an endpoint named twice counts once, as within one URL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from haclient.cluster_url.errors import ClusterURLError
from haclient.cluster_url.options import with_overrides
from haclient.cluster_url.seed import Seed
from haclient.cluster_url.url import SCHEME, ClusterURL, distinct

# The types of the argument.
URLArgument = str | Sequence[str] | ClusterURL

_EXPECTED = "url: a cluster URL such as 'amqp://host:port,host:port', or a list of them, is expected"
_SCHEME = re.compile(rf"(?P<scheme>{SCHEME})://", re.IGNORECASE)
_HOST = re.compile(r"(\[[0-9A-Za-z:.%]+\]|[^\s:/?#@,\[\]()]+)(:[0-9]+)?")


def read_url(given: URLArgument) -> ClusterURL:
    """Return the one cluster URL of an argument.

    :raises TypeError: if it is neither text, a list of texts nor a ``ClusterURL``.
    :raises ClusterURLError: names the mistake.
    """
    if isinstance(given, ClusterURL):
        return given
    if isinstance(given, str):
        return ClusterURL.parse(given)
    if not isinstance(given, Sequence) or isinstance(given, bytes | bytearray | memoryview):
        raise TypeError(f"{_EXPECTED}, not {_name(given)}")
    for entry in given:
        if not isinstance(entry, str):
            raise TypeError(f"{_EXPECTED}, not a list that holds {_name(entry)}")
    if not given:
        raise ClusterURLError("the list of cluster URLs is empty")
    return ClusterURL.parse(given[0]) if len(given) == 1 else _joined(given)


def _name(given: object) -> str:
    return (
        "None"
        if given is None
        else f"{'an' if type(given).__name__[0] in 'aeiou' else 'a'} {type(given).__name__}"
    )


def _joined(entries: Sequence[str]) -> ClusterURL:
    urls: list[ClusterURL] = []
    scheme = ""
    for entry in entries:
        if match := _SCHEME.match(entry):
            scheme = match["scheme"]
            urls.append(ClusterURL.parse(entry))
        elif urls and _HOST.fullmatch(entry):
            urls.append(_with_credentials(ClusterURL.parse(f"{scheme}://{entry}"), urls[-1].seeds[-1]))
        else:
            raise ClusterURLError(
                "a list of URLs starts with one that has a scheme, and holds amqp:// or amqps:// URLs, "
                "and host:port: ['amqp://a:5672', 'b:5673']"
            )
    seeds = distinct(seed for url in urls for seed in url.seeds)
    values = _common(urls)
    return ClusterURL(
        seeds,
        options=with_overrides(ClusterURL(seeds).options, **values),
        written=tuple((name, name) for name in values),
    )


def _with_credentials(url: ClusterURL, before: Seed) -> ClusterURL:
    return replace(url, seeds=tuple(Seed(seed.endpoint, before.user, before.password) for seed in url.seeds))


def _common(urls: Sequence[ClusterURL]) -> dict[str, object]:
    values: dict[str, object] = {}
    for url in urls:
        for name, _ in url.written:
            value = getattr(url.options, name)
            if values.setdefault(name, value) != value:
                raise ClusterURLError(
                    f"option {name!r} has two values in the list of URLs: it holds for the whole cluster, "
                    "so write it once",
                    name,
                )
    return values
