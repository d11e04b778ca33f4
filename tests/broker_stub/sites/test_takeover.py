"""The source is destroyed, the other site takes over, and later fails back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from proton import Message

from broker_stub.admission.user_file import write_users
from haclient import aio
from tests.broker_stub.clients import member
from tests.broker_stub.commands import json_of, manage
from tests.broker_stub.replication.cluster import ADMIN, PATIENCE, bodies, send
from tests.broker_stub.replication.load import load
from tests.broker_stub.sites.clusters import (
    LINK,
    as_user,
    fail_over,
    looked_at,
    serving,
    sites,
    write_password,
)


def members_of(url: str) -> str:
    """Return the members of a cluster URL, in the form of the option ``dr``."""
    return url.removeprefix("amqp://")


async def test_the_other_site_has_a_prefix_and_clients_go_on_there(tmp_path: Path) -> None:
    async with sites(tmp_path) as both:
        await both.begin(orders="enqueues")
        a, b = both.source.members
        c = await serving(both.dr)
        async with load(both.both_urls) as made:
            await made.goes_on()
            last = (await a.status()).facts["site"]["source"]
            await asyncio.gather(a.kill(), b.kill())
            [promoted] = await json_of(
                "site", "promote", both.dr.url, "--source", both.source.url, "--timeout", "5"
            )
            [applied] = promoted["last_sequence"].values()
            assert applied >= last["last_sequence"] - last["lag_events"]
            assert promoted["in_doubt"] is None
            await made.goes_on()
        got = await bodies(c, "orders")
        assert got[:applied] == list(range(applied))
        assert got == sorted(set(got))


@pytest.mark.slow
async def test_the_window_in_doubt_is_reported_while_the_source_lives(tmp_path: Path) -> None:
    async with sites(tmp_path) as both:
        await both.begin(orders="all")
        a, c = await serving(both.source), await serving(both.dr)
        await send(a, "orders", *range(10))
        await both.equal()
        promoted = await manage("site", "promote", both.dr.url, "--source", both.source.url)
        assert promoted.output == f"{LINK}: last sequence 10; 0 events in doubt\n"
        await send(a, "orders", *range(5))
        [row] = await json_of("site", "promote", both.dr.url, "--source", both.source.url)
        assert row["in_doubt"] == 5
        assert (await both.link())["state"] == "stopped"
        assert await c.depth("orders") == 10


@pytest.mark.slow
async def test_the_former_source_follows_the_site_that_took_over(tmp_path: Path) -> None:
    async with sites(tmp_path) as both:
        await both.begin(orders="all")
        a, c = await serving(both.source), await serving(both.dr)
        await send(a, "orders", *range(10))
        await both.equal()
        way = ("--from", as_user(both.dr.url), "--from-password-file", str(both.password_file))
        back = ("site", "fail-back", "from-b", *way, "--at", both.dr.url, "--to")
        early = await manage(*back, both.source.url)
        assert (early.exit_code, "promote it first" in early.stderr) == (1, True)
        await json_of("site", "promote", both.dr.url)
        await send(c, "orders", *range(10, 20))
        refused = await manage(*back, both.source.url)
        assert (refused.exit_code, "orders (10 messages)" in refused.stderr) == (1, True)
        assert (await json_of(*back, both.source.url, "--discard"))["queues"] == ["orders"]
        await send(c, "orders", *range(20, 30))
        await c.until(lambda status: status.facts["site"]["source"]["lag_events"] == 0)
        assert await looked_at(a, "orders") == list(range(30))
        async with aio.connect(f"{both.dr.url}/?dr={members_of(both.source.url)}") as client:
            sender = await client.create_sender("orders")
            planned = ("site", "promote", both.source.url, "--source", both.dr.url, "--planned")
            assert (await manage(*planned)).output == "from-b: last sequence 30; 0 events in doubt\n"
            await sender.send(Message(body=30), timeout=PATIENCE)
        assert await bodies(a, "orders") == list(range(31))
        assert not (await c.status()).serves


@pytest.mark.slow
async def test_a_planned_take_over_waits_for_what_is_in_doubt_or_changes_nothing(tmp_path: Path) -> None:
    async with sites(tmp_path) as both:
        await both.begin(orders="all")
        a, c = await serving(both.source), await serving(both.dr)
        c.pause()
        await send(a, "orders", *range(10))
        c.resume()
        both.password_file.unlink()
        await fail_over(both.source)
        successor = await serving(both.source)
        await send(successor, "orders", 10)
        planned = ("site", "promote", both.dr.url, "--source", both.source.url, "--planned", "--timeout")
        early = await manage(*planned, "3")
        assert (early.exit_code, "nothing has changed" in early.stderr) == (1, True), early.output
        assert (await both.link())["applying"]
        write_password(both.password_file)
        [row] = await json_of(*planned, "30")
        assert row["in_doubt"] == 0
        assert await c.depth("orders") == 11
        assert not (await successor.status()).serves
        assert (await manage("site", "promote", both.dr.url, "--planned")).exit_code == 2


async def test_what_cannot_follow_is_refused_before_anything_is_removed(tmp_path: Path) -> None:
    write_users(tmp_path / "users", {ADMIN.user: ADMIN.password})
    password = write_password(tmp_path / "password", ADMIN.password)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    users = ("--users", str(tmp_path / "users"), "--role", "primary", "--link-passwords", str(tmp_path))
    async with member(tmp_path / "a", *users) as a, member(tmp_path / "b", *users) as b:
        way = ("--from", f"amqp://{ADMIN.user}@{a.authority}", "--from-password-file", str(password))
        await json_of("queue", "add", "orders", str(a), "--site-replicate", "all")
        await json_of("queue", "add", "orders", str(b), "--replicate", "none")
        await json_of("link", "add", LINK, *way, "--to", str(b))
        async with aio.connect(str(a)) as client:
            await (await client.create_sender("orders")).send(Message(body=1), timeout=PATIENCE)
        while (await json_of("queue", "list", str(b)))[0]["depth"] == 0:
            pass
        await json_of("site", "promote", str(b))
        back = ("site", "fail-back", "from-b", *way, "--at", str(b), "--to", str(a), "--discard")
        refused = await manage(*back)
        assert (refused.exit_code, "needs x-qpid-replicate all" in refused.stderr) == (1, True), (
            refused.output
        )
        assert {row["name"]: row["depth"] for row in await json_of("queue", "list", str(a))}["orders"] == 1
