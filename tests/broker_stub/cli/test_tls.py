"""A cluster whose members use TLS among themselves, and commands to them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from broker_stub.admission.user_file import DEFAULT_ADMIN, write_users
from broker_stub.local_cluster.member_process import free_addresses
from haclient.cluster_url.endpoint import Endpoint
from tests.broker_stub.commands import manage
from tests.broker_stub.replication.cluster import ADMIN, PATIENCE
from tests.certificates import Authority
from tests.forked import ForkedMember


@pytest.mark.slow
async def test_backups_find_their_primary_over_tls_and_so_do_the_commands(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    certificate = authority.issue("127.0.0.1")
    (tmp_path / "arbiter").mkdir()
    (tmp_path / "password").write_text(ADMIN.password)
    write_users(tmp_path / "users", {DEFAULT_ADMIN: ADMIN.password})
    first, second = free_addresses((Endpoint("127.0.0.1", 0, tls=True),) * 2)
    shared = ["--users", str(tmp_path / "users"), "--password-file", str(tmp_path / "password")]
    shared += ["--arbiter", f"directory:{tmp_path / 'arbiter'}"]
    shared += ["--member", str(first), "--member", str(second)]
    shared += ["--tls-cert", str(certificate.chain), "--tls-key", str(certificate.key)]
    shared += ["--tls-ca", str(authority.file)]
    ca = ("--tls-ca", str(authority.file))
    async with contextlib.AsyncExitStack() as stack:
        for name, address in (("a", first), ("b", second)):
            arguments = ["--listen", str(address), "--name", name, *shared]
            process = ForkedMember(arguments, tmp_path / f"{name}.log")
            await process.start()
            stack.push_async_callback(process.kill)
        assert (await manage("promote", str(first), *ca)).exit_code == 0
        async with asyncio.timeout(PATIENCE):
            while (await manage("status", str(second), "--expect", "ready", *ca)).exit_code != 0:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        added = await manage("queue", "add", "orders", str(second), "--json", *ca)
        assert json.loads(added.stdout)["name"] == "orders"
        assert (await manage("status", str(first))).exit_code == 3
