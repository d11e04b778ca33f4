"""The cluster URL: the members of a cluster, with their credentials and the options.

    amqp://vip                                        one name or address
    amqps://user:pass@a:5671,b,[::1]:5673/?x=y        several; the credentials hold for all
    amqp://u:p@a,amqps://v:q@b:5671/?x=y              several, each with its scheme and credentials
    amqp+ssl://a:5671                                 as amqps://: ActiveMQ and Amazon MQ print it
    amqp+srv://name, amqps+srv://name                 the SRV records of one name (RFC 2782)
    failover:(amqp://a,amqps://u:p@b:5671)?x=y        Qpid JMS and ActiveMQ; parentheses and a
                                                      "//" before them are optional
    amqp:tcp:a:5672,ssl:b:5671, amqp:u/p@tcp:a:5672   Qpid C++ (AMQP 0-10 section 9.1.2)

Rules:

- One grammar, parsed once.  Text that does not fit the grammar is an error, never dropped.
- The list keeps its order.  An endpoint named twice counts once; twice with different credentials is an
  error.
- If each member has its scheme, it has its own credentials, or none.  Options inside a member apply to the
  whole cluster, so every member must have the same ones.
- No error, ``repr`` or ``str`` holds a password.  ``str(url)`` parses to an equal URL, except for the
  passwords, which are ``***``.

Source: RFC 3986, except the comma between hosts and ``failover:``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import quote

from haclient.cluster_url.authority import (
    format_host,
    is_address,
    percent_decode,
    refuse_late_at,
    split_host_port,
    split_userinfo,
    tls_name,
)
from haclient.cluster_url.endpoint import AMQP_PORT, AMQPS_PORT, Endpoint
from haclient.cluster_url.errors import ClusterURLError
from haclient.cluster_url.foreign_options import Written
from haclient.cluster_url.jms_options import parse_failover_options
from haclient.cluster_url.options import Options, format_options, parse_options
from haclient.cluster_url.qpid_options import divide_urls, parse_qpid_options
from haclient.cluster_url.seed import MASK, Secret, Seed

_Pairs = tuple[tuple[str, str], ...]

_FORM = "write amqp://host:port,host:port/?option=value"
_LIST_FORM = "write amqp://host:port,amqp://host:port/?option=value, with the options after the last"
_AFTER_SCHEME = r"://(?P<authority>[^/?]*)(?P<path>[^?]*)(?:\?(?P<query>.*))?"
# The scheme of a member.
SCHEME = r"(?:amqps?|amqp\+ssl)"
_TLS = re.compile(r"amqps|amqp\+ssl", re.IGNORECASE)
_URI = re.compile(rf"(?P<scheme>{SCHEME}|amqps?\+srv){_AFTER_SCHEME}", re.IGNORECASE)
_MEMBER = re.compile(rf"(?P<scheme>{SCHEME}){_AFTER_SCHEME}", re.IGNORECASE)
_FAILOVER = re.compile(r"(?://)?(?:\((?P<inside>[^()]*)\)|(?P<bare>[^()?]*))(?:\?(?P<query>[^()]*))?")
# Only a comma before the next URI separates two members.  A comma inside a password stays with it, so that no
# error quotes half of the password.
_COMMA = re.compile(r",(?=[A-Za-z][A-Za-z0-9+.-]*://)")
_QPID_ADDRESS = re.compile(r"(?:(?P<protocol>tcp|ssl|tls):)?(?P<address>.*)")
_BARE = re.compile(r"[\w.-]+(:[0-9]+)?(,[\w.-]+(:[0-9]+)?)*")
_FOREIGN_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://")


@dataclass(frozen=True, slots=True, repr=False)
class ClusterURL:
    """A parsed cluster URL.

    :param seeds: in the order written, each endpoint once.
    :param srv: whether the one seed is a name whose SRV records list the members.
    :param written: the options in the text, each with the name by which the user spelt it.
    """

    seeds: tuple[Seed, ...]
    srv: bool = False
    options: Options = field(default_factory=Options)
    written: Written = field(default=(), compare=False)

    @classmethod
    def parse(cls, text: str) -> ClusterURL:
        """Parse any of the forms above.

        :raises ClusterURLError: names the mistake; ``.option`` is the option at fault, if any.
        """
        _check_characters(text)
        scheme, _, rest = text.partition(":")
        if scheme.lower() == "failover":
            return _parse_failover(rest)
        if _URI.match(text) and _COMMA.search(text):
            return _parse_list(text)
        if match := _URI.fullmatch(text):
            return _parse_uri(match)
        if scheme.lower() == "amqp" and not rest.startswith("/"):
            return _parse_qpid(rest)
        raise _no_scheme(text)

    def __str__(self) -> str:
        query = format_options(self.options)
        if len({(seed.endpoint.tls, seed.user, seed.password) for seed in self.seeds}) > 1:
            members = ",".join(_format_uri("", (seed,)) for seed in self.seeds)
            return f"failover:({members})" + (f"?{query}" if query else "")
        return _format_uri("+srv" if self.srv else "", self.seeds) + (f"/?{query}" if query else "")

    def __repr__(self) -> str:
        return f"ClusterURL({str(self)!r})"


def _check_characters(text: str) -> None:
    if not text:
        raise ClusterURLError(f"the cluster URL is empty: {_FORM}")
    if " " in text or not text.isprintable():
        raise ClusterURLError(
            "a cluster URL holds no whitespace or control characters; in a value a space is written %20"
        )
    if "#" in text:
        raise ClusterURLError("a cluster URL has no fragment; in a password or a value '#' is written %23")


def _no_scheme(text: str) -> ClusterURLError:
    if foreign := _FOREIGN_SCHEME.match(text):
        known = "amqp://, amqps://, amqp+srv://, amqps+srv:// or failover:(...)"
        return ClusterURLError(f"unknown scheme {foreign['scheme']!r}: a cluster URL starts with {known}")
    # Quote the text only if it certainly holds no password.
    form = f"write amqp://{text}" if _BARE.fullmatch(text) else _FORM
    return ClusterURLError(f"a cluster URL starts with amqp:// or amqps://: {form}")


def _parse_uri(match: re.Match[str]) -> ClusterURL:
    seeds, pairs = _seeds_of(match)
    srv = match["scheme"].lower().endswith("+srv")
    if srv:
        _check_srv(match["authority"], seeds)
    return ClusterURL(distinct(seeds), srv, parse_options(pairs), tuple((name, name) for name, _ in pairs))


def _parse_list(text: str) -> ClusterURL:
    """Parse several URIs with commas between, and the options after the last."""
    addresses, _, query = text.partition("?")
    if _COMMA.search(query):
        raise ClusterURLError(f"options hold for the whole cluster: {_LIST_FORM}")
    refuse_late_at(query)
    matches = [_MEMBER.fullmatch(member) for member in _COMMA.split(addresses)]
    seeds = [seed for match in matches if match for seed in _seeds_of(match)[0]]
    if not all(matches):
        raise ClusterURLError(f"each URL of a list starts with amqp:// or amqps://: {_LIST_FORM}")
    pairs = _pairs(query)
    return ClusterURL(distinct(seeds), False, parse_options(pairs), tuple((name, name) for name, _ in pairs))


def _seeds_of(match: re.Match[str]) -> tuple[list[Seed], _Pairs]:
    path, query = match["path"], match["query"] or ""
    refuse_late_at(path, query)
    if path not in {"", "/"}:
        raise _has_path(match)
    user, password, hosts = split_userinfo(match["authority"])
    tls = bool(_TLS.match(match["scheme"]))
    return [_seed(host, user, password, tls=tls) for host in hosts.split(",")], _pairs(query)


def _has_path(match: re.Match[str]) -> ClusterURLError:
    if match["path"].startswith("//"):
        return ClusterURLError(f"between two members stands a comma: {_LIST_FORM}")
    name = match["path"].strip("/")
    shown = name if re.fullmatch(r"[\w.-]+", name) else "orders"
    return ClusterURLError(f"a cluster URL names brokers, not a queue: pass {shown!r} to create_sender")


def _check_srv(authority: str, seeds: list[Seed]) -> None:
    if len(seeds) > 1:
        raise ClusterURLError("a +srv URL has one name, whose SRV records list the members")
    name = authority.rpartition("@")[2]
    if ":" in name or is_address(seeds[0].endpoint.host):
        raise ClusterURLError("a +srv URL has a name and no port or address: the SRV records hold those")


def _seed(text: str, user: str | None, password: Secret | None, *, tls: bool) -> Seed:
    host, port = split_host_port(text, AMQPS_PORT if tls else AMQP_PORT)
    return Seed(Endpoint(host, port, tls, server_name=tls_name(host)), user, password)


def second_site(members: Iterable[str] | None, *, tls: bool) -> tuple[Endpoint, ...]:
    """Return the endpoints of the option ``dr``, with TLS if the URL has it."""
    return tuple(_seed(member, None, None, tls=tls).endpoint for member in members or ())


def distinct(seeds: Iterable[Seed]) -> tuple[Seed, ...]:
    """Return each endpoint once.

    :raises ClusterURLError: if an endpoint is repeated with different credentials.
    """
    found: dict[Endpoint, Seed] = {}
    for seed in seeds:
        if found.setdefault(seed.endpoint, seed) != seed:
            raise ClusterURLError(f"{seed.endpoint} is listed twice, with different credentials")
    return tuple(found.values())


def _pairs(query: str) -> _Pairs:
    return tuple(_pair(item) for item in query.split("&")) if query else ()


def _pair(item: str) -> tuple[str, str]:
    name, equals, value = item.partition("=")
    if not name or not equals:
        raise ClusterURLError(
            f"an option is written name=value, with '&' between two: {item!r}", name or None
        )
    try:
        return percent_decode(name), percent_decode(value)
    except ClusterURLError as error:
        raise ClusterURLError(f"option {name!r}: {error}", name) from None


def _parse_failover(rest: str) -> ClusterURL:
    match = _FAILOVER.fullmatch(rest)
    if match is None:
        raise ClusterURLError(
            "a failover list stands in one pair of parentheses, failover:(amqp://a,amqp://b)?option=value; "
            "in a password '(' is written %28 and ')' %29"
        )
    query = match["query"] or ""
    refuse_late_at(query)
    if match["inside"] is None and "://" in query:
        raise ClusterURLError(
            "a failover list whose members have options needs parentheses: failover:(amqp://a?x=y,...)"
        )
    members = [_member(text) for text in _COMMA.split(match["inside"] or match["bare"] or "")]
    pairs = (*_pairs(query), *_common([pairs for _, pairs in members]))
    seeds = distinct(seed for seed, _ in members)
    options, written = parse_failover_options(pairs, len(seeds))
    return ClusterURL(seeds, options=options, written=written)


def _member(text: str) -> tuple[Seed, _Pairs]:
    match = _MEMBER.fullmatch(text)
    seeds, pairs = _seeds_of(match) if match else ([], ())
    if len(seeds) != 1:
        raise ClusterURLError(
            "each member of a failover list starts with amqp:// or amqps://: failover:(amqp://a,amqp://b)"
        )
    return seeds[0], pairs


def _common(members: list[_Pairs]) -> _Pairs:
    first = members[0]
    for pairs in members:
        for name, _ in set(pairs) ^ set(first):
            raise ClusterURLError(
                f"option {name!r} is not the same in every member of the failover list: "
                "it holds for the whole cluster, so write it after the ')'",
                name,
            )
    return first


def _parse_qpid(rest: str) -> ClusterURL:
    addresses, _, query = rest.partition("?")
    refuse_late_at(query)
    user, password, hosts = split_userinfo(addresses, "/")
    if (user and ":" in addresses.rpartition("@")[0].partition("/")[0]) or "/" in hosts:
        raise ClusterURLError(
            "write amqp://user:password@host:port, or amqp:user/password@tcp:host:port as Qpid C++ does"
        )
    more, pairs = divide_urls(_pairs(query))
    seeds = distinct(_qpid_seed(text, user, password) for text in (*hosts.split(","), *more))
    options, written = parse_qpid_options(pairs, len(seeds))
    return ClusterURL(seeds, options=options, written=written)


def _qpid_seed(text: str, user: str | None, password: Secret | None) -> Seed:
    match = _QPID_ADDRESS.fullmatch(text)
    protocol, address = (match["protocol"], match["address"]) if match else (None, text)
    return _seed(address, user, password, tls=protocol in {"ssl", "tls"})


def _format_uri(suffix: str, seeds: tuple[Seed, ...]) -> str:
    first = seeds[0]
    password = "" if first.password is None else f":{MASK}"
    credentials = "" if first.user is None else f"{quote(first.user, safe='')}{password}@"
    scheme = "amqps" if first.endpoint.tls else "amqp"
    return f"{scheme}{suffix}://{credentials}{','.join(_format_host(seed.endpoint) for seed in seeds)}"


def _format_host(endpoint: Endpoint) -> str:
    default = AMQPS_PORT if endpoint.tls else AMQP_PORT
    host = format_host(endpoint.host)
    return host if endpoint.port == default else f"{host}:{endpoint.port}"
