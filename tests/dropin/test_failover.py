"""Programs written for proton go on when the primary is killed during their work."""

from __future__ import annotations

import asyncio

import pytest

from broker_stub.local_cluster.supervisor import LocalCluster
from tests.dropin.programs_of_proton import Programs, run
from tests.members import Members

REQUESTS = [f"request {number}" for number in range(300)]


def lines(start: str, printed: str) -> list[str]:
    """Return the lines with this prefix: the others are the log."""
    return [line for line in printed.splitlines() if line.startswith(start)]


async def test_a_sender_and_a_receiver_finish(programs: Programs, pair: LocalCluster) -> None:
    async with programs.start("simple_send", pair.url, "orders", "3000") as sender:
        await sender.line("^500 confirmed")
        await pair.kill_primary()
        assert (await sender.end()).endswith("all messages confirmed\n")
    async with programs.start("simple_recv", f"{pair.url}/orders", "3000") as receiver:
        await receiver.line("'sequence': 500}")
        await pair.kill_primary()
        numbers = lines("{", await receiver.end())
    assert sorted(numbers) == sorted(str({"sequence": n}) for n in range(1, 3001))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["timed_send", "event_send"])
async def test_what_timers_and_other_threads_have_sent_arrives(
    programs: Programs, pair: LocalCluster, name: str
) -> None:
    async with programs.start(name, pair.url, "orders", "300") as sender:
        await sender.line("^50 confirmed")
        await pair.kill_primary()
        assert "300 confirmed" in await sender.end()
    received = await asyncio.to_thread(run, programs.ours("simple_recv"), f"{pair.url}/orders", "300")
    assert lines("{", received) == [str({"sequence": number}) for number in range(1, 301)]


@pytest.mark.slow
@pytest.mark.parametrize("client", ["client", "sync_client"])
async def test_requests_are_all_answered(programs: Programs, pair: LocalCluster, client: str) -> None:
    async with programs.start("server", pair.url, "service") as server:
        await server.line("listening")
        async with programs.start(client, pair.url, "service", *REQUESTS) as asking:
            await asking.line("^request 50 =>")
            await pair.kill_primary()
            answers = lines("request", await asking.end())
        await asyncio.to_thread(run, programs.ours("client"), pair.url, "service", "stop")
        assert (await server.end()).endswith("stopped\n")
    assert answers == [f"{each} => {each.upper()}" for each in REQUESTS]


@pytest.mark.slow
async def test_blocking_calls_go_on(programs: Programs, pair: LocalCluster) -> None:
    async with programs.start("blocking_hello", pair.url, "greetings", "300") as program:
        await program.line("^hello 50 ")
        await pair.kill_primary()
        printed = await program.end()
    assert lines("hello", printed) == [f"hello {number} 36 True" for number in range(300)]
    assert "handled to a handler" in printed


@pytest.mark.slow
async def test_a_browser_goes_on(programs: Programs, pair: LocalCluster) -> None:
    await asyncio.to_thread(run, programs.ours("simple_send"), pair.url, "orders", "50")
    async with programs.start("queue_browser", pair.url, "orders", "90") as browser:
        await browser.line("'sequence': 50}")
        await pair.kill_primary()
        seen = lines("Message", await browser.end())
    assert len(seen) >= 90
    assert len(set(seen)) == 50


async def test_a_primary_that_falls_silent_is_left(programs: Programs, members: Members) -> None:
    """proton has no heartbeat by default, and waits for ever."""
    primary, passive = await asyncio.to_thread(members.pair)
    url = f"amqp://{primary.address},{passive.address}?heartbeat=0.5"
    async with programs.start("simple_send", url, "orders", "1000") as sender:
        await sender.line("^100 confirmed")
        primary.pause()
        await asyncio.to_thread(passive.promote)
        assert (await sender.end()).endswith("all messages confirmed\n")
    primary.resume()
