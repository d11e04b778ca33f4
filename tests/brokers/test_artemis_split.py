"""A voting pair of Artemis whose primary was stopped: ``haclient members`` reports that two members serve.

A bare client first checks that both do: each attaches its sender.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import bare
from tests.brokers.application import running
from tests.brokers.products.artemis import Artemis
from tests.brokers.products.artemis_config import Kind
from tests.brokers.products.group import Member
from tests.brokers.topology import Launch
from tests.cli.command import run

pytestmark = [pytest.mark.brokers, pytest.mark.timeout(600)]


async def remarks(url: str) -> list[dict[str, Any]]:
    done = await asyncio.to_thread(run, "members", "--json", "--timeout", "10", url)
    found: list[dict[str, Any]] = json.loads(done.stdout)["remarks"]
    return found


async def test_two_that_serve_are_named(tmp_path: Path) -> None:
    async with running("artemis-quorum", Artemis(Kind.QUORUM, Launch(tmp_path))) as pair:
        old, new = pair.members
        assert not await pair.group.accepts(new)
        assert "several-primaries" not in {each["kind"] for each in await remarks(pair.url)}
        old.process.pause()
        assert await pair.group.primary() is new
        old.process.resume()
        await pair.group.until(serving(pair, old, new), "two that serve")
        assert await only_at(pair, old, "to the old one")
        assert await only_at(pair, new, "to the new one")
        (several,) = [each for each in await remarks(pair.url) if each["kind"] == "several-primaries"]
        assert several["endpoints"] == [str(old.endpoint), str(new.endpoint)]
        assert "one identity" in several["text"]


async def only_at(pair: Artemis, member: Member, body: str) -> bool:
    """Return whether a message that this member accepts is stored only there."""
    account, queue = pair.group.account, pair.queue("split")
    await bare.send(member.endpoint, account, queue, body)
    stored = {
        each.process.name: [found.body for found in await bare.receive_all(each.endpoint, account, queue)]
        for each in pair.members
    }
    return stored == {each.process.name: [body] if each is member else [] for each in pair.members}


def serving(pair: Artemis, *members: Member) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        return all([await pair.group.accepts(member) for member in members])

    return check
