"""A member is promoted by force while the old primary lives: the old primary notices by itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.broker_stub.replication.cluster import Cluster, Member, bodies, send


@pytest.mark.slow
async def test_the_old_primary_steps_down_and_follows_the_forced_one(tmp_path: Path) -> None:
    """The old primary has no replica whose loss would make it ask the arbiter, and no peer informs it."""
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await b.stop()
        await a.until(lambda status: status.generation == 2)
        forced = Member("b", b.address, tmp_path, (*b.arguments, "--force-primary"))
        await forced.start()
        try:
            assert (await forced.until("primary")).generation == 3
            await a.said("steps down: another member was made primary: the arbiter is at generation 3")
            await a.until("ready")
            assert (await forced.status()).role == "primary"
            await send(forced, "q", "x")
            assert await bodies(forced, "q") == ["x"]
        finally:
            await forced.kill()


@pytest.mark.slow
async def test_a_primary_that_is_asked_reads_the_arbiter_at_once(tmp_path: Path) -> None:
    """The answer is the new role. The regular interval is longer than this test."""
    async with Cluster(tmp_path, arguments=("--arbiter-interval", "3600")) as cluster:
        a, b = await cluster.pair()
        await b.stop()
        await a.until(lambda status: status.generation == 2)
        assert (await a.call("CHECK-ARBITER"))["role"] == "primary"
        forced = Member("b", b.address, tmp_path, (*b.arguments, "--force-primary"))
        await forced.start()
        try:
            await forced.until("primary")
            assert (await a.status()).role == "primary"
            assert (await a.call("CHECK-ARBITER"))["role"] != "primary"
            await a.until("ready")
        finally:
            await forced.kill()


@pytest.mark.slow
async def test_a_primary_goes_on_while_its_arbiter_is_away_and_while_it_hangs(tmp_path: Path) -> None:
    """A FIFO without a writer in place of the record hangs every reader, like a lost network share."""
    async with Cluster(tmp_path, arguments=("--arbiter-interval", "0.05")) as cluster:
        a, _ = await cluster.pair()
        arbiter = tmp_path / "arbiter"
        arbiter.rename(tmp_path / "away")
        await a.said("the arbiter cannot be read, this primary goes on")
        await send(a, "q", 1)
        (tmp_path / "away").rename(arbiter)
        await a.said("the arbiter can be read again")
        record = (arbiter / "record").read_bytes()
        (arbiter / "record").unlink()
        os.mkfifo(arbiter / "record")
        await send(a, "q", 2)
        await a.said("did not answer within")
        await send(a, "q", 3)
        assert (await a.status()).role == "primary"
        (arbiter / "record").unlink()
        (arbiter / "record").write_bytes(record)
        assert (await a.status()).generation == 1
        assert await bodies(a, "q") == [1, 2, 3]
