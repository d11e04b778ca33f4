"""Resolving against a real dnsmasq, with TTLs on a clock that the test moves."""

from __future__ import annotations

import asyncio
import pickle
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import dns.flags
import dns.message
import dns.rdatatype
import dns.rrset
import pytest

from haclient.cluster_url.endpoint import Endpoint, Origin
from haclient.resolver.cache import Answer, Answers
from haclient.resolver.resolve import ResolutionError, Resolver, local_addresses, parse_hosts
from tests.dnsmasq import Dnsmasq, free_port

SEED = Endpoint("broker.test", 5672)
NO_HOSTS = Path("/nonexistent/hosts")


class Clock:
    """A clock in seconds that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def dnsmasq(tmp_path: Path) -> Iterator[Dnsmasq]:
    with Dnsmasq(tmp_path, ttl=30) as server:
        yield server


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def resolver(dnsmasq: Dnsmasq, clock: Clock) -> Resolver:
    return Resolver(nameserver=dnsmasq.nameserver, timeout=1.0, clock=clock, hosts=NO_HOSTS)


def hosts_of(endpoints: tuple[Endpoint, ...]) -> list[str]:
    return [each.host for each in endpoints]


@pytest.mark.asyncio
@pytest.mark.parametrize("host", ["10.0.0.1", "2001:db8::1"])
async def test_a_literal_address_is_its_own_answer(host: str) -> None:
    nobody = Resolver(nameserver=f"127.0.0.1:{free_port()}", hosts=NO_HOSTS)
    (endpoint,) = await nobody.resolve(Endpoint(host, 5671, tls=True))
    assert endpoint == Endpoint(host, 5671, tls=True)
    assert (endpoint.origin, endpoint.tls_name) == (Origin.RESOLVED, host)


@pytest.mark.asyncio
async def test_a_name_of_the_hosts_file_needs_no_server(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("10.0.0.1 Broker.test alias  # one\n# 10.0.0.9 broker.test\n2001:db8::1 broker.test\n")
    resolver = Resolver(nameserver=f"127.0.0.1:{free_port()}", hosts=hosts)
    assert hosts_of(await resolver.resolve(SEED)) == ["10.0.0.1", "2001:db8::1"]
    assert hosts_of(await resolver.resolve(Endpoint("alias", 5672))) == ["10.0.0.1"]


@pytest.mark.asyncio
async def test_a_changed_hosts_file_is_read_again(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("10.0.0.1 broker.test\n")
    resolver = Resolver(nameserver=f"127.0.0.1:{free_port()}", hosts=hosts)
    await resolver.resolve(SEED)
    hosts.write_text("10.0.0.222 broker.test\n")
    assert hosts_of(await resolver.resolve(SEED)) == ["10.0.0.222"]


@pytest.mark.asyncio
async def test_localhost_needs_neither_file_nor_server() -> None:
    resolver = Resolver(nameserver=f"127.0.0.1:{free_port()}", hosts=NO_HOSTS)
    assert hosts_of(await resolver.resolve(Endpoint("localhost", 5672))) == ["127.0.0.1", "::1"]


@pytest.mark.asyncio
async def test_an_address_keeps_the_port_and_the_name_that_tls_must_verify(
    dnsmasq: Dnsmasq, resolver: Resolver
) -> None:
    dnsmasq.set_hosts({"broker.test": ["10.0.0.1"]})
    (endpoint,) = await resolver.resolve(Endpoint("broker.test", 5673, tls=True))
    assert endpoint == Endpoint("10.0.0.1", 5673, tls=True)
    assert (endpoint.tls_name, endpoint.origin) == ("broker.test", Origin.RESOLVED)


@pytest.mark.asyncio
async def test_ipv6_and_ipv4_alternate(dnsmasq: Dnsmasq, resolver: Resolver) -> None:
    dnsmasq.set_hosts({"broker.test": ["10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::1", "2001:db8::2"]})
    found = hosts_of(await resolver.resolve(SEED))
    assert [":" in each for each in found] == [True, False, True, False, False]
    assert set(found) == {"10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::1", "2001:db8::2"}


@pytest.mark.asyncio
async def test_a_name_with_only_ipv6_addresses_resolves(dnsmasq: Dnsmasq, resolver: Resolver) -> None:
    dnsmasq.set_hosts({"broker.test": ["2001:db8::1"]})
    assert hosts_of(await resolver.resolve(SEED)) == ["2001:db8::1"]


@pytest.mark.asyncio
async def test_an_answer_is_used_until_its_ttl_has_passed(
    dnsmasq: Dnsmasq, resolver: Resolver, clock: Clock
) -> None:
    dnsmasq.set_hosts({"broker.test": ["10.0.0.1"]})
    await resolver.resolve(SEED)
    dnsmasq.set_hosts({"broker.test": ["10.0.0.2"]})
    clock.now += 29.9
    assert hosts_of(await resolver.resolve(SEED)) == ["10.0.0.1"]
    assert dnsmasq.queries("broker.test", "A") == dnsmasq.queries("broker.test", "AAAA") == 1
    clock.now += 0.1
    assert hosts_of(await resolver.resolve(SEED)) == ["10.0.0.2"]
    assert dnsmasq.queries("broker.test", "A") == 2


@pytest.mark.asyncio
async def test_a_ttl_of_zero_is_asked_every_time(tmp_path: Path, clock: Clock) -> None:
    with Dnsmasq(tmp_path, ttl=0) as server:
        resolver = Resolver(nameserver=server.nameserver, clock=clock, hosts=NO_HOSTS)
        server.set_hosts({"broker.test": ["10.0.0.1"]})
        assert hosts_of(await resolver.resolve(SEED)) == ["10.0.0.1"]
        server.set_hosts({"broker.test": ["10.0.0.2"]})
        assert hosts_of(await resolver.resolve(SEED)) == ["10.0.0.2"]


@pytest.mark.asyncio
async def test_a_cname_is_followed(tmp_path: Path, clock: Clock) -> None:
    with Dnsmasq(tmp_path, extra=["--cname=alias.test,broker.test"]) as server:
        server.set_hosts({"broker.test": ["10.0.0.1"]})
        resolver = Resolver(nameserver=server.nameserver, clock=clock, hosts=NO_HOSTS)
        assert hosts_of(await resolver.resolve(Endpoint("alias.test", 5672))) == ["10.0.0.1"]


@pytest.mark.asyncio
async def test_a_resolver_that_stops_answering_keeps_the_last_answer(
    dnsmasq: Dnsmasq, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    resolver = Resolver(nameserver=dnsmasq.nameserver, timeout=0.3, clock=clock, hosts=NO_HOSTS)
    dnsmasq.set_hosts({"broker.test": ["10.0.0.1"]})
    await resolver.resolve(SEED)
    dnsmasq.pause()
    clock.now += 31
    before = time.monotonic()
    assert hosts_of(await resolver.resolve(SEED)) == ["10.0.0.1"]
    assert time.monotonic() - before > 0.25
    assert "keeping the last answer for 'broker.test'" in caplog.text
    dnsmasq.resume()
    dnsmasq.set_hosts({"broker.test": ["10.0.0.2"]})
    async with asyncio.timeout(30):  # a busy machine may answer after the resolver's time-out
        while hosts_of(await resolver.resolve(SEED)) != ["10.0.0.2"]:
            clock.now += 31


@pytest.mark.asyncio
async def test_a_resolver_that_is_gone_keeps_the_last_answer(
    dnsmasq: Dnsmasq, resolver: Resolver, clock: Clock
) -> None:
    dnsmasq.set_hosts({"broker.test": ["10.0.0.1"]})
    await resolver.resolve(SEED)
    dnsmasq.stop()
    clock.now += 31
    assert hosts_of(await resolver.resolve(SEED)) == ["10.0.0.1"]


@pytest.mark.asyncio
async def test_a_name_that_goes_away_keeps_its_last_answer(
    dnsmasq: Dnsmasq, resolver: Resolver, clock: Clock
) -> None:
    dnsmasq.set_hosts({"broker.test": ["10.0.0.1"]})
    await resolver.resolve(SEED)
    dnsmasq.set_hosts({})
    clock.now += 31
    assert hosts_of(await resolver.resolve(SEED)) == ["10.0.0.1"]


@pytest.mark.asyncio
async def test_a_family_that_the_server_says_is_gone_is_gone(
    dnsmasq: Dnsmasq, resolver: Resolver, clock: Clock
) -> None:
    dnsmasq.set_hosts({"broker.test": ["10.0.0.1", "2001:db8::1"]})
    await resolver.resolve(SEED)
    dnsmasq.set_hosts({"broker.test": ["10.0.0.1"]})
    clock.now += 31
    assert hosts_of(await resolver.resolve(SEED)) == ["10.0.0.1"]


@pytest.mark.asyncio
async def test_a_name_that_never_had_an_answer_is_an_error(dnsmasq: Dnsmasq, resolver: Resolver) -> None:
    with pytest.raises(ResolutionError) as caught:
        await resolver.resolve(SEED)
    expected = f"cannot resolve 'broker.test': DNS server {dnsmasq.nameserver}: no such name"
    assert str(caught.value) == expected
    assert caught.value.name == "broker.test"
    assert str(pickle.loads(pickle.dumps(caught.value))) == expected  # noqa: S301  (its own bytes)


@pytest.mark.asyncio
async def test_a_server_that_refuses_is_an_error_that_says_so(resolver: Resolver) -> None:
    with pytest.raises(ResolutionError, match="REFUSED"):
        await resolver.resolve(Endpoint("broker.example", 5672))


@pytest.mark.asyncio
async def test_a_server_that_drops_everything_is_an_error(dnsmasq: Dnsmasq) -> None:
    resolver = Resolver(nameserver=dnsmasq.nameserver, timeout=0.3, hosts=NO_HOSTS)
    dnsmasq.pause()
    with pytest.raises(ResolutionError, match="no answer"):
        await resolver.resolve(SEED)
    with pytest.raises(ResolutionError, match="no answer"):
        await resolver.resolve(SEED, srv=True)


@pytest.mark.asyncio
async def test_nobody_at_the_server_s_port_is_an_error() -> None:
    resolver = Resolver(nameserver=f"127.0.0.1:{free_port()}", timeout=0.3, hosts=NO_HOSTS)
    # Either time-out may be first: the question's own, or the caller's.
    with pytest.raises(ResolutionError, match=r"DNS server 127\.0\.0\.1|no answer in time"):
        await resolver.resolve(SEED)


@pytest.mark.asyncio
async def test_a_name_too_long_for_dns_is_an_error_of_resolution(resolver: Resolver) -> None:
    with pytest.raises(ResolutionError):
        await resolver.resolve(Endpoint("a" * 64, 5672))


@pytest.mark.asyncio
async def test_two_who_ask_at_once_ask_once(dnsmasq: Dnsmasq, resolver: Resolver) -> None:
    dnsmasq.set_hosts({"broker.test": ["10.0.0.1"]})
    first, second = await asyncio.gather(resolver.resolve(SEED), resolver.resolve(SEED))
    assert first == second
    assert dnsmasq.queries("broker.test", "A") == 1


@pytest.mark.asyncio
async def test_a_cancelled_caller_takes_nothing_from_the_other(dnsmasq: Dnsmasq) -> None:
    resolver = Resolver(nameserver=dnsmasq.nameserver, timeout=5.0, hosts=NO_HOSTS)
    dnsmasq.set_hosts({"broker.test": ["10.0.0.1"]})
    dnsmasq.pause()
    first, second = (asyncio.create_task(resolver.resolve(SEED)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    dnsmasq.resume()
    assert hosts_of(await second) == ["10.0.0.1"]


@pytest.mark.asyncio
async def test_close_ends_the_queries_under_way(dnsmasq: Dnsmasq) -> None:
    resolver = Resolver(nameserver=dnsmasq.nameserver, timeout=60.0, hosts=NO_HOSTS)
    dnsmasq.pause()
    waiting = asyncio.create_task(resolver.resolve(SEED))
    await asyncio.sleep(0)
    await resolver.close()
    with pytest.raises(ResolutionError, match="closed"):
        await waiting
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.asyncio
async def test_the_name_server_may_be_a_name(dnsmasq: Dnsmasq, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 dns.test\n")
    dnsmasq.set_hosts({"broker.test": ["10.0.0.1"]})
    resolver = Resolver(nameserver=f"dns.test:{dnsmasq.port}", hosts=hosts)
    assert hosts_of(await resolver.resolve(SEED)) == ["10.0.0.1"]


@pytest.mark.asyncio
async def test_a_family_that_is_never_answered_costs_little_and_keeps_its_last_answer(clock: Clock) -> None:
    async with half_server(ttl=0) as server:
        resolver = Resolver(nameserver=f"127.0.0.1:{server.port}", timeout=60, clock=clock, hosts=NO_HOSTS)
        server.silent = False
        assert hosts_of(await resolver.resolve(SEED)) == ["2001:db8::1", "10.0.0.1"]
        server.silent = True
        async with asyncio.timeout(30):
            assert hosts_of(await resolver.resolve(SEED)) == ["2001:db8::1", "10.0.0.1"]


@pytest.mark.asyncio
async def test_half_an_answer_is_good_for_once_whatever_its_ttl(clock: Clock) -> None:
    async with half_server(ttl=300) as server:
        resolver = Resolver(nameserver=f"127.0.0.1:{server.port}", timeout=5.0, clock=clock, hosts=NO_HOSTS)
        assert hosts_of(await resolver.resolve(SEED)) == ["10.0.0.1"]
        server.silent = False
        assert hosts_of(await resolver.resolve(SEED)) == ["2001:db8::1", "10.0.0.1"]


def test_lines_of_a_hosts_file_that_make_no_sense_are_skipped() -> None:
    assert parse_hosts("nonsense here\n\n10.0.0.1\n10.0.0.2\tA b#c\n10.0.0.2 a\n") == {
        "a": ("10.0.0.2",),
        "b": ("10.0.0.2",),
    }
    assert local_addresses("A.", {"a": ("10.0.0.2",)}) == ("10.0.0.2",)
    assert local_addresses("x.localhost", {}) == ("127.0.0.1", "::1")
    assert local_addresses("nowhere", {}) == ()


@pytest.mark.asyncio
async def test_a_fault_in_the_question_reaches_whoever_asked() -> None:
    async def ask(name: str, last: str | None) -> Answer[str]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Answers(ask, time.monotonic).get("x", asyncio.get_running_loop().time() + 5)


class HalfServer(asyncio.DatagramProtocol):
    """Answers A, and AAAA only unless it is silent: dnsmasq cannot drop only one of them."""

    def __init__(self, ttl: int) -> None:
        self.ttl = ttl
        self.silent = True
        self.port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)
        self.port = transport.get_extra_info("sockname")[1]

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        query = dns.message.from_wire(data)
        question = query.question[0]
        ipv6 = question.rdtype == dns.rdatatype.AAAA
        if ipv6 and self.silent:
            return
        answer = dns.message.make_response(query)
        answer.flags |= dns.flags.RA
        address = "2001:db8::1" if ipv6 else "10.0.0.1"
        answer.answer.append(
            dns.rrset.from_text(question.name, self.ttl, "IN", "AAAA" if ipv6 else "A", address)
        )
        self.transport.sendto(answer.to_wire(), addr)


@asynccontextmanager
async def half_server(ttl: int) -> AsyncIterator[HalfServer]:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(
        lambda: HalfServer(ttl), local_addr=("127.0.0.1", 0), family=socket.AF_INET
    )
    try:
        yield server
    finally:
        transport.close()
