"""A VIP: one address that moves from the dead primary to the new one.

On loopback any process may listen on an address, so the tests move the VIP in two ways:

* the new primary itself listens on the address when the old one has ended.  A resource manager that moves
  the address and starts the broker has the same effect.
* a forwarder owns the address and forwards everything to one member, like a load balancer or a gratuitous
  ARP.  Both members keep their own addresses, unknown to clients.
"""

from __future__ import annotations

import asyncio

import pytest

from haclient import Message, aio
from haclient.events import AttemptFailed, BackingOff, Event, Reconnected
from tests.dnsmasq import free_port
from tests.failover.forwarder import Forwarder
from tests.failover.waiting import next_of
from tests.members import Members

QUEUE = "orders"
VIP = "127.0.0.100"
OPTIONS = "backoff_base=0.01&backoff_max=0.1"


async def test_a_client_finds_the_new_primary_that_took_over_the_address(members: Members) -> None:
    vip = f"{VIP}:{free_port(VIP)}"
    old = members.start("old", role="primary", listen=vip)
    async with aio.connect(f"amqp://{vip}?{OPTIONS}") as connection:
        sender, events = await connection.create_sender(QUEUE), connection.events()
        await sender.send(Message(body="before"), timeout=10)
        await asyncio.to_thread(old.kill)
        waiting = await sender.submit(Message(body="meanwhile"))
        await next_of(events, BackingOff)
        new = await asyncio.to_thread(members.start, "new", role="primary", listen=vip, generation=2)
        assert (await asyncio.wait_for(waiting, 20)).accepted
        assert connection.generation == 2
    assert await asyncio.to_thread(new.bodies, QUEUE) == ["meanwhile"]


@pytest.mark.slow
@pytest.mark.parametrize("silently", [False, True], ids=["connections are reset", "connections go silent"])
async def test_a_client_follows_an_address_that_moves_between_two_running_members(
    silently: bool, members: Members
) -> None:
    old, new = members.pair()
    with Forwarder(old.address, listen=(VIP, 0)) as vip:
        url = f"amqp://{vip.address}?heartbeat=0.5&attempt_timeout=1&{OPTIONS}"
        async with aio.connect(url) as connection:
            sender, events = await connection.create_sender(QUEUE), connection.events()
            await sender.send(Message(body="before"), timeout=10)
            vip.vanish(silently=silently)
            waiting = await sender.submit(Message(body="meanwhile"))
            await next_of(events, AttemptFailed)
            await asyncio.to_thread(old.kill)
            await asyncio.to_thread(new.promote)
            vip.appear(new.address)
            assert (await asyncio.wait_for(waiting, 20)).accepted
            assert connection.generation == 2
    assert await asyncio.to_thread(new.bodies, QUEUE) == ["meanwhile"]


async def test_an_address_that_still_leads_to_a_passive_member_is_tried_until_it_is_promoted(
    members: Members,
) -> None:
    old, new = members.pair()
    events = list[Event]()
    with Forwarder(old.address, listen=(VIP, 0)) as vip:
        async with aio.connect(f"amqp://{vip.address}?{OPTIONS}&redirects=none") as connection:
            live = connection.events()
            vip.vanish()
            vip.appear(new.address)
            await next_of(live, AttemptFailed)
            await asyncio.to_thread(old.kill)
            await asyncio.to_thread(new.promote)
            events.append(await next_of(live, Reconnected))
            # The passive member may have parked the connection; then the first link reports the generation.
            await connection.create_sender("orders")
            assert connection.generation == 2
