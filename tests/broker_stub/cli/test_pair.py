"""The ``pair`` command: which store and arbiter it uses, and that they last when they should."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Message

from haclient import aio
from tests.zookeeper import ZooKeeper

PATIENCE = 60.0


async def start(*arguments: str) -> tuple[asyncio.subprocess.Process, dict[str, Any]]:
    """The command as a process, and what it says when it is ready."""
    command = (sys.executable, "-m", "broker_stub", "pair", "--json", *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(PATIENCE):
        while True:
            facts = json.loads(await process.stdout.readline())
            if facts["event"] == "ready":
                return process, facts


async def stop(process: asyncio.subprocess.Process) -> None:
    process.send_signal(signal.SIGTERM)
    await process.communicate()
    assert process.returncode == 0


async def test_a_pair_without_options_has_a_store_that_is_removed_at_the_end() -> None:
    process, facts = await start()
    store = Path(facts["store"])
    assert facts["arbiter"] == f"directory:{store / 'arbiter'}"
    assert (store / "member-1").is_dir()
    await stop(process)
    assert not store.exists()


async def test_messages_in_a_store_that_is_kept_are_there_in_the_next_life(tmp_path: Path) -> None:
    store = tmp_path / "kept"
    process, facts = await start("--store", str(store), "--backup-timeout", "5")
    assert facts["store"] == str(store)
    async with aio.connect(facts["url"]) as connection:
        sender = await connection.create_sender("orders")
        await sender.send(Message(body="kept"))
    await stop(process)
    process, facts = await start("--store", str(store))
    async with aio.connect(facts["url"]) as connection, asyncio.timeout(PATIENCE):
        receiver = await connection.create_receiver("orders")
        delivery = await receiver.receive()
        assert delivery.message.body == "kept"
        await delivery.accept()
    await stop(process)


async def test_a_pair_in_memory_of_three_members_says_so(tmp_path: Path) -> None:
    arbiter = tmp_path / "arbiter"
    arbiter.mkdir()
    process, facts = await start("--memory", "--members", "3", "--arbiter", f"directory:{arbiter}")
    assert (facts["store"], facts["arbiter"]) == ("memory", f"directory:{arbiter}")
    assert len(facts["members"]) == 3
    assert (arbiter / "record").exists()
    await stop(process)


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZooKeeper]:
    folder = tmp_path / "zookeeper"
    folder.mkdir()
    with ZooKeeper(folder) as server:
        yield server


async def test_the_arbiter_of_a_pair_can_be_a_zookeeper(zookeeper: ZooKeeper) -> None:
    process, facts = await start("--arbiter", zookeeper.url("/pair"))
    assert facts["arbiter"] == zookeeper.url("/pair")
    await stop(process)
