"""Host names, against a real dnsmasq and real members."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from haclient import Message, aio
from haclient.errors import ConnectionGaveUp
from haclient.events import AttemptFailed, BackingOff, Event, Reconnected
from tests.dnsmasq import Dnsmasq, free_port
from tests.failover.waiting import next_of
from tests.members import Member, Members

QUEUE = "orders"
NAME = "broker.test"
SERVICE = "--srv-host=_amqp._tcp.cluster.test"
HOSTS = ("127.0.0.11", "127.0.0.12")
OPTIONS = "backoff_base=0.01&backoff_max=0.1&dns_timeout=0.5"


@pytest.fixture
def dns(tmp_path: Path) -> Iterator[Dnsmasq]:
    folder = tmp_path / "dnsmasq"
    folder.mkdir()
    with Dnsmasq(folder) as server:
        yield server


@pytest.fixture
def pair(members: Members) -> tuple[Member, Member]:
    """Start a primary and a passive member at one port of two addresses."""
    port = free_port(HOSTS[0])
    primary = members.start("primary", role="primary", listen=f"{HOSTS[0]}:{port}")
    listen = f"{HOSTS[1]}:{port}"
    return primary, members.start("passive", listen=listen, primary=primary.url, generation=1)


def srv(member: Member, name: str, priority: int) -> str:
    """Make a SRV record of the service."""
    return f"{SERVICE},{name},{member.endpoint.port},{priority},1"


async def test_srv_targets_are_tried_by_priority_and_the_next_one_when_the_first_is_dead(
    dns: Dnsmasq, pair: tuple[Member, Member]
) -> None:
    primary, passive = pair
    dns.restart([srv(passive, "b.test", 20), srv(primary, "a.test", 10)])
    dns.set_hosts({"a.test": [HOSTS[0]], "b.test": [HOSTS[1]]})
    events = list[Event]()
    # Stable at once, so that the lost member keeps its place in the list.
    options = f"{OPTIONS}&redirects=none&stable_after=0"
    url = f"amqp+srv://cluster.test?nameserver={dns.nameserver}&{options}"
    async with aio.connect(url, on_event=events.append) as connection:
        assert connection.endpoint == primary.endpoint
        # The target with the lower priority was not even dialled.
        assert not any(isinstance(event, AttemptFailed) for event in events)
        live, sender = connection.events(), await connection.create_sender(QUEUE)
        await asyncio.to_thread(primary.kill)
        await asyncio.to_thread(passive.promote)
        assert (await sender.send(Message(body=1), timeout=20)).accepted
        assert (await next_of(live, AttemptFailed)).record.endpoint == primary.endpoint
        assert connection.endpoint == passive.endpoint
    async with aio.connect(url) as second:
        assert second.endpoint == passive.endpoint


async def test_an_address_record_that_changes_during_the_outage_leads_to_the_new_primary(
    dns: Dnsmasq, pair: tuple[Member, Member]
) -> None:
    primary, passive = pair
    dns.set_hosts({NAME: [HOSTS[0]]})
    url = f"amqp://{NAME}:{primary.endpoint.port}?nameserver={dns.nameserver}&{OPTIONS}"
    async with aio.connect(url) as connection:
        assert connection.endpoint == primary.endpoint
        live, sender = connection.events(), await connection.create_sender(QUEUE)
        await asyncio.to_thread(primary.kill)
        waiting = await sender.submit(Message(body=1))
        await next_of(live, BackingOff)
        await next_of(live, AttemptFailed)
        await asyncio.to_thread(passive.promote)
        await asyncio.to_thread(dns.set_hosts, {NAME: [HOSTS[1]]})
        assert (await asyncio.wait_for(waiting, 20)).accepted
        assert connection.endpoint == passive.endpoint
    assert await asyncio.to_thread(passive.bodies, QUEUE) == [1]


@pytest.mark.parametrize("ttl", [0, 1])
async def test_a_name_that_moved_is_found_again_within_its_time_to_live(
    ttl: int, tmp_path: Path, pair: tuple[Member, Member]
) -> None:
    primary, passive = pair
    (tmp_path / "short").mkdir()
    with Dnsmasq(tmp_path / "short", ttl=ttl) as dns:
        dns.set_hosts({NAME: [HOSTS[0]]})
        url = f"amqp://{NAME}:{primary.endpoint.port}?nameserver={dns.nameserver}&{OPTIONS}"
        async with aio.connect(url) as connection:
            live = connection.events()
            await asyncio.to_thread(passive.promote)
            await asyncio.to_thread(dns.set_hosts, {NAME: [HOSTS[1]]})
            await asyncio.to_thread(primary.kill)
            found = await next_of(live, Reconnected)
            assert found.endpoint == passive.endpoint


@pytest.mark.slow
@pytest.mark.parametrize("service", [False, True], ids=["address", "service"])
async def test_a_resolver_that_stops_answering_leaves_the_last_answer_in_force(
    service: bool, dns: Dnsmasq, pair: tuple[Member, Member], caplog: pytest.LogCaptureFixture
) -> None:
    primary, _ = pair
    dns.restart([srv(primary, "a.test", 10)])
    dns.set_hosts({NAME: [HOSTS[0]], "a.test": [HOSTS[0]]})
    where = "amqp+srv://cluster.test" if service else f"amqp://{NAME}:{primary.endpoint.port}"
    async with aio.connect(f"{where}?nameserver={dns.nameserver}&{OPTIONS}") as connection:
        live, sender = connection.events(), await connection.create_sender(QUEUE)
        dns.pause()
        await asyncio.to_thread(primary.kill)
        waiting = await sender.submit(Message(body=1))
        # Two rounds without DNS; the address is dialled in each of them.
        for _ in range(2):
            assert (await next_of(live, AttemptFailed)).record.endpoint == primary.endpoint
        await asyncio.to_thread(primary.start, generation=2)
        assert (await asyncio.wait_for(waiting, 20)).accepted
        assert connection.endpoint == primary.endpoint
    dns.resume()
    assert "keeping the last answer" in caplog.text


async def test_a_resolver_that_never_answered_is_named_in_the_error(
    dns: Dnsmasq, pair: tuple[Member, Member]
) -> None:
    dns.pause()
    url = f"amqp://{NAME}?nameserver={dns.nameserver}&{OPTIONS}&startup_deadline=1.2"
    try:
        with pytest.raises(ConnectionGaveUp) as raised:
            await aio.connect(url)
    finally:
        dns.resume()
    assert NAME in str(raised.value)
    assert dns.nameserver in str(raised.value)
