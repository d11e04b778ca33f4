from __future__ import annotations

import signal

from broker_stub.local_cluster.supervisor import LocalCluster
from tests.examples.program import Program


async def test_both_connections_report_their_events_and_numbers_flow_again(pair: LocalCluster) -> None:
    async with Program("plain_asyncio_app", pair.url) as program:
        await program.line("received 3")
        await pair.kill_primary()
        back = {(await program.line(r"(producer|consumer): back at amqp://"))[1] for _ in range(2)}
        assert back == {"producer", "consumer"}
        last = int((await program.line(r"sent (\d+): accepted"))[1])
        await program.line(f"received {last + 3}")

        program.signal(signal.SIGINT)
        printed = await program.end()
    for name in ("producer", "consumer"):
        assert f"{name}: lost amqp://" in printed
    sent = [line for line in printed.splitlines() if line.startswith("sent ")]
    if sent[-1].endswith("the connection is closed"):  # the message was in transit when Ctrl-C arrived
        sent.pop()
    assert sent == [f"sent {number}: accepted" for number in range(1, len(sent) + 1)]
