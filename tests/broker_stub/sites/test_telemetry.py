"""A serving member records the lag of its site."""

from __future__ import annotations

from pathlib import Path

import proton

from broker_stub.queueing.exchanges import ExchangeType
from broker_stub.queueing.site_state import SiteMode
from broker_stub.sites.source_config import FROM
from haclient import aio
from haclient.telemetry import TelemetrySettings
from tests.broker_stub.clients import running
from tests.telemetry.lines import lines, until


async def test_source_and_link_say_where_they_are(tmp_path: Path) -> None:
    settings = TelemetrySettings(tmp_path)
    async with running(telemetry=settings) as source, running(telemetry=settings, cluster="east") as other:
        source.addresses.declare("orders", site=SiteMode.ALL)
        options = {FROM: str(source.address)}
        other.addresses.declare_exchange("from-a", ExchangeType.REPLICATION, options=options)
        async with aio.connect(str(source.address), telemetry="") as connection:
            sender = await connection.create_sender("orders")
            for number in range(3):
                await sender.send(proton.Message(body=number))

        def reported() -> set[tuple[object, ...]]:
            data = [line["data"] for line in lines(tmp_path, "site")]
            names = ("cluster", "site.link", "site.sequence", "site.lag.events", "state")
            return {tuple(each.get(f"haclient.{name}") for name in names) for each in data}

        await until(lambda: ("haclient", None, 3, 0, None) in reported())
        await until(lambda: ("east", "from-a", 3, None, "connected") in reported())
