"""Credentials go only where the URL allows: announcements and offers of members do not change that."""

from __future__ import annotations

import proton

from haclient import Credentials
from haclient.events import Connected, Reconnected, Redirected
from tests.peers import Peer, primary, url
from tests.peers.apis import API
from tests.peers.watch import Watch

FAST = {"backoff_base": 0.001, "backoff_max": 0.01, "sasl_mechanisms": "ANONYMOUS"}
USER = Credentials(user="app", password="secret")


def announcing(peer: Peer) -> dict[str, object]:
    member = {proton.symbol("network-host"): peer.host, proton.symbol("port"): peer.port}
    return {"failover-server-list": [member]}


async def test_a_foreign_member_is_refused_with_one_event_where_credentials_are_sent(api: API) -> None:
    watch = Watch()
    async with primary() as foreign, primary(properties=announcing(foreign)) as first:
        connection = await api.connect(url(first, **FAST), credentials=USER, on_event=watch)
        (refused,) = await watch.until(Redirected)
        assert (refused.target.port, refused.by.port, refused.followed) == (foreign.port, first.port, False)
        assert "redirects=any" in refused.detail
        assert connection.factory.topology.pushed == ()
        first.drop()
        await watch.until(Reconnected)
        await connection.close()
        assert len(watch.of(Redirected)) == 1
        assert foreign.accepted == []


async def test_a_foreign_member_is_kept_with_the_option_and_without_credentials(api: API) -> None:
    async with primary() as foreign, primary(properties=announcing(foreign)) as first:
        for arguments in ({"credentials": USER, "redirects": "any"}, {}):
            watch = Watch()
            connection = await api.connect(url(first, **FAST), on_event=watch, **arguments)
            await watch.until(Connected)
            assert [member.port for member in connection.factory.topology.pushed] == [foreign.port]
            assert watch.of(Redirected) == []
            await connection.close()


async def test_a_listed_member_that_is_announced_is_not_refused(api: API) -> None:
    watch = Watch()
    async with primary() as second, primary(properties=announcing(second)) as first:
        connection = await api.connect(url(first, second, **FAST), credentials=USER, on_event=watch)
        await watch.until(Connected)
        assert watch.of(Redirected) == []
        await connection.close()
