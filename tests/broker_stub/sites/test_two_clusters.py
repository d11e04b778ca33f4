"""Queue state follows from one cluster to another, whichever member fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker_stub.queueing.site_state import REPLICATION_QUEUE
from tests.broker_stub.commands import json_of, manage
from tests.broker_stub.replication.cluster import bodies, send
from tests.broker_stub.replication.load import load
from tests.broker_stub.sites.clusters import LINK, as_user, serving, sites


@pytest.mark.slow
async def test_a_restart_of_the_dr_site_in_the_middle_of_redelivery_duplicates_nothing(
    tmp_path: Path,
) -> None:
    async with sites(tmp_path) as both:
        await both.begin(orders="enqueues")
        a, (c, d) = await serving(both.source), both.dr.members
        await d.kill()
        await send(a, "orders", *range(300))
        for _ in range(3):
            await c.kill()
            await send(a, "orders", *range(300))
            await c.start()
            await c.promote()
            await c.until(lambda status: status.facts["site"]["links"][0]["applied"] > 0)
        await both.equal()
        assert await c.depth("orders") == 1200
        assert (await both.link())["gaps"] == 0
        assert await a.depth(REPLICATION_QUEUE) == 0


@pytest.mark.slow
@pytest.mark.parametrize("site", ["source", "dr"])
async def test_a_primary_that_wakes_after_its_successor_has_begun_does_no_harm(
    tmp_path: Path, site: str
) -> None:
    async with sites(tmp_path) as both:
        await both.begin(orders="enqueues")
        primary, successor = {"source": both.source, "dr": both.dr}[site].members
        async with load(both.url) as made:
            await made.goes_on()
            primary.pause()
            await successor.promote()
            await made.goes_on()
            primary.resume()
            await primary.until("ready")
            await made.goes_on()
        await both.equal()
        assert (await both.link())["gaps"] == 0
        got = await bodies(await serving(both.dr), "orders")
        assert got == sorted(set(got))
        assert made.settled <= set(got)


@pytest.mark.slow
async def test_the_commands_make_show_and_remove_a_link(tmp_path: Path) -> None:
    async with sites(tmp_path) as both:
        (a, _), (c, _) = await asyncio.gather(both.source.pair(), both.dr.pair())
        await json_of("queue", "add", "orders", both.source.url, "--site-replicate", "all")
        way = ("--from", as_user(both.source.url), "--from-password-file", str(both.password_file))
        made = await manage("link", "add", LINK, *way, "--to", both.dr.url)
        assert made.exit_code == 0, made.output
        assert "from-a from amqp://alice@" in made.output
        await send(a, "orders", 1, 2, 3)
        await both.equal()
        facts = await json_of("link", "status", LINK, both.dr.url)
        assert list(facts["last_sequence"].values()) == [3]
        assert [link["name"] for link in await json_of("link", "list", both.dr.url)] == [LINK]
        status = await manage("status", a.address.authority, c.address.authority)
        assert "last sequence 3, lag 0 events" in status.output
        needed = await manage("queue", "remove", "site-replication", both.source.url)
        assert (needed.exit_code, "holds the events of orders" in needed.stderr) == (1, True)
        removed = await manage("link", "remove", LINK, both.dr.url)
        assert removed.output == "removed from-a\n"
        assert await json_of("link", "list", both.dr.url) == []
        refused = await manage("link", "status", LINK, both.dr.url)
        assert (refused.exit_code, "there is no link 'from-a'" in refused.stderr) == (1, True)
        wrong = await manage("link", "add", LINK, "--from", "http://x", "--to", both.dr.url)
        assert wrong.exit_code == 2
