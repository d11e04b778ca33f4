"""The common behaviour of all arbiters."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from broker_stub.election.arbiter import open_arbiter
from broker_stub.election.generation import ArbiterRecord
from tests.broker_stub.election.arbiter.conftest import Open

NEVER_USED = ArbiterRecord(0, "")
ROOT = Path(__file__).resolve().parents[4]


def contender(url: str, last: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.broker_stub.election.arbiter.contender", url, str(last)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


async def test_one_that_was_never_used_holds_generation_0(open_it: Open) -> None:
    assert await open_it().read() == NEVER_USED


async def test_what_one_sets_the_others_read(open_it: Open) -> None:
    one, other = open_it(), open_it()
    assert await one.compare_and_set(NEVER_USED, ArbiterRecord(1, "a"))
    assert await other.read() == ArbiterRecord(1, "a")
    assert await other.compare_and_set(ArbiterRecord(1, "a"), ArbiterRecord(2, "b"))
    assert await one.read() == ArbiterRecord(2, "b")


@pytest.mark.parametrize("expected", [ArbiterRecord(1, "other"), ArbiterRecord(0, ""), ArbiterRecord(2, "a")])
async def test_another_record_than_expected_is_left_alone(open_it: Open, expected: ArbiterRecord) -> None:
    """The whole record counts: the number with another claim is another record."""
    arbiter = open_it()
    await arbiter.compare_and_set(NEVER_USED, ArbiterRecord(1, "a"))
    assert not await arbiter.compare_and_set(expected, ArbiterRecord(3, "b"))
    assert await arbiter.read() == ArbiterRecord(1, "a")


async def test_the_cluster_and_its_origin_stay_with_the_record(open_it: Open) -> None:
    """A member without them cannot set the next one."""
    arbiter, named = open_it(), ArbiterRecord(8, "a", "a UUID", 7)
    assert await arbiter.compare_and_set(NEVER_USED, named)
    assert await open_it().read() == named
    assert not await arbiter.compare_and_set(ArbiterRecord(8, "a"), ArbiterRecord(9, "b"))


async def test_setting_it_twice_is_won_once(open_it: Open) -> None:
    arbiter = open_it()
    assert await arbiter.compare_and_set(NEVER_USED, ArbiterRecord(1, "a"))
    assert not await arbiter.compare_and_set(NEVER_USED, ArbiterRecord(1, "a"))


async def test_of_many_tasks_one_wins_each_generation(open_it: Open) -> None:
    record = NEVER_USED
    for generation in range(1, 4):
        asked = [ArbiterRecord(generation, f"{generation}-{task}") for task in range(16)]
        won = await asyncio.gather(*(open_it().compare_and_set(record, each) for each in asked))
        assert sum(won) == 1
        record = asked[won.index(True)]
        assert await open_it().read() == record


@pytest.mark.slow
async def test_of_many_processes_one_wins_each_generation(url: str) -> None:
    last = 40
    contenders = [contender(url, last) for _ in range(4)]
    won = [
        line.split()
        for each in contenders
        for line in (await asyncio.to_thread(each.communicate))[0].splitlines()
    ]
    assert all(each.returncode == 0 for each in contenders)
    assert sorted(int(generation) for generation, _ in won) == list(range(1, last + 1))
    assert [str(last), (await open_arbiter(url).read()).claim] in won


async def test_a_process_that_is_killed_leaves_a_record(url: str) -> None:
    """Each process is killed at a random moment; the next one goes on from its record."""
    reached = 0
    for _ in range(6):
        victim = contender(url, 100_000)
        assert victim.stdout is not None
        lines = [await asyncio.to_thread(victim.stdout.readline) for _ in range(3)]
        victim.kill()
        rest, _ = await asyncio.to_thread(victim.communicate)
        reported = [int(line.split()[0]) for line in [*lines, *rest.splitlines()] if len(line.split()) == 2]
        record = await open_arbiter(url).read()
        assert reported[0] in (reached + 1, reached + 2)
        # Every reported win is in the record, with at most one unreported win after it.
        assert reported[-1] <= record.generation <= reported[-1] + 1
        reached = record.generation
    assert await open_arbiter(url).compare_and_set(record, ArbiterRecord(reached + 1, "after"))
