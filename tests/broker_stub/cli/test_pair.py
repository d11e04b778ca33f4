"""The ``pair`` command: its store and arbiter, and how long they last."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from proton import Message, SSLDomain
from proton.utils import BlockingConnection

from broker_stub.cli import pair as pair_command
from broker_stub.local_cluster.member_process import free_addresses
from broker_stub.local_cluster.ports import ClaimedPorts, free_ports
from broker_stub.local_cluster.supervisor import LocalCluster, LocalClusterEvent, LocalClusterOptions
from haclient import aio
from tests.zookeeper import ZooKeeper

PATIENCE = 60.0


async def start(*arguments: str) -> tuple[asyncio.subprocess.Process, dict[str, Any]]:
    """Start the command; return its process and its first lines when it is ready."""
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
async def test_the_arbiter_of_a_pair_can_be_a_zookeeper(zookeeper: ZooKeeper) -> None:
    process, facts = await start("--arbiter", zookeeper.url("/pair"))
    assert facts["arbiter"] == zookeeper.url("/pair")
    await stop(process)


async def read(stream: asyncio.StreamReader, event: str) -> dict[str, Any]:
    """Read the next line of that event."""
    async with asyncio.timeout(PATIENCE):
        while line := await stream.readline():
            facts: dict[str, Any] = json.loads(line)
            if facts["event"] == event:
                return facts
    raise AssertionError(f"it ended without {event}")


def ports(facts: dict[str, Any]) -> list[int]:
    return [int(member["address"].rpartition(":")[2]) for member in facts["members"]]


@pytest.mark.slow
async def test_an_operator_who_starts_it_twice_gets_another_pair_and_reads_so() -> None:
    command = (sys.executable, "-m", "broker_stub", "pair", "--json", "--memory")
    pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    pairs = [await asyncio.create_subprocess_exec(*command, **pipes) for _ in range(2)]
    found = [ports(await read(process.stdout, "ready")) for process in pairs]
    for process in pairs:
        process.send_signal(signal.SIGINT)
    said = [(await process.communicate())[1].decode() for process in pairs]
    assert [process.returncode for process in pairs] == [0, 0]
    assert len({port for each in found for port in each}) == 4
    # Another pair on this machine may have the AMQP ports: then both outputs mention it.
    for each, text in zip(found, said, strict=True):
        assert (each == [5672, 5673]) is ("is in use" not in text)
        assert ("listen on free ports" in text) is ("is in use" in text)
    assert any("is in use" in text for text in said)


async def test_a_member_that_dies_comes_back_at_its_port() -> None:
    process, facts = await start("--memory")
    primary = next(member for member in facts["members"] if member["state"] == "primary")
    os.kill(primary["pid"], signal.SIGKILL)
    while (await read(process.stdout, "started"))["member"] != primary["name"]:
        pass
    host, _, port = primary["address"].rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE):
        pass
    await stop(process)


class Screen:
    """Keeps the lines of a screen."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.pair: LocalCluster | None = None

    def event(self, event: LocalClusterEvent) -> None: ...

    def ready(self, pair: LocalCluster) -> None:
        self.pair = pair
        self.started.set()

    def close(self) -> None: ...


@pytest.mark.slow
async def test_a_port_that_is_taken_after_the_look_sends_all_members_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    wanted = free_addresses(free_ports(2))
    monkeypatch.setattr(
        pair_command, "claimed_ports", lambda _count: contextlib.nullcontext(ClaimedPorts(wanted))
    )
    screen = Screen()
    with socket.create_server((wanted[1].host, wanted[1].port)):
        running = asyncio.create_task(
            pair_command._run(LocalClusterOptions(listen=(), memory=True), 2, screen)
        )
        async with asyncio.timeout(PATIENCE):
            await screen.started.wait()
        got = {member.address.port for member in screen.pair.members}
        assert not got & {address.port for address in wanted}
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 0
    assert "the members listen on free ports" in capfd.readouterr().err


async def test_addresses_that_were_given_are_not_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a pair cannot listen at the given address it reports that, and does not start elsewhere."""
    (wanted,) = free_addresses(free_ports(1))
    screen = Screen()
    failed = asyncio.Event()
    monkeypatch.setattr(screen, "event", lambda event: event.kind == "failed" and failed.set())
    with socket.create_server((wanted.host, wanted.port)):
        options = LocalClusterOptions(listen=(wanted, replace(wanted, port=0)), memory=True)
        running = asyncio.create_task(pair_command._run(options, 2, screen))
        async with asyncio.timeout(PATIENCE):
            await failed.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 0
    assert screen.pair is None or wanted in {member.address for member in screen.pair.members}


@pytest.mark.slow
async def test_a_pair_with_tls_serves_haclient_and_plain_proton_and_fails_over() -> None:
    process, facts = await start("--tls", "--memory")
    assert Path(facts["tls_ca"]).parent.stat().st_mode & 0o077 == 0
    primary = next(member for member in facts["members"] if member["state"] == "primary")
    async with aio.connect(facts["url"]) as connection:
        sender = await connection.create_sender("orders")
        await sender.send(Message(body="one"))
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(facts["tls_ca"])
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
        plain = await asyncio.to_thread(
            BlockingConnection, f"amqps://{primary['address']}", timeout=PATIENCE, ssl_domain=domain
        )
        await asyncio.to_thread(plain.close)
        os.kill(primary["pid"], signal.SIGKILL)
        await sender.send(Message(body="two"), timeout=PATIENCE)
    await stop(process)
    assert not Path(facts["tls_ca"]).exists()


@pytest.mark.slow
async def test_certificates_of_a_store_that_is_kept_are_those_of_the_next_life(tmp_path: Path) -> None:
    authorities = set()
    for _ in range(2):
        process, facts = await start("--tls", "--store", str(tmp_path))
        assert facts["tls_ca"] == str(tmp_path / "tls" / "ca.pem")
        authorities.add(Path(facts["tls_ca"]).read_text())
        await stop(process)
    assert len(authorities) == 1


@pytest.mark.parametrize("options", [(), ("--tls",)])
async def test_a_directory_that_cannot_be_written_is_an_error_and_no_traceback(
    options: tuple[str, ...],
) -> None:
    command = (sys.executable, "-m", "broker_stub", "pair", "--store", "/proc/nowhere", *options)
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, said = await process.communicate()
    assert process.returncode == 1
    assert "/proc/nowhere" in said.decode()
    assert "Traceback" not in said.decode()


async def test_tls_without_openssl_says_what_is_missing(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path)}
    command = (sys.executable, "-m", "broker_stub", "pair", "--tls")
    process = await asyncio.create_subprocess_exec(*command, env=environment, stderr=asyncio.subprocess.PIPE)
    _, said = await process.communicate()
    assert process.returncode == 1
    assert "the command openssl, which is not installed" in said.decode()
