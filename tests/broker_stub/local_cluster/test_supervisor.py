"""A pair of real processes and its supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from proton import Message

from broker_stub.local_cluster.supervisor import (
    LocalCluster,
    LocalClusterEvent,
    LocalClusterOptions,
    Member,
    MemberState,
    describe,
)
from broker_stub.management_client import AdminClient, AdminError, MemberRefusedError
from tests.broker_stub.clients import Client, until

PATIENT = LocalClusterOptions(probe_timeout=10)
QUICK = LocalClusterOptions(probe_interval=0.05, probe_timeout=0.3, probes_missed=2)


@pytest.fixture
async def pair() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(PATIENT) as pair:
        yield pair


def gone(pid: int) -> bool:
    """Return whether a process has ended; its other threads may outlive the first one for a moment."""
    try:
        threads = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):  # a thread has ended meanwhile
        return not Path(f"/proc/{pid}").exists()
    return all(line.rpartition(")")[2].split()[0] in "XZ" for line in threads)


async def test_a_pair_has_one_primary_and_the_others_know_it(pair: LocalCluster) -> None:
    states = [member.state for member in pair.members]
    assert sorted(states) == [MemberState.PRIMARY, MemberState.READY]
    assert pair.generation == 1
    assert pair.url == "amqp://" + ",".join(member.address.authority for member in pair.members)
    [passive] = [member for member in pair.members if member is not pair.primary]
    client = await Client().connect(passive.address)
    reason = await client.end()
    assert reason.condition.name == "amqp:connection:redirect"
    assert reason.condition.info["port"] == pair.primary.address.port


async def test_a_killed_primary_is_replaced_in_a_higher_generation_and_comes_back_ready(
    pair: LocalCluster,
) -> None:
    for generation in (2, 3):
        victim = await pair.kill_primary()
        pid = victim.pid
        await pair.wait_until(lambda pair, g=generation: pair.generation == g)
        assert pair.primary is not victim
        client = await Client().connect(pair.primary.address)
        [outcome] = await client.send(await client.attach("sender", "s", "q"), Message(body="x"))
        assert outcome.accepted
        assert client.properties["haclient:generation"] == generation
        await client.close()
        await pair.wait_ready()
        assert (victim.state, victim.generation) == (MemberState.READY, generation)
        assert pid is None or victim.pid != pid


@pytest.mark.slow
async def test_every_change_is_reported_to_the_listener() -> None:
    told: list[LocalClusterEvent] = []
    async with LocalCluster(PATIENT, on_event=told.append) as pair:
        victim = await pair.kill_primary()
        await pair.wait_until(lambda pair: pair.generation == 2)
        await pair.wait_ready()
        primary = pair.primary
    told = [event for event in told if event.kind != "silent"]  # reported first if its end is noticed late
    assert [e.kind for e in told if e.member == victim.name] == [
        "started",
        "promoted",
        "died",
        "started",
        "follows",
    ]
    assert [e.kind for e in told if e.member == primary.name] == ["started", "follows", "promoted"]


async def test_a_hung_primary_is_killed_before_another_is_promoted() -> None:
    async with LocalCluster(QUICK) as pair:
        hung = pair.primary
        hung.process.signal(signal.SIGSTOP)
        pid = hung.pid
        await pair.wait_until(lambda pair: pair.generation == 2)
        # A member has its generation before the supervisor reports that it was promoted.
        await pair.wait_until(lambda pair: [event.kind for event in pair.events].count("promoted") == 2)
        kinds = [(event.kind, event.member) for event in pair.events]
        assert kinds.index(("fenced", hung.name)) < kinds.index(("died", hung.name))
        assert kinds.index(("died", hung.name)) < kinds.index(("promoted", pair.primary.name))
        assert gone(pid)


def the_other(pair: LocalCluster) -> Member:
    [other] = [member for member in pair.members if member is not pair.primary]
    return other


async def test_a_member_that_an_operator_promotes_takes_over_and_the_old_primary_follows(
    pair: LocalCluster,
) -> None:
    old, other = pair.primary, the_other(pair)
    async with await AdminClient.connect(old.address, pair.credentials) as admin:
        await admin.demote(other.address)
    async with await AdminClient.connect(other.address, pair.credentials) as admin:
        # The supervisor may have been faster: it promotes the member in whose favour the other was demoted.
        with contextlib.suppress(MemberRefusedError):
            await admin.promote()
    await pair.wait_until(lambda pair: pair.primary is other and pair.ready)
    assert (other.generation, old.state) == (2, MemberState.READY)


@pytest.mark.slow
async def test_a_primary_that_is_demoted_in_favour_of_a_member_is_succeeded_by_that_one() -> None:
    loopback = PATIENT.listen[0]
    async with LocalCluster(LocalClusterOptions(listen=(loopback,) * 3, probe_timeout=10)) as pair:
        for generation in (2, 3, 4):
            old = pair.primary
            favoured = next(m for m in reversed(pair.members) if m is not old)
            async with await AdminClient.connect(old.address, pair.credentials) as admin:
                await admin.demote(favoured.address)
            await pair.wait_until(lambda pair, m=favoured: pair.primary is m and pair.ready)
            assert pair.generation == generation


async def test_a_switch_over_makes_the_member_primary_and_the_old_one_ready(pair: LocalCluster) -> None:
    for generation in (2, 3, 4):
        old, other = pair.primary, the_other(pair)
        await pair.promote(other)
        assert (pair.primary, other.state) == (other, MemberState.PRIMARY)
        await pair.wait_ready()
        assert (other.generation, old.state) == (generation, MemberState.READY)
        await pair.promote(other)
        assert pair.generation == generation


async def test_a_member_that_is_not_ready_is_not_switched_to_and_the_primary_stays() -> None:
    async with LocalCluster(LocalClusterOptions(restart=False, probe_timeout=10)) as pair:
        primary, other = pair.primary, the_other(pair)
        await other.process.kill()
        await pair.wait_until(lambda _pair: other.state is MemberState.DEAD)
        with pytest.raises(AdminError, match="is dead"):
            await pair.promote(other)
        assert (pair.primary, primary.state) == (primary, MemberState.PRIMARY)
        pair.restart(other)
        await pair.wait_ready()


async def test_a_dead_member_stays_dead_until_it_is_wanted_without_restart() -> None:
    async with LocalCluster(LocalClusterOptions(restart=False, probe_timeout=10)) as pair:
        victim = await pair.kill_primary()
        await pair.wait_until(lambda pair: pair.generation == 2)
        assert victim.state is MemberState.DEAD
        assert [member["pid"] is None for member in describe(pair)].count(True) == 1
        pair.restart(victim)
        await pair.wait_ready()
        assert victim.state is MemberState.READY


def states(pair: LocalCluster) -> list[str]:
    return sorted(str(member.state) for member in pair.members)


@pytest.mark.slow
async def test_three_members_survive_two_deaths() -> None:
    loopback = PATIENT.listen[0]
    async with LocalCluster(
        LocalClusterOptions(listen=(loopback,) * 3, probe_timeout=10, restart=False)
    ) as pair:
        await pair.kill_primary()
        # The third one alone is eligible once it is ready under the second.
        await pair.wait_until(lambda pair: states(pair) == ["dead", "primary", "ready"])
        await pair.kill_primary()
        await pair.wait_until(lambda pair: states(pair) == ["dead", "dead", "primary"])


async def test_a_stopped_pair_leaves_no_process_and_no_file() -> None:
    async with LocalCluster(PATIENT) as pair:
        directory = pair.directory
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE(pair.password_file.stat().st_mode) == 0o600
        pids = [member.pid for member in pair.members]
        logs = "".join(path.read_text() for path in directory.glob("*.log"))
        assert pair.credentials.password not in logs + repr(pair.credentials)
        commands = [Path(f"/proc/{pid}/cmdline").read_text() for pid in pids]
        assert pair.credentials.password not in "".join(commands)
    assert all(gone(pid) for pid in pids)
    assert not directory.exists()


async def pair_command(*arguments: str) -> tuple[asyncio.subprocess.Process, dict[str, object]]:
    """Start ``broker_stub pair``; return the process, and its line that says it is ready."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "broker_stub", "pair", "--json", *arguments, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(30):
        while True:
            facts = json.loads(await process.stdout.readline())
            if facts["event"] == "ready":
                return process, facts


async def wait_for_the_end_of(pids: list[int]) -> None:
    await until(lambda: all(gone(pid) for pid in pids))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_pair_command_stops_everything_on_a_signal(number: signal.Signals) -> None:
    process, facts = await pair_command()
    process.send_signal(number)
    await process.communicate()
    assert process.returncode == 0
    await wait_for_the_end_of([member["pid"] for member in facts["members"]])


async def test_no_member_outlives_the_supervisor_that_is_killed_not_even_a_stopped_one() -> None:
    process, facts = await pair_command()
    pids = [member["pid"] for member in facts["members"]]
    os.kill(pids[0], signal.SIGSTOP)
    process.kill()
    await process.communicate()
    await wait_for_the_end_of(pids)
    shutil.rmtree(Path(facts["password_file"]).parent)
