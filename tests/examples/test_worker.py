from __future__ import annotations

import signal
import sys

import pytest

from broker_stub.local_cluster.supervisor import LocalCluster
from haclient import Message, aio
from tests.examples.program import EXAMPLES, Program


def worker_of(pair: LocalCluster) -> Program:
    return Program.of(sys.executable, EXAMPLES / "worker.py", HACLIENT_URL=pair.url)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_it_after_the_job_in_hand(number: signal.Signals, pair: LocalCluster) -> None:
    async with (
        aio.connect(pair.url) as connection,
        await connection.create_sender("jobs") as jobs,
        worker_of(pair) as worker,
    ):
        await jobs.send(Message(body=1))
        await jobs.send(Message(body=2))
        await worker.line("working for 1 s")
        worker.signal(number)
        printed = await worker.end()

        assert printed.endswith("done\nstopped\n")
        assert "working for 2 s" not in printed
        # The message went back to the queue unchanged.
        receiver = await connection.create_receiver("jobs")
        assert (await receiver.receive(timeout=10)).message.body == 2


@pytest.mark.slow
async def test_an_idle_worker_stops_at_once(pair: LocalCluster) -> None:
    async with worker_of(pair) as worker:
        await worker.line("waiting for jobs")
        worker.signal(signal.SIGTERM)
        await worker.line("stopped")
        await worker.end()


async def test_what_is_no_job_is_rejected(pair: LocalCluster) -> None:
    async with worker_of(pair) as worker, aio.connect(pair.url) as connection:
        jobs = await connection.create_sender("jobs")
        await jobs.send(Message(body="sweep the floor"))
        await worker.line("rejected 'sweep the floor'")
        await jobs.send(Message(body=0))
        await worker.line("done$")


@pytest.mark.slow
async def test_a_job_whose_connection_died_is_not_acknowledged_and_the_next_one_is_done(
    pair: LocalCluster,
) -> None:
    async with worker_of(pair) as worker, aio.connect(pair.url) as connection:
        jobs = await connection.create_sender("jobs")
        await jobs.send(Message(body=2))
        await worker.line("working for 2 s")
        await pair.kill_primary()
        await worker.line("done, but the connection was lost meanwhile")

        await jobs.send(Message(body=0))
        await worker.line("working for 0 s")
        await worker.line("done$")
