from __future__ import annotations

import signal

import pytest

from broker_stub.local_cluster.supervisor import LocalCluster
from tests.examples.program import Program


@pytest.mark.slow
async def test_lost_replies_are_asked_for_again_at_the_new_address(pair: LocalCluster) -> None:
    async with Program("request_response", pair.url) as program:
        old = await program.line(r"reply to (temporary/\S+)")
        await program.line("the square of 3 is 9")

        # A primary that is paused and then killed has lost every request of that time.
        pair.primary.process.signal(signal.SIGSTOP)
        number = int((await program.line(r"no reply for (\d+) within"))[1])
        await pair.kill_primary()
        await program.line(rf"client: the square of {number} is {number**2}$")
        new = await program.line(r"reply to (temporary/\S+)")
        assert new[1] != old[1]
        await program.line(f"the square of {number + 3} is")

        program.signal(signal.SIGINT)
        printed = await program.end()
    answers = [line for line in printed.splitlines() if "the square of" in line]
    assert answers == [f"client: the square of {n} is {n**2}" for n in range(1, len(answers) + 1)]
