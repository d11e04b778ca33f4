"""``status --all``, ``promote``, ``demote``, ``set-members`` and ``serve --force-primary`` with a cluster."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from proton import Message

from broker_stub.local_cluster.member_process import MemberStartError
from broker_stub.management_client import MemberRefusedError
from haclient import aio
from haclient.events import Redirected
from tests.broker_stub.commands import json_of, manage
from tests.broker_stub.replication.cluster import PATIENCE, Cluster, Member, bodies, send
from tests.forked import ForkedMember


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path) as cluster:
        yield cluster


async def left_behind(cluster: Cluster) -> tuple[Member, Member]:
    """Kill the first member after it settled a message alone; the second one is up, without that message."""
    a, b = await cluster.pair()
    await b.stop()
    await send(a, "orders", "settled alone")
    await a.kill()
    await b.start()
    return a, b


# -- status -----------------------------------------------------------------------------------------


async def test_status_of_all_members_needs_the_address_of_one(cluster: Cluster) -> None:
    a, b = await cluster.pair()
    await send(a, "orders", "x")
    first, second = await json_of("status", "--all", b.url)
    assert sorted([first["name"], second["name"]]) == ["a", "b"]
    primary = first if first["name"] == "a" else second
    replication = primary["replication"]
    assert (primary["role"], primary["generation"]) == ("primary", 1)
    assert replication["replicas"] == [{"name": "b", "phase": "ready", "lag": 0, "set_aside": {}}]
    assert replication["store"] == str(a.store)
    assert replication["arbiter"].startswith("directory:")
    assert (replication["number"], replication["pending"], replication["damage"]) == (1, None, "")
    assert primary["queue_count"] >= 1
    [queue] = await json_of("queue", "list", b.url)
    assert (queue["name"], queue["replicate"], queue["depth"]) == ("orders", "all", 1)


async def test_status_for_people_has_a_line_for_each_fact(cluster: Cluster) -> None:
    a, _ = await cluster.pair()
    await send(a, "orders", "x")
    output = (await manage("status", a.url)).output
    assert f"a ({a.address.authority}): primary, generation 1\n" in output
    for line in ("claim     generation 1, pending none", "replica   b: ready, lag 0", f"store     {a.store}"):
        assert line in output
    assert re.search(r"queues    \d+, with temporary ones", output)
    assert "orders" not in output


async def test_a_member_that_is_not_there_makes_status_exit_with_3_and_the_others_are_shown(
    cluster: Cluster,
) -> None:
    a, b = await cluster.pair()
    await b.kill()
    result = await manage("status", "--all", a.url, "--expect", "primary")
    assert result.exit_code == 3
    assert "a (" in result.stdout
    assert f"amqp://{b.address.authority}: Connection refused" in result.stderr


# -- promote and demote -----------------------------------------------------------------------------


async def test_promoting_a_backup_of_a_living_primary_is_a_switch_over(cluster: Cluster) -> None:
    a, b = await cluster.pair()
    await send(a, "orders", "before")
    result = await manage("promote", b.url)
    assert (result.exit_code, result.stdout) == (0, "b is primary, generation 2\n")
    await a.until("ready")
    await send(b, "orders", "after")
    back = await json_of("promote", a.url)
    assert (back["name"], back["role"], back["warning"]) == ("a", "primary", "")
    assert await bodies(a, "orders") == ["before", "after"]


@pytest.mark.slow
async def test_a_primary_that_does_not_answer_is_not_asked_to_step_down(cluster: Cluster) -> None:
    a, b = await cluster.pair()
    a.pause()
    result = await manage("promote", b.url)
    assert (result.exit_code, result.stdout) == (0, "b is primary, generation 2\n")
    a.resume()
    await a.until("ready")


async def test_a_primary_that_is_demoted_redirects_its_clients_to_the_given_member(cluster: Cluster) -> None:
    a, b = await cluster.pair()
    async with aio.connect(cluster.url) as connection:
        assert connection.endpoint.port == a.address.port
        facts = await json_of("demote", a.url, "--primary", b.url)
        assert (facts["name"], facts["role"]) == ("a", "connecting")
        await b.promote()
        async with asyncio.timeout(PATIENCE):
            sender = await connection.create_sender("orders")
            await sender.send(Message(body="x"))
        assert connection.endpoint.port == b.address.port
    again = await manage("demote", a.url)
    assert again.exit_code == 1
    assert "demote: this member is" in again.stderr


@pytest.mark.slow
async def test_a_refused_promotion_names_both_generations_and_exits_with_1(cluster: Cluster) -> None:
    _, b = await left_behind(cluster)
    result = await manage("promote", b.url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the arbiter is at generation 2 and this member has generation 1" in result.stderr


@pytest.mark.slow
async def test_a_forced_promotion_says_on_standard_error_what_it_may_have_lost(cluster: Cluster) -> None:
    _, b = await left_behind(cluster)
    result = await manage("promote", b.url, "--force-primary")
    assert (result.exit_code, result.stdout) == (0, "b is primary, generation 3\n")
    assert "The arbiter was at generation 2 and this member had generation 1" in result.stderr
    assert "settled in generation 2 may be lost" in result.stderr
    assert "No primary was fenced" in result.stderr


@pytest.mark.slow
async def test_a_member_started_with_force_primary_takes_over_and_logs_what_that_may_lose(
    cluster: Cluster,
) -> None:
    a, b = await left_behind(cluster)
    await b.stop()
    b.process = ForkedMember((*b.process._arguments, "--force-primary"), b.log_file)
    await b.start()
    assert (await b.until("primary")).generation == 3
    assert "any message that was settled in generation 2 may be lost" in b.log
    await a.start()
    await a.until("ready")


async def test_force_primary_without_an_arbiter_in_reach_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    a, _ = cluster.members
    (tmp_path / "arbiter").rmdir()
    (tmp_path / "arbiter").touch()
    a.process = ForkedMember((*a.process._arguments, "--force-primary"), a.log_file)
    with pytest.raises(MemberStartError, match=r"exit code 1: --force-primary: .* can't be used as arbiter"):
        await a.start()


async def test_a_store_that_another_member_has_open_is_refused(cluster: Cluster) -> None:
    a, b = cluster.members
    await a.start()
    b.process = ForkedMember((*b.process._arguments, "--store", str(a.store)), b.log_file)
    with pytest.raises(MemberStartError, match=r"exit code 1: the store .* is in use by process"):
        await b.start()


# -- set-members ------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_new_members_reach_every_member_and_a_backup_finds_a_primary_that_only_they_name(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path, ("a", "b", "c")) as cluster:
        a, b, c = cluster.members
        # Neither the arguments of a and b name c, nor the arguments of c name a and b.
        for member, known in ((a, (a, b)), (b, (a, b)), (c, (c,))):
            await start_knowing(member, known)
        await a.promote()
        await b.until("ready")
        assert (await c.status()).role == "connecting"
        result = await manage("set-members", *(each.address.authority for each in cluster.members))
        assert (result.exit_code, result.stderr) == (0, "")
        await c.until("ready")
        authorities = [each.address.authority for each in cluster.members]
        for member in cluster.members:
            assert (await member.status()).facts["members"] == authorities
        # b was ready all the time; its next search has the new list.
        assert (await a.status()).generation == 1
        await a.kill()
        await c.promote()
        await b.until("ready")
        assert (await b.status()).facts["primary"] == c.address.authority


async def start_knowing(member: Member, known: tuple[Member, ...]) -> None:
    """Start a member with a list of other members than its cluster has."""
    arguments = list(member.process._arguments)
    del arguments[arguments.index("--member") :]
    for other in known:
        arguments += ["--member", other.address.authority]
    member.process = ForkedMember(arguments, member.log_file)
    await member.start()


async def test_a_member_of_the_new_list_that_is_not_there_is_reported_with_exit_code_3(
    cluster: Cluster,
) -> None:
    a, b = await cluster.pair()
    await b.kill()
    both = (a.address.authority, b.address.authority)
    result = await manage("set-members", *both)
    assert (result.exit_code, result.stdout) == (3, "a has 2 members\n")
    # If b is not in the list, no member waits for it.
    result = await manage("set-members", a.address.authority)
    assert (result.exit_code, result.stdout) == (0, "a has 1 members\n")


# -- a broker URL apart from the client list --------------------------------------------------------


@pytest.mark.slow
async def test_members_look_for_each_other_at_the_broker_url_and_clients_get_the_other_list(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path, ("a", "b", "c")) as cluster:
        a, b, c = cluster.members
        for member, known in ((a, (a, b)), (b, (a, b)), (c, (c,))):
            await start_knowing(member, known)
        await a.promote()
        await b.until("ready")
        own = ",".join(each.url for each in cluster.members)
        # Two names of loopback stand for a network of clients and one of members.
        public = [f"localhost:{each.address.port}" for each in cluster.members]
        result = await manage("set-members", *public, "--at", a.address.authority, "--broker-url", own)
        assert (result.exit_code, result.stderr) == (0, "")
        await c.until("ready")
        assert f"following amqp://{a.address.authority}" in c.log
        for member in cluster.members:
            assert (await member.status()).facts["members"] == public
        # Members ignore a list that they cannot use: they have their own.
        result = await manage("set-members", "localhost:1", "--at", a.address.authority)
        assert result.exit_code == 3
        await a.kill()
        await c.promote()
        await b.until("ready")
        assert f"following amqp://{c.address.authority}" in b.log


async def test_a_member_that_was_started_with_a_broker_url_keeps_it(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = cluster.members
        for member in cluster.members:
            own = ",".join(each.url for each in cluster.members)
            member.process = ForkedMember((*member.process._arguments, "--broker-url", own), member.log_file)
            await member.start()
        result = await manage("set-members", "localhost:1", "--at", a.address.authority, "--at", b.url)
        assert result.exit_code == 3
        assert (await b.status()).facts["members"] == ["localhost:1"]
        await a.promote()
        await b.until("ready")


async def test_a_broker_url_that_is_none_is_refused_and_changes_nothing(cluster: Cluster) -> None:
    a, b = await cluster.pair()
    before = (await a.status()).facts["members"]
    result = await manage("set-members", a.address.authority, "--broker-url", "amqp://a:b:c")
    assert result.exit_code == 2
    assert "--broker-url" in result.stderr
    with pytest.raises(MemberRefusedError, match="broker_url: a cluster URL starts with"):
        await b.call("UPDATE", members=[a.address.authority], broker_url="a:5672")
    assert (await a.status()).facts["members"] == (await b.status()).facts["members"] == before


async def test_backups_redirect_clients_to_where_the_primary_says_that_they_reach_it(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = cluster.members
        public = f"localhost:{a.address.port}"
        a.process = ForkedMember((*a.process._arguments, "--advertise", public), a.log_file)
        for member in cluster.members:
            await member.start()
        await a.promote()
        await b.until("ready")
        assert (await b.status()).facts["primary"] == public
        assert f"following amqp://{a.address.authority}" in b.log
        redirects: list[Redirected] = []
        async with aio.connect(
            b.url,
            on_event=lambda event: isinstance(event, Redirected) and redirects.append(event),
        ) as connection:
            assert connection.endpoint is not None
            assert connection.endpoint.authority == public
        assert [each.target.authority for each in redirects] == [public]
