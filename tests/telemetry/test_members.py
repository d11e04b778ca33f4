"""The server's side: lines that members write."""

from __future__ import annotations

import asyncio
from pathlib import Path

import proton
import pytest

from broker_stub.election.roles import Membership, Role
from broker_stub.local_cluster.supervisor import LocalCluster, LocalClusterOptions
from broker_stub.telemetry.writer import MemberTelemetry
from haclient import aio
from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.settings import CLIENT_ID
from haclient.telemetry import TelemetrySettings, flush
from haclient.telemetry.schema import Kind
from tests.broker_stub.clients import Client
from tests.members import Members
from tests.telemetry.lines import lines, until, words
from tests.telemetry.test_recorder import check_form


async def test_members_say_whom_they_let_in_refused_and_what_they_became(
    members: Members, tmp_path: Path
) -> None:
    folder = tmp_path / "telemetry"
    primary, passive = members.pair(telemetry=folder)
    async with aio.connect(f"amqp://{passive.address},{primary.address}", client_id="me"):
        pass
    await until(lambda: "admitted" in words(lines(folder)))
    await asyncio.to_thread(primary.kill)
    await asyncio.to_thread(passive.promote)
    await asyncio.to_thread(passive.stop)
    found = lines(folder)
    check_form(found)
    by_member = {name: [line for line in found if line["subject"] == name] for name in ("primary", "passive")}
    assert words(by_member["primary"]) == ["role", "admitted"]
    assert words(by_member["passive"]) == ["role", "refused", "role"]
    refused = by_member["passive"][1]["data"]
    assert refused["messaging.client.id"] == "me"
    assert (refused["error.type"], refused["haclient.close.condition"]) == (
        "redirected",
        "amqp:connection:redirect",
    )
    assert [line["data"]["haclient.member.role"] for line in by_member["passive"]] == [
        "passive",
        "passive",
        "primary",
    ]
    assert [line["data"]["haclient.generation"] for line in by_member["passive"]] == [1, 1, 2]
    for line in by_member["passive"]:
        assert line["source"].startswith("/broker_stub/")
        data = line["data"]
        assert f"{data['server.address']}:{data['server.port']}" == passive.address
        assert (data["haclient.cluster"], data["haclient.member.name"]) == ("haclient", "passive")


async def test_members_report_the_client_whichever_connection_it_is(members: Members, tmp_path: Path) -> None:
    """The container ids of the connections differ; the lines of client and members have one id."""
    folder = tmp_path / "telemetry"
    primary, _ = members.pair(telemetry=folder)
    async with aio.ConnectionFactory(f"amqp://{primary.address}", telemetry=folder) as factory:
        connections = [await factory.connect() for _ in range(2)]
        client = factory.client_id
        await asyncio.gather(*(each.close() for each in connections))
    await until(lambda: words(lines(folder)).count("admitted") == 2)
    flush()
    admitted = [line["data"]["messaging.client.id"] for line in lines(folder, "admitted")]
    assert admitted == [client, client]
    ids = {line["data"]["messaging.client.id"] for line in lines(folder) if ".connection." in line["type"]}
    assert ids == {client}


@pytest.mark.parametrize("named", [7, "", None, ["other"], proton.symbol("x" * 40_000)])
async def test_a_client_id_that_is_none_is_the_container_id(
    named: object, members: Members, tmp_path: Path
) -> None:
    folder = tmp_path / "telemetry"
    primary, _ = members.pair(telemetry=folder)
    host, _, port = primary.address.rpartition(":")
    properties = {CLIENT_ID: named}
    client = await Client().connect(Endpoint(host, int(port)), container_id="mine", properties=properties)
    await until(lambda: "admitted" in words(lines(folder)))
    assert client.engine is not None
    client.engine.abort()
    (reported,) = (line["data"]["messaging.client.id"] for line in lines(folder, "admitted"))
    assert reported == "mine" or (isinstance(named, str) and set(reported) <= {"x", "…", "."})
    assert len(reported) < 1000


async def test_a_pair_hands_it_to_its_members_and_their_own_links_are_no_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "telemetry"
    monkeypatch.setenv("HACLIENT_TELEMETRY", str(folder))
    options = LocalClusterOptions(memory=True, serve_arguments=("--telemetry", str(folder)))
    async with LocalCluster(options) as pair:
        async with aio.connect(pair.url, client_id="me"):
            pass
        await until(
            lambda: "ready" in {line["data"]["haclient.member.role"] for line in lines(folder, "role")}
        )
    flush()
    found = lines(folder)
    check_form(found)
    clients = {line["data"]["messaging.client.id"] for line in found if ".connection." in line["type"]}
    assert clients == {"me"}
    roles = [line["data"]["haclient.member.role"] for line in lines(folder, "role")]
    assert "primary" in roles
    # The backup was admitted; the supervisor's probes are not included.
    assert len({line["data"]["messaging.client.id"] for line in lines(folder, "admitted")}) == 2


def test_a_refusal_records_its_retry_after(tmp_path: Path) -> None:
    log = MemberTelemetry(TelemetrySettings(tmp_path), cluster="c", name="m")
    log.record(Kind.MEMBER_ROLE, Membership(Role.PASSIVE))
    log.listens(Endpoint("127.0.0.1", 5672))
    condition = proton.Condition("amqp:connection:forced", "later", {proton.symbol("retry-after"): 1500})
    leading = Membership(Role.PRIMARY, 2**64)
    log.record(Kind.MEMBER_REFUSED, leading, client_id="x" * 1000, condition=condition)
    flush()
    (line,) = lines(tmp_path)
    data = line["data"]
    assert (data["haclient.retry_after"], data["error.type"]) == (1.5, "closed")
    assert len(data["messaging.client.id"]) == 300
    assert "haclient.generation" not in data
