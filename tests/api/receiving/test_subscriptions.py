"""Subscriptions to topics: names, durability, sharing, removal; over both APIs.

The names and capabilities are written out as Qpid JMS sends them (``AmqpSubscriptionTracker``).
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from proton import Condition, Terminus

from haclient import State
from haclient.errors import ConnectionClosed, LinkRefused, LinkTimeout
from tests.peers import Primary, primary
from tests.peers.apis import API, connected
from tests.peers.classic import classic

GLOBAL = ("topic", "shared", "global")


def links(peer: Primary) -> list[str]:
    return [each.link for each in peer.sources]


async def test_a_plain_subscription_has_the_capability_topic_and_no_durability(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.subscribe("news", capabilities=("mine",))
        source = peer.sources[0]
        assert (source.address, source.capabilities) == ("news", ("topic", "mine"))
        assert source.durability == Terminus.NONDURABLE
        peer.put("news", 1)
        assert (await receiver.receive(timeout=5)).message.body == 1
        await receiver.close()
        await peer.until(lambda: [closed for _, closed in peer.detached] == [True])


async def test_a_durable_one_has_its_name_and_outlives_close_detach_and_the_connection(api: API) -> None:
    async with primary() as peer:
        for end in ("close", "detach"):
            async with connected(api, peer, client_id="me") as connection:
                receiver = await connection.subscribe("news", name="mine", durable=True)
                await getattr(receiver, end)()
                await peer.until(lambda: peer.detached)
                assert peer.detached == [("mine", False)]
                peer.detached.clear()
        async with connected(api, peer, client_id="me") as connection:
            await connection.subscribe("news", name="mine", durable=True)
        source = peer.sources[0]
        assert links(peer) == ["mine"] * 3
        assert source.capabilities == ("topic",)
        assert (source.durability, source.expiry) == (Terminus.DELIVERIES, Terminus.EXPIRE_NEVER)
        assert peer.subscriptions == {"mine"}


async def test_a_durable_one_stays_durable_over_a_failover(api: API) -> None:
    async with primary() as peer, connected(api, peer, client_id="me") as connection:
        receiver = await connection.subscribe("news", name="mine", durable=True, selector="a = 1")
        peer.drop()
        peer.put("news", 1)
        assert (await receiver.receive(timeout=5)).message.body == 1
        assert peer.sources[0] == peer.sources[1]


@pytest.mark.parametrize("client_id", ["me", None])
@pytest.mark.parametrize("durable", [True, False])
async def test_shared_ones_have_the_names_of_the_jms_mapping(
    api: API, client_id: str | None, *, durable: bool
) -> None:
    expected = {
        ("me", True): ["mine", "mine|2", "mine|3"],
        ("me", False): ["mine|volatile1", "mine|volatile2", "mine|volatile3"],
        (None, True): ["mine|global", "mine|global2", "mine|global3"],
        (None, False): ["mine|global-volatile1", "mine|global-volatile2", "mine|global-volatile3"],
    }
    options = {} if client_id is None else {"client_id": client_id}
    async with primary() as peer, connected(api, peer, **options) as connection:
        for _ in range(3):
            await connection.subscribe("news", name="mine", shared=True, durable=durable)
        assert links(peer) == expected[client_id, durable]
        capabilities = GLOBAL if client_id is None else ("topic", "shared")
        assert {each.capabilities for each in peer.sources} == {capabilities}
        assert {bool(each.durability) for each in peer.sources} == {durable}


async def test_a_client_with_an_id_may_share_with_all_others(api: API) -> None:
    async with primary() as peer, connected(api, peer, client_id="me") as connection:
        await connection.subscribe("news", name="mine", shared=True, durable=True, capabilities=("global",))
        assert links(peer) == ["mine|global"]
        assert peer.sources[0].capabilities == GLOBAL


async def test_a_durable_one_without_a_client_id_is_refused(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        with pytest.raises(
            ValueError, match=r"belongs to a client_id: give one in the URL \(client_id=NAME\)"
        ):
            await connection.subscribe("news", name="mine", durable=True)
        assert peer.sources == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"durable": True}, "a durable or shared subscription has a name, not None"),
        ({"shared": True}, "a durable or shared subscription has a name, not None"),
        ({"shared": True, "name": ""}, "has a name, not ''"),
        ({"shared": True, "name": 1}, "name: expected text or None, not int"),
        ({"shared": True, "name": "a|b"}, "the name of a subscription has no '|'"),
        ({"name": "a"}, "the name 'a' is of no use"),
    ],
    ids=str,
)
async def test_names_are_where_they_are_needed(api: API, arguments: dict[str, Any], text: str) -> None:
    async with primary() as peer, connected(api, peer, client_id="me") as connection:
        with pytest.raises((TypeError, ValueError), match=text.replace("|", r"\|")):
            await connection.subscribe("news", **arguments)


async def test_a_second_receiver_of_an_unshared_one_is_refused(api: API) -> None:
    async with primary() as peer, connected(api, peer, client_id="me") as connection:
        first = await connection.subscribe("news", name="mine", durable=True)
        with pytest.raises(ValueError, match="'mine' is in use"):
            await connection.subscribe("news", name="mine", durable=True)
        await first.close()
        await connection.subscribe("news", name="mine", durable=True)


async def test_a_peer_that_does_not_share_is_refused_unless_the_caller_goes_on(api: API) -> None:
    async with primary(shares=False) as peer, connected(api, peer) as connection:
        with pytest.raises(LinkRefused, match="does not share subscriptions") as caught:
            await connection.subscribe("news", name="mine", shared=True)
        assert caught.value.condition == "amqp:not-implemented"
        assert peer.sources == []
        await connection.subscribe("news", name="mine", shared=True, strict=False)
        assert len(peer.sources) == 1


@pytest.mark.parametrize("capability", ["shared", "global"])
async def test_a_capability_that_the_peer_only_repeats_is_no_proof(api: API, capability: str) -> None:
    """As ActiveMQ Classic does, which keeps a durable subscription of each Attach that it sees."""
    async with classic() as peer, connected(api, peer, client_id="me") as connection:
        with pytest.raises(LinkRefused, match=r"does not share subscriptions.*strict=False goes on"):
            await connection.create_receiver("news", capabilities=[capability])
        for strict in (True, False):
            with pytest.raises(
                LinkRefused, match=r"subscriptions: a second .* subscribe without shared=True"
            ):
                await connection.subscribe("news", name="mine", durable=True, shared=True, strict=strict)
        assert (peer.sources, peer.subscriptions) == ([], set())
        await connection.subscribe("news", name="mine", durable=True)
        assert peer.subscriptions == {"mine"}


@pytest.mark.parametrize("strict", [True, False])
async def test_a_durable_one_of_nobody_needs_a_peer_that_shares(api: API, *, strict: bool) -> None:
    """Else it stays behind, and no process finds it again."""
    async with classic() as peer, connected(api, peer) as connection:
        with pytest.raises(
            LinkRefused, match=r"belongs to a client_id: give one in the URL \(client_id=NAME\)"
        ):
            await connection.subscribe("news", name="mine", durable=True, shared=True, strict=strict)
        with pytest.raises(LinkRefused) as caught:
            await connection.unsubscribe("mine", topic="news")
        assert caught.value.condition == "amqp:not-implemented"
        assert (peer.sources, peer.subscriptions) == ([], set())


async def test_a_shared_one_ends_with_the_reason_at_a_member_that_does_not_share(api: API) -> None:
    """After a failover, and nothing is attached there; another receiver goes on."""
    async with primary() as peer, connected(api, peer) as connection:
        shared = await connection.subscribe("news", name="mine", durable=True, shared=True)
        other = await connection.subscribe("news")
        seen = len(peer.sources)
        peer.offered = ()
        peer.drop()
        with pytest.raises(LinkRefused, match="does not share subscriptions"):
            await shared.receive(timeout=5)
        peer.put("news", 1)
        assert (await other.receive(timeout=5)).message.body == 1
        assert len(peer.sources) == seen + 1


# -- unsubscribe ----------------------------------------------------------------------------------


async def test_it_is_found_by_the_name_of_its_link_and_closed(api: API) -> None:
    async with primary() as peer, connected(api, peer, client_id="me") as connection:
        await (await connection.subscribe("news", name="mine", durable=True)).close()
        await connection.unsubscribe("mine")
        assert peer.sources[-1].is_null
        assert peer.detached == [("mine", False), ("mine", True)]
        assert peer.subscriptions == set()
        assert peer.credit[1:] == [], "it asks for no message"


async def test_another_connection_of_the_same_client_may_remove_it(api: API) -> None:
    async with primary() as peer:
        async with connected(api, peer, client_id="me") as connection:
            await connection.subscribe("news", name="mine", durable=True)
        async with connected(api, peer, client_id="me") as connection:
            await connection.unsubscribe("mine", timeout=5)
            assert peer.subscriptions == set()


async def test_a_global_one_is_found_by_its_topic(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        await (await connection.subscribe("news", name="mine", shared=True, durable=True)).close()
        with pytest.raises(ValueError, match=r"without a client_id .*: name the topic, too \(topic=NAME\)"):
            await connection.unsubscribe("mine")
        await connection.unsubscribe("mine", topic="news")
        assert peer.sources[-1] == peer.sources[0]
        assert peer.detached == [("mine|global", False), ("mine|global", True)]
        assert peer.subscriptions == set()


async def test_one_that_does_not_exist_is_refused(api: API) -> None:
    async with primary() as peer, connected(api, peer, client_id="me") as connection:
        with pytest.raises(LinkRefused, match=r"'mine'.*no such subscription") as caught:
            await connection.unsubscribe("mine")
        assert caught.value.condition == "amqp:not-found"


async def test_one_with_a_receiver_on_this_connection_is_refused(api: API) -> None:
    async with primary() as peer, connected(api, peer, client_id="me") as connection:
        receiver = await connection.subscribe("news", name="mine", durable=True)
        with pytest.raises(ValueError, match="the subscription 'mine' has a receiver: close it first"):
            await connection.unsubscribe("mine")
        await receiver.close()
        await connection.unsubscribe("mine")


async def test_a_name_that_cannot_be_one_is_refused(api: API) -> None:
    async with primary() as peer, connected(api, peer, client_id="me") as connection:
        for name in ("", "a|b", None):
            with pytest.raises(ValueError, match="subscription has"):
                await connection.unsubscribe(name)


async def test_a_failover_in_the_middle_is_survived(api: API) -> None:
    """The next primary knows the subscription no more: it was removed."""
    async with primary(subscriptions={"mine"}) as peer, connected(api, peer, client_id="me") as connection:
        peer.drops_at_detach = True
        await asyncio.wait_for(connection.unsubscribe("mine"), 10)
        assert (len(peer.sources), peer.subscriptions) == (2, set())


async def test_before_the_failover_nothing_is_lost(api: API) -> None:
    async with primary(subscriptions={"mine"}) as peer, connected(api, peer, client_id="me") as connection:
        peer.drop()
        await asyncio.wait_for(connection.unsubscribe("mine"), 10)
        assert peer.subscriptions == set()


async def test_a_locked_one_is_tried_again_until_the_timeout(api: API) -> None:
    locked = Condition("amqp:resource-locked", "it has a receiver elsewhere")
    async with primary(subscriptions={"mine"}) as peer, connected(api, peer, client_id="me") as connection:
        peer.refuses[None] = locked  # type: ignore[index]
        with pytest.raises(LinkRefused, match="it has a receiver elsewhere"):
            await connection.unsubscribe("mine", timeout=0.2)
        attaches = len(peer.attaches)
        removal = asyncio.ensure_future(connection.unsubscribe("mine", timeout=10))
        await peer.until(lambda: len(peer.attaches) > attaches)
        peer.refuses.clear()
        await removal
        assert peer.subscriptions == set()


async def test_without_a_primary_it_times_out_and_the_name_is_free(api: API) -> None:
    async with primary(subscriptions={"mine"}) as peer, connected(api, peer, client_id="me") as connection:
        peer.refuses_opens = Condition("amqp:connection:forced", "not now")
        peer.drop()
        async with asyncio.timeout(10):
            while connection.state is State.CONNECTED:  # noqa: ASYNC110 - of either API
                await asyncio.sleep(0.001)
        with pytest.raises(
            LinkTimeout, match=r"'mine' was not removed within 0\.1 s: the connection has no primary"
        ):
            await connection.unsubscribe("mine", timeout=0.1)
        peer.refuses_opens = None
        await asyncio.wait_for(connection.unsubscribe("mine"), 10)


async def test_a_closed_connection_removes_none(api: API) -> None:
    async with primary() as peer, connected(api, peer, client_id="me") as connection:
        await connection.close()
        with pytest.raises(ConnectionClosed):
            await connection.unsubscribe("mine")
