"""The cluster-admin and backups get in at every limit of clients, when anonymous clients have exhausted it.

Otherwise no probe would reach the member, and its supervisor would kill one primary after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import click.testing
import pytest
from proton import Message

from broker_stub.amqp.node_names import QUEUE_TYPE
from broker_stub.management_client import AdminClient, MemberRefusedError
from broker_stub.resource_agents import probe
from haclient.cluster_url.endpoint import Endpoint
from tests.broker_stub.clients import Client, LinkRefusedError
from tests.broker_stub.commands import json_of, manage
from tests.broker_stub.replication.cluster import ADMIN, PATIENCE, Cluster, Member

KB = 1000
ALL_CLIENTS = {
    "--max-queues": 3,
    "--max-bytes": 20 * KB,
    "--credit-bytes": 2 * KB,
    "--max-user-connections": 2,
    "--max-connections": 4,  # including the test's and the backup's
}
ONE_CONNECTION = {
    "--max-links": 1,
    "--max-sessions": 1,
    "--max-unfinished": 1,
    "--max-unfinished-total": 1,
    "--credit-bytes": 1,
    "--min-idle-timeout": 3600,
    "--max-handshakes": 2,
    "--park-limit": 0,
}


def arguments(limits: dict[str, int]) -> tuple[str, ...]:
    rate = ("--accept-rate", "unlimited")
    return (*rate, *(part for name, value in limits.items() for part in (name, str(value))))


async def fill(client: Client, reason: str) -> int:
    """Attach to temporary queues until one is refused for that reason; return their number."""
    made, refusal = 0, ""
    while not refusal:
        try:
            await client.attach("receiver", f"r{made}", None, dynamic=True)
            made += 1
        except LinkRefusedError as refused:
            refusal = str(refused)
        assert made < 100
    assert reason in refusal
    return made


async def probed(folder: Path, member: Member, cluster: Cluster) -> str:
    """Return the role and the score that the resource agent reads."""
    given = (member.address.authority, "--arbiter", f"directory:{folder / 'arbiter'}")
    given += ("--password-file", str(cluster.password_file), "--patience", "10", "--timeout", "15")
    result = await asyncio.to_thread(click.testing.CliRunner().invoke, probe.main, given)
    assert result.exit_code == 0, result.output
    return str(result.stdout).strip()


async def check_managed(folder: Path, cluster: Cluster, primary: Member, backup: Member) -> None:
    """Make every request of an operator and a resource manager, over separate connections."""
    assert await probed(folder, primary, cluster) == "primary 1000"
    assert await probed(folder, backup, cluster) == "ready 100"
    where = primary.address.authority
    [status] = await json_of("status", where)
    assert status["role"] == "primary"
    await json_of("queue", "list", where)
    await backup.kill()
    await backup.start()  # it joins by a connection of its own
    await backup.until("ready")
    for command in ("demote", "promote"):
        result = await manage(command, where)
        assert result.exit_code == 0, result.output
    await primary.until("primary")
    await backup.until("ready")


@pytest.mark.slow
async def test_a_member_that_clients_have_filled_is_managed(tmp_path: Path) -> None:
    async with Cluster(tmp_path, arguments=arguments(ALL_CLIENTS)) as cluster:
        a, b = await cluster.pair()
        client = await Client().connect(a.address)
        link = await client.attach("sender", "s", "q0")
        await fill(client, "the limit of 3 queues is reached")
        sent = 0
        while link.credit > 0:
            await client.send(link, Message(body=b"x" * KB))
            sent += 1
            assert sent < 40
        second = await Client().connect(a.address)
        await second.begun.wait()
        refused = await (await Client().connect(a.address)).end()
        assert refused.condition is not None
        assert refused.condition.name == "amqp:resource-limit-exceeded"
        await check_managed(tmp_path, cluster, a, b)
        assert (await a.depth("q0")) == sent
        # Exercise a move too: the other member has as many bytes, and takes over.
        await a.kill()
        await b.promote()
        assert (await b.depth("q0")) == sent


@pytest.mark.slow
async def test_a_member_whose_connections_may_use_next_to_nothing_is_managed(tmp_path: Path) -> None:
    async with Cluster(tmp_path, arguments=arguments(ONE_CONNECTION)) as cluster, AsyncExitStack() as stack:
        a, b = await cluster.pair()
        for _ in range(2):  # silent: each occupies a handshake for a quarter of a second
            _, writer = await asyncio.open_connection(a.address.host, a.address.port)
            stack.callback(writer.close)
        await check_managed(tmp_path, cluster, a, b)


@contextlib.contextmanager
def silent_sockets(address: Endpoint, count: int) -> Iterator[None]:
    """Open many connections from one address that send nothing: in the member, and in its backlog."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, count + 500) if soft != resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(count):
            each = stack.enter_context(socket.socket())
            each.setblocking(False)
            each.connect_ex((address.host, address.port))
        yield


@pytest.mark.slow
async def test_thousands_of_silent_sockets_keep_neither_a_probe_nor_the_admin_out(tmp_path: Path) -> None:
    """Before, they left at 250 a second, and a probe behind 4,000 of them was too late."""
    arguments = ("--max-handshakes", "500", "--handshake-timeout", "300")
    async with Cluster(tmp_path, arguments=arguments) as cluster:
        a, _ = await cluster.pair()
        with silent_sockets(a.address, 4500):
            assert await probed(tmp_path, a, cluster) == "primary 1000"
            [status] = await json_of("status", a.address.authority)
            assert status["role"] == "primary"
            assert status["entrance"]["cut"] > 0


async def test_one_connection_of_the_admin_has_few_queues_beyond_the_limit(tmp_path: Path) -> None:
    async with Cluster(tmp_path, arguments=arguments({"--max-queues": 1})) as cluster:
        a, _ = await cluster.pair()
        settings = {"user": "cluster-admin", "password": ADMIN.password, "mechanisms": ("SCRAM-SHA-256",)}
        client = await Client().connect(a.address, **settings)
        assert await fill(client, "the limit of 1 queues is reached") >= 2
        # The limit of durable queues holds for the admin too.
        admin = await AdminClient.connect(a.address, ADMIN, timeout=PATIENCE)
        async with admin:
            with pytest.raises(MemberRefusedError, match="the limit of 1 queues is reached"):
                await admin.create(QUEUE_TYPE, "q0")
        await client.close()
