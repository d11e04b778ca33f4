"""Anomalies of another site's events are reported: at once, then once a second, and never in a flood."""

from __future__ import annotations

import logging
from pathlib import Path

import proton
import pytest

from broker_stub.amqp.message_format import MalformedMessageError
from broker_stub.queueing.exchanges import Exchange, ExchangeType, Route
from broker_stub.sites.anomalies import Anomalies, Anomaly
from haclient.telemetry import TelemetrySettings
from tests.broker_stub.clients import running
from tests.telemetry.lines import lines, until


def test_the_first_of_a_case_is_reported_at_once_and_the_others_by_the_second() -> None:
    reported: list[Anomaly] = []
    cases = Anomalies("from-a", reported.append)
    for sequence in range(1, 6):
        cases.record("gone", f"number {sequence}", sequence)
    cases.record("gaps", "another case", 7)
    assert reported == [
        Anomaly("from-a", "gone", 1, 1, "number 1"),
        Anomaly("from-a", "gaps", 1, 7, "another case"),
    ]
    cases.tick()
    assert reported[2:] == [Anomaly("from-a", "gone", 4, 5, "number 5")]
    cases.record("gone", "number 6", 6)
    assert len(reported) == 3, "the second after the last line is not over"
    cases.tick()
    cases.tick()
    assert reported[3:] == [Anomaly("from-a", "gone", 1, 6, "number 6")]
    cases.record("gone", "number 7", 7)
    assert reported[4:] == [Anomaly("from-a", "gone", 1, 7, "number 7")], (
        "after a quiet second it is the first again"
    )


def malformed(exchange: Exchange) -> None:
    with pytest.raises(MalformedMessageError):
        Route(exchange).enqueue(bytes(proton.Message(body="no event").encode()), lambda _: None, None)


async def test_anomalies_are_lines_of_the_telemetry_and_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def reported() -> list[object]:
        return [line["data"].get("haclient.site.count") for line in lines(tmp_path, "anomaly")]

    with caplog.at_level(logging.WARNING, "broker_stub.sites"):
        async with running(telemetry=TelemetrySettings(tmp_path)) as broker:
            exchange = broker.addresses.declare_exchange("from-a", ExchangeType.REPLICATION)
            for _ in range(50):
                malformed(exchange)
            await until(lambda: sum(map(int, map(str, reported()))) == 50)
    assert reported() == [1, 49]
    data = lines(tmp_path, "anomaly")[0]["data"]
    assert (data["haclient.site.link"], data["haclient.site.case"]) == ("from-a", "malformed")
    assert [record.message.partition(": ")[2][:20] for record in caplog.records] == [
        "malformed: an event ",
        "malformed (49 times)",
    ]


async def test_nothing_is_left_untold_at_the_end_of_the_member_or_the_exchange(tmp_path: Path) -> None:
    settings = TelemetrySettings(tmp_path)

    def reported() -> int:
        return len(lines(tmp_path, "anomaly"))

    async with running(telemetry=settings) as broker:
        for _ in range(2):
            exchange = broker.addresses.declare_exchange("from-a", ExchangeType.REPLICATION)
            for _ in range(3):
                malformed(exchange)
            broker.addresses.delete_exchange(exchange)
        exchange = broker.addresses.declare_exchange("from-a", ExchangeType.REPLICATION)
        for _ in range(3):
            malformed(exchange)
    await until(lambda: reported() == 6)
