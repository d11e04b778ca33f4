"""Resolves names to addresses: the one module of this package that does I/O.

Rules:

- A literal address is its own answer.  Names in the hosts file, and ``localhost``, need no DNS server
  (hosts(5); RFC 6761 section 6.3); the file is read again when it changes.
- For any other name A and AAAA are queried at once; one of them is enough.  When one has an answer, the other
  gets ``RESOLUTION_DELAY`` more (RFC 8305 section 3).
- IPv6 and IPv4 alternate, each in the order of the answer (RFC 8305 section 4).  IPv6 is first; for names of
  the hosts file, the family of the first line.
- SRV (RFC 2782): ``_amqp._tcp.NAME``, or ``_amqps._tcp.NAME`` with TLS; see ``srv``.
- An answer is used until its TTL has passed, including the TTLs of the CNAMEs it followed, and for
  ``MOST_SECONDS`` at most.  A forged answer must not last for the life of the process.  If a resolver fails,
  or reports that the name is gone, the last answer stays in force; see ``cache``.
- A call takes at most ``timeout``, whatever the servers do.  The client uses the first ``MOST_TARGETS`` of an
  SRV answer, by priority.  It uses as many addresses of each family for a name, and no seed has more
  endpoints than that.  A DNS server can choose the endpoints that the client dials, but not make them many.
- Search domains and ``ndots`` of the system apply if its servers are asked, but not with ``nameserver``.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from haclient.cluster_url.authority import is_address
from haclient.cluster_url.endpoint import Endpoint, Origin
from haclient.cluster_url.option_values import split_nameserver
from haclient.printable.log import get_logger
from haclient.resolver.cache import Answer, Answers, ResolutionError, Unanswered
from haclient.resolver.srv import Service, in_order, verified_name

if TYPE_CHECKING:
    from pathlib import Path

    import dns.asyncresolver

__all__ = ["ResolutionError", "Resolver"]

_log = get_logger(__name__)

# RFC 8305 section 3 recommends 50 ms.
RESOLUTION_DELAY = 0.05
# The question ends before its waiters give up, so that their error has the reason.
_PART_FOR_QUESTION = 0.95
# A datagram may be lost: each server is asked again after this part of the whole time.
_PART_OF_TIMEOUT = 0.3
MOST_TARGETS = 64
"""Clusters have two to seven members.  The topology has the same limit for announced members."""
# One question per hour costs nothing.
MOST_SECONDS = 3600.0
_HOSTS_FILE = "/etc/hosts"
_LOOPBACK = ("127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class _Reply:
    """The result of one query: records, or the reason why there are none.

    :param known: false after an error or a timeout of the server.
    """

    records: tuple[str, ...] = ()
    ttl: float = 0.0
    problem: str = ""
    known: bool = True


_LATE = _Reply(problem="no answer yet", known=False)


@dataclass(frozen=True, slots=True)
class _Addresses:
    ipv6: tuple[str, ...] = ()
    ipv4: tuple[str, ...] = ()


class Resolver:
    """Resolves the names of a seed list.  Belongs to one event loop.

    :param nameserver: ``host``, ``host:port`` or ``[v6]:port``; ``None`` asks the servers of the
        system.
    :param timeout: seconds that a call may last.
    :param clock: monotonic seconds; only TTLs are measured with it.
    :param rng: draws among SRV records of one priority.
    :param hosts: the hosts file.
    """

    def __init__(
        self,
        *,
        nameserver: str | None = None,
        timeout: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
        hosts: str | Path = _HOSTS_FILE,
    ) -> None:
        self._server = split_nameserver(nameserver) if nameserver else None
        self._timeout = timeout
        self._rng = rng or random.Random()
        self._hosts = _HostsFile(hosts)
        self._names = Answers(self._ask_addresses, clock)
        self._services = Answers(self._ask_services, clock)
        server_is_name = self._server is not None and not is_address(self._server[0])
        self._for_server = Resolver(timeout=timeout, clock=clock, hosts=hosts) if server_is_name else None

    async def resolve(self, seed: Endpoint, *, srv: bool = False) -> tuple[Endpoint, ...]:
        """Return the endpoints of a seed, in the order to try them.

        :param srv: whether the seed is a name that has SRV records.
        :raises ResolutionError: if there is no answer and never was one.
        """
        until = asyncio.get_running_loop().time() + self._timeout
        if srv:
            return await self._resolve_services(seed, until)
        addresses = await self._addresses(seed.host, until)
        return _endpoints(addresses, seed.port, seed.tls, seed.tls_name)

    async def close(self) -> None:
        """Cancel the running queries.  The resolver can be used again."""
        await self._services.close()
        await self._names.close()
        if self._for_server is not None:
            await self._for_server.close()

    async def _addresses(self, host: str, until: float) -> tuple[str, ...]:
        if is_address(host):
            return (host,)
        if local := self._hosts.addresses(host):
            return _interleaved(*_by_family(local))
        found = await self._names.get(host, until)
        return _interleaved(found.ipv6, found.ipv4)

    async def _resolve_services(self, seed: Endpoint, until: float) -> tuple[Endpoint, ...]:
        name = f"{'_amqps' if seed.tls else '_amqp'}._tcp.{seed.host}"
        services = in_order(await self._services.get(name, until), self._rng)
        found = await asyncio.gather(*(self._target(each, seed, until) for each in services))
        endpoints = tuple(
            dict.fromkeys(chain.from_iterable(each for each in found if isinstance(each, tuple)))
        )
        if not endpoints:
            problems = "; ".join(str(each) for each in found)
            raise ResolutionError(name, f"none of its targets has an address: {problems}")
        return endpoints[: 2 * MOST_TARGETS]

    async def _target(
        self, service: Service, seed: Endpoint, until: float
    ) -> tuple[Endpoint, ...] | ResolutionError:
        try:
            addresses = await self._addresses(service.target, until)
        except ResolutionError as error:
            return error
        return _endpoints(addresses, service.port, seed.tls, verified_name(seed.host, service.target))

    async def _ask_addresses(self, name: str, last: _Addresses | None) -> Answer[_Addresses]:
        ipv6, ipv4 = await self._first_then_other(self._query(name, "AAAA"), self._query(name, "A"))
        answered = [reply for reply in (ipv6, ipv4) if reply.records]
        if not answered:
            raise Unanswered(self._describe(ipv6, ipv4))
        last = last or _Addresses()
        found = _Addresses(_newest(ipv6, last.ipv6), _newest(ipv4, last.ipv4))
        # Use half an answer only once: the other half may arrive next time.
        ttl = 0.0 if _LATE in (ipv6, ipv4) else min(reply.ttl for reply in answered)
        return Answer(found, ttl)

    async def _ask_services(
        self, name: str, _last: tuple[Service, ...] | None
    ) -> Answer[tuple[Service, ...]]:
        reply = await self._query(name, "SRV")
        # Sorting keeps the order of the answer within one priority.
        every = sorted(map(_service, reply.records), key=lambda each: each.priority)
        if len(every) > MOST_TARGETS:
            text = "%r has %d SRV records: the client uses the first %d, by priority"
            _log.warning(text, name, len(every), MOST_TARGETS)
        services = tuple(every[:MOST_TARGETS])
        # RFC 2782: a target "." means that the service is decidedly not available.
        usable = tuple(each for each in services if each.target != "." and each.port)
        if not usable:
            raise Unanswered(
                self._describe(reply if not services else _Reply(problem="the service is not offered there"))
            )
        return Answer(usable, reply.ttl)

    async def _query(self, name: str, rdtype: str) -> _Reply:
        import dns.exception  # noqa: PLC0415 - loads for 60 ms, and literal addresses need no DNS
        import dns.resolver  # noqa: PLC0415 - the same

        try:
            async with asyncio.timeout(self._timeout * _PART_FOR_QUESTION):
                resolver = await self._configured()
                answer = await resolver.resolve(name, rdtype, search=self._server is None)
        except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer) as error:
            absent = "no such name" if isinstance(error, dns.resolver.NXDOMAIN) else f"no {rdtype} record"
            return _Reply(problem=absent)
        except (dns.exception.Timeout, TimeoutError):
            return _Reply(problem=f"no answer within {self._timeout:g} s", known=False)
        except (dns.exception.DNSException, ResolutionError, OSError) as error:
            return _Reply(problem=str(error) or type(error).__name__, known=False)
        records = tuple(record.to_text() for record in answer)
        # Only the priority orders SRV records, so all are kept here.
        most = len(records) if rdtype == "SRV" else MOST_TARGETS
        return _Reply(records[:most], min(answer.chaining_result.minimum_ttl, MOST_SECONDS))

    async def _configured(self) -> dns.asyncresolver.Resolver:
        import dns.asyncresolver  # noqa: PLC0415 - as in _query

        # Made for each query, so that a changed /etc/resolv.conf is noticed.
        resolver = dns.asyncresolver.Resolver(configure=self._server is None)
        if self._server is not None:
            host, resolver.port = self._server
            resolver.nameservers = [await self._server_address(host)]
        resolver.lifetime = self._timeout * _PART_FOR_QUESTION
        resolver.timeout = self._timeout * _PART_OF_TIMEOUT
        return resolver

    async def _server_address(self, host: str) -> str:
        if self._for_server is None:
            return host
        return (await self._for_server.resolve(Endpoint(host, 0)))[0].host

    async def _first_then_other(self, *queries: Coroutine[None, None, _Reply]) -> list[_Reply]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(query) for query in queries]
            waiting = set(tasks)
            while waiting and not any(task.done() and task.result().records for task in tasks):
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if waiting:
                await asyncio.wait(waiting, timeout=RESOLUTION_DELAY)
            replies = [task.result() if task.done() else _LATE for task in tasks]
            for task in tasks:
                task.cancel()
        return replies

    def _describe(self, *replies: _Reply) -> str:
        server = (
            "the DNS servers of the system"
            if self._server is None
            else f"DNS server {_format(*self._server)}"
        )
        problems = dict.fromkeys(reply.problem for reply in replies if reply.problem)
        return f"{server}: {', '.join(problems)}"


def parse_hosts(text: str) -> dict[str, tuple[str, ...]]:
    """Return addresses by lower-case name, in the order of the file; skip invalid lines."""
    found: dict[str, dict[str, None]] = {}
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        if not is_address(address):
            continue
        for name in names:
            found.setdefault(name.lower(), {})[address] = None
    return {name: tuple(addresses) for name, addresses in found.items()}


def local_addresses(name: str, hosts: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the addresses of a name that are known without DNS, if any."""
    plain = name.removesuffix(".").lower()
    if plain in hosts:
        return hosts[plain]
    return _LOOPBACK if plain == "localhost" or plain.endswith(".localhost") else ()


class _HostsFile:
    """The hosts file, read again when it has changed; an unreadable one is empty."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._names: dict[str, tuple[str, ...]] = {}

    def addresses(self, name: str) -> tuple[str, ...]:
        try:
            self._refresh()
        except OSError:
            self._seen, self._names = None, {}
        return local_addresses(name, self._names)

    def _refresh(self) -> None:
        from pathlib import Path  # noqa: PLC0415 - literal addresses need no hosts file

        path = Path(self._path)
        status = path.stat()
        seen = (status.st_mtime_ns, status.st_size)
        if seen != self._seen:
            self._names = parse_hosts(path.read_text("utf-8", errors="replace"))
            self._seen = seen


def _service(record: str) -> Service:
    priority, weight, port, target = record.split()
    return Service(target, int(port), int(priority), int(weight))


def _newest(reply: _Reply, last: tuple[str, ...]) -> tuple[str, ...]:
    return reply.records if reply.records or reply.known else last


def _by_family(addresses: Iterable[str]) -> tuple[list[str], list[str]]:
    every = list(addresses)
    first_is_ipv6 = ":" in every[0]
    same = [each for each in every if (":" in each) == first_is_ipv6]
    return same, [each for each in every if each not in same]


def _interleaved(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    return tuple(each for each in chain.from_iterable(zip_longest(first, second)) if each)


def _endpoints(addresses: Iterable[str], port: int, tls: bool, name: str) -> tuple[Endpoint, ...]:  # noqa: FBT001
    return tuple(Endpoint(each, port, tls, server_name=name, origin=Origin.RESOLVED) for each in addresses)


def _format(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
