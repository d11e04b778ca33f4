"""The source is destroyed, the other site takes over, and later gives back."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.broker_stub.commands import manage, told
from tests.broker_stub.replication.cluster import bodies, send
from tests.broker_stub.replication.load import load
from tests.broker_stub.sites.clusters import LINK, looked_at, serving, sites


async def test_the_other_site_has_a_prefix_and_clients_go_on_there(tmp_path: Path) -> None:
    async with sites(tmp_path) as both:
        await both.begin(orders="enqueues")
        a, b = both.source.members
        c = await serving(both.dr)
        async with load(both.both_urls) as made:
            await made.goes_on()
            last = (await a.status()).facts["site"]["source"]
            await asyncio.gather(a.kill(), b.kill())
            [promoted] = await told(
                "site", "promote", both.dr.url, "--source", both.source.url, "--timeout", "5"
            )
            [applied] = promoted["last_sequence"].values()
            assert applied >= last["last_sequence"] - last["lag_events"]
            assert promoted["in_doubt"] is None
            await made.goes_on()
        got = await bodies(c, "orders")
        assert got[:applied] == list(range(applied))
        assert got == sorted(set(got))


async def test_the_window_in_doubt_is_told_while_the_source_lives(tmp_path: Path) -> None:
    async with sites(tmp_path) as both:
        await both.begin(orders="all")
        a, c = await serving(both.source), await serving(both.dr)
        await send(a, "orders", *range(10))
        await both.equal()
        promoted = await manage("site", "promote", both.dr.url, "--source", both.source.url)
        assert promoted.output == f"{LINK}: last sequence 10; 0 events in doubt\n"
        await send(a, "orders", *range(5))
        [row] = await told("site", "promote", both.dr.url, "--source", both.source.url)
        assert row["in_doubt"] == 5
        assert (await both.link())["state"] == "stopped"
        assert await c.depth("orders") == 10


async def test_the_former_source_follows_the_site_that_took_over(tmp_path: Path) -> None:
    async with sites(tmp_path) as both:
        await both.begin(orders="all")
        a, c = await serving(both.source), await serving(both.dr)
        await send(a, "orders", *range(10))
        await both.equal()
        back = ("site", "fail-back", "from-b", "--from", both.dr.url, "--at", both.dr.url, "--to")
        early = await manage(*back, both.source.url)
        assert (early.exit_code, "promote it first" in early.stderr) == (1, True)
        await told("site", "promote", both.dr.url)
        await send(c, "orders", *range(10, 20))
        refused = await manage(*back, both.source.url)
        assert (refused.exit_code, "orders (10 messages)" in refused.stderr) == (1, True)
        assert (await told(*back, both.source.url, "--discard"))["queues"] == ["orders"]
        await send(c, "orders", *range(20, 30))
        await c.until(lambda status: status.facts["site"]["source"]["lag_events"] == 0)
        assert await looked_at(a, "orders") == list(range(30))
        assert await bodies(c, "orders") == list(range(30))
        await c.until(lambda status: status.facts["site"]["source"]["lag_events"] == 0)
        assert await a.depth("orders") == 0
