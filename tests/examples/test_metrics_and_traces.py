from __future__ import annotations

import asyncio
import json
import signal

import httpx
import pytest

from broker_stub.local_cluster.supervisor import LocalCluster
from tests.examples.program import PATIENCE, Program


@pytest.mark.slow
async def test_prometheus_fetches_what_a_failover_did(pair: LocalCluster) -> None:
    async with Program("prometheus_metrics", pair.url, "0") as program, httpx.AsyncClient() as client:
        url = (await program.line(r"metrics are at (\S+)"))[1]
        await program.line("sent 2")
        await pair.kill_primary()
        number = int((await program.line(r"sent (\d+)"))[1])
        await program.line(f"sent {number + 2}")

        wanted = 'episode_duration_seconds_count{episode="reconnect"} 1.0'
        async with asyncio.timeout(PATIENCE):
            while wanted not in (text := (await client.get(url)).text):
                await program.line("sent ")
        program.signal(signal.SIGINT)
        await program.end()
    assert 'haclient_connections{state="connected"} 1.0' in text
    assert "haclient_connections_lost_total{" in text


async def test_a_message_is_processed_in_the_trace_of_its_sender(pair: LocalCluster) -> None:
    async with Program("opentelemetry_traces", pair.url) as program:
        printed = await program.end()

    decoder, spans = json.JSONDecoder(), {}
    while printed := printed.strip():
        span, end = decoder.raw_decode(printed)
        spans[span["name"]] = span
        printed = printed[end:]
    assert set(spans) >= {"checkout", "send orders", "receive orders", "process orders", "connect"}
    trace = {spans[name]["context"]["trace_id"] for name in ("checkout", "send orders", "process orders")}
    assert len(trace) == 1
    assert spans["process orders"]["parent_id"] == spans["send orders"]["context"]["span_id"]
    assert [each["name"] for each in spans["connect"]["events"]][-1] == "attempt"
