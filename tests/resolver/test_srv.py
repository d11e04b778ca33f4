"""SRV: the order of records, the names that TLS verifies, and lookups through a real dnsmasq."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from haclient.cluster_url.endpoint import Endpoint
from haclient.resolver.resolve import ResolutionError, Resolver
from haclient.resolver.srv import Service, in_order, verified_name
from tests.dnsmasq import Dnsmasq

NO_HOSTS = Path("/nonexistent/hosts")
SRV = Endpoint("cluster.test", 5672)


@pytest.fixture
def dnsmasq(tmp_path: Path) -> Iterator[Dnsmasq]:
    with Dnsmasq(tmp_path, ttl=30) as server:
        yield server


@pytest.fixture
def resolver(dnsmasq: Dnsmasq) -> Resolver:
    return Resolver(nameserver=dnsmasq.nameserver, timeout=1.0, hosts=NO_HOSTS)


def hosts_of(endpoints: tuple[Endpoint, ...]) -> list[str]:
    return [each.host for each in endpoints]


def srv_host(
    target: str, port: int, priority: int, weight: int, service: str = "_amqp._tcp.cluster.test"
) -> str:
    return f"--srv-host={service},{target},{port},{priority},{weight}"


@pytest.mark.asyncio
async def test_srv_targets_come_by_priority_with_their_own_ports(
    dnsmasq: Dnsmasq, resolver: Resolver
) -> None:
    dnsmasq.restart(
        [srv_host("c.test", 3, 30, 0), srv_host("a.test", 1, 10, 0), srv_host("b.test", 2, 20, 0)]
    )
    dnsmasq.set_hosts({"a.test": ["10.0.0.1"], "b.test": ["10.0.0.2", "2001:db8::2"], "c.test": ["10.0.0.3"]})
    expected = (("10.0.0.1", 1), ("2001:db8::2", 2), ("10.0.0.2", 2), ("10.0.0.3", 3))
    assert await resolver.resolve(SRV, srv=True) == tuple(Endpoint(host, port) for host, port in expected)


@pytest.mark.asyncio
async def test_srv_with_tls_asks_for_amqps(dnsmasq: Dnsmasq, resolver: Resolver) -> None:
    dnsmasq.restart([srv_host("a.cluster.test", 7, 0, 0, "_amqps._tcp.cluster.test")])
    dnsmasq.set_hosts({"a.cluster.test": ["10.0.0.1"]})
    (endpoint,) = await resolver.resolve(Endpoint("cluster.test", 5671, tls=True), srv=True)
    assert endpoint == Endpoint("10.0.0.1", 7, tls=True)
    assert endpoint.tls_name == "a.cluster.test"


@pytest.mark.asyncio
async def test_an_srv_target_outside_the_domain_must_show_the_certificate_of_the_name(
    dnsmasq: Dnsmasq, resolver: Resolver
) -> None:
    dnsmasq.restart([srv_host("evil.test", 7, 0, 0)])
    dnsmasq.set_hosts({"evil.test": ["10.0.0.1"]})
    (endpoint,) = await resolver.resolve(SRV, srv=True)
    assert endpoint.tls_name == "cluster.test"


@pytest.mark.asyncio
async def test_srv_records_of_one_priority_are_drawn_by_weight(dnsmasq: Dnsmasq) -> None:
    dnsmasq.restart([srv_host("a.test", 1, 0, 90), srv_host("b.test", 2, 0, 10)])
    dnsmasq.set_hosts({"a.test": ["10.0.0.1"], "b.test": ["10.0.0.2"]})
    resolver = Resolver(nameserver=dnsmasq.nameserver, rng=random.Random(1), hosts=NO_HOSTS)
    first = Counter([(await resolver.resolve(SRV, srv=True))[0].port for _ in range(200)])
    assert 160 < first[1] < 195
    assert dnsmasq.queries("_amqp._tcp.cluster.test", "SRV") == 1


@pytest.mark.asyncio
async def test_an_srv_target_without_address_is_left_out(dnsmasq: Dnsmasq, resolver: Resolver) -> None:
    dnsmasq.restart([srv_host("a.test", 1, 0, 0), srv_host("gone.test", 2, 0, 0)])
    dnsmasq.set_hosts({"a.test": ["10.0.0.1"]})
    assert hosts_of(await resolver.resolve(SRV, srv=True)) == ["10.0.0.1"]


@pytest.mark.asyncio
async def test_srv_targets_that_all_lack_an_address_are_an_error(
    dnsmasq: Dnsmasq, resolver: Resolver
) -> None:
    dnsmasq.restart([srv_host("gone.test", 2, 0, 0)])
    with pytest.raises(ResolutionError, match=r"'_amqp._tcp.cluster.test': none of its targets.*gone.test"):
        await resolver.resolve(SRV, srv=True)


@pytest.mark.asyncio
async def test_an_srv_target_that_is_the_root_means_no_service(dnsmasq: Dnsmasq, resolver: Resolver) -> None:
    dnsmasq.restart(["--srv-host=_amqp._tcp.cluster.test"])
    with pytest.raises(ResolutionError, match="not offered"):
        await resolver.resolve(SRV, srv=True)


@pytest.mark.asyncio
async def test_a_name_without_srv_records_is_an_error(resolver: Resolver) -> None:
    with pytest.raises(ResolutionError, match=r"'_amqp._tcp.cluster.test': .*no such name"):
        await resolver.resolve(SRV, srv=True)


@pytest.mark.asyncio
async def test_srv_records_outlive_a_resolver_that_stops_answering(dnsmasq: Dnsmasq) -> None:
    now = [1000.0]
    dnsmasq.restart([srv_host("a.test", 1, 0, 0)])
    dnsmasq.set_hosts({"a.test": ["10.0.0.1"]})
    resolver = Resolver(nameserver=dnsmasq.nameserver, timeout=0.3, clock=lambda: now[0], hosts=NO_HOSTS)
    await resolver.resolve(SRV, srv=True)
    dnsmasq.pause()
    now[0] += 31
    assert hosts_of(await resolver.resolve(SRV, srv=True)) == ["10.0.0.1"]


@pytest.mark.parametrize(
    ("srv_name", "target", "name"),
    [
        ("cluster.example.com", "a.example.com.", "a.example.com"),
        ("cluster.example.com", "a.cluster.example.com.", "a.cluster.example.com"),
        ("cluster.example.com", "A.Example.com.", "a.example.com"),
        ("cluster.example.com", "example.com.", "cluster.example.com"),
        ("cluster.example.com", "badexample.com.", "cluster.example.com"),
        ("example.com", "a.example.com.", "a.example.com"),
        ("example.com", "evil.com.", "example.com"),
        ("example.co.uk", "evil.co.uk.", "example.co.uk"),
        ("cluster", "evil.", "cluster"),
    ],
)
def test_the_certificate_must_name_a_target_only_inside_the_domain(
    srv_name: str, target: str, name: str
) -> None:
    assert verified_name(srv_name, target) == name


def test_weights_of_zero_have_a_small_chance_and_not_none() -> None:
    services = [Service("a.", 1, 0, 0), Service("b.", 2, 0, 9)]
    rng = random.Random(1)
    first = Counter(in_order(services, rng)[0].target for _ in range(1000))
    assert 50 < first["a."] < 200


def test_every_service_is_tried_once() -> None:
    services = [Service(f"{each}.", each, each % 3, each) for each in range(1, 20)]
    ordered = in_order(services, random.Random(1))
    assert sorted(ordered, key=lambda each: each.port) == services
    assert [each.priority for each in ordered] == sorted(each.priority for each in services)
