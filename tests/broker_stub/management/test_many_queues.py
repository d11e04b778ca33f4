"""Thousands of queues, which any client may declare: status, probe and lists answer, and no member is
killed.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click.testing
import pytest

from broker_stub import management_client
from broker_stub.admission.user_file import DEFAULT_ADMIN
from broker_stub.amqp.node_names import BINDING_TYPE, EXCHANGE_TYPE, QUEUE_TYPE
from broker_stub.local_cluster.state import LocalClusterEvent, LocalClusterOptions
from broker_stub.local_cluster.supervisor import LocalCluster
from broker_stub.management.request import MAX_PAGE
from broker_stub.management_client import AdminClient, MemberRefusedError
from broker_stub.queueing.options import MAX_NAME
from broker_stub.resource_agents import probe
from haclient import Credentials
from haclient.cluster_url.endpoint import Endpoint
from tests.broker_stub.clients import Client, member
from tests.broker_stub.commands import run
from tests.broker_stub.resource_agents.nodes import PASSWORD

pytestmark = pytest.mark.slow  # thousands of queues

MANY = 3200
ADMIN = Credentials(user=DEFAULT_ADMIN, password=PASSWORD)
_LINKS = 200


class Declarer(Client):
    """Attaches to new queues, many at a time, as any client may."""

    async def declare(self, *names: str) -> None:
        assert self.engine is not None
        await self.begun.wait()
        for begin in range(0, len(names), _LINKS):
            links = []
            for name in names[begin : begin + _LINKS]:
                link = self.engine.sender(self.session, name[-200:], self)  # type: ignore[arg-type]
                link.endpoint.target.address = name
                self.engine.attach(link)
                links.append(link)
            for _ in links:
                kind, _link, condition = await self.links.get()
                assert kind == "opened", condition
            for link in links:
                link.close()
            for _ in links:
                kind, _link, condition = await self.links.get()
                assert (kind, condition) == ("closed", None)


async def declare(address: Endpoint, *names: str) -> None:
    client = Declarer()
    await client.connect(address)
    await client.declare(*names)
    await client.close()


def names(count: int, prefix: str = "q") -> list[str]:
    return [f"{prefix}{number:05}" for number in range(count)]


@pytest.fixture
def users(tmp_path: Path) -> Path:
    (tmp_path / "users").write_text(f"cluster-admin:{PASSWORD}\n")
    (tmp_path / "password").write_text(PASSWORD)
    return tmp_path / "users"


async def test_status_probe_and_lists_answer_with_thousands_of_queues(users: Path, tmp_path: Path) -> None:
    wanted = names(MANY)
    password = ("--password-file", str(tmp_path / "password"))
    async with member(tmp_path, "--users", str(users), "--role", "primary") as address:
        before = await _size_of_status(address)
        await declare(address, *wanted)
        assert await _size_of_status(address) <= before + 20
        shown = await run("status", address.authority, "--json", *password)
        [facts] = json.loads(shown.stdout)
        assert (shown.exit_code, facts["queue_count"] >= MANY) == (0, True)
        listed = await run("queue", "list", address.authority, "--json", *password)
        assert [queue["name"] for queue in json.loads(listed.stdout)] == wanted
        given = (address.authority, "--arbiter", f"directory:{tmp_path}", *password)
        probed = await asyncio.to_thread(click.testing.CliRunner().invoke, probe.main, given)
        assert (probed.exit_code, probed.output) == (0, "primary 1000\n")


async def _size_of_status(address: Endpoint) -> int:
    async with await AdminClient.connect(address, ADMIN) as admin:
        return len(json.dumps((await admin.status()).facts))


async def test_the_supervisor_kills_no_member_for_its_many_queues(tmp_path: Path) -> None:
    """The supervisor has probed both several times after the last queue."""
    unexpected: list[LocalClusterEvent] = []

    def note(event: LocalClusterEvent) -> None:
        if event.kind in {"silent", "fenced", "died", "failed"}:
            unexpected.append(event)

    options = LocalClusterOptions(memory=True, probe_interval=0.05)
    async with LocalCluster(options, on_event=note) as pair:
        pids = [each.pid for each in pair.members]
        assert pair.primary is not None
        await declare(pair.primary.address, *names(MANY))
        for _ in range(4):
            await _probed(pair, 0)
        await _probed(pair, MANY)
        assert [each.pid for each in pair.members] == pids
    assert unexpected == []


async def _probed(pair: LocalCluster, queues: int) -> None:
    """Wait until each member has answered another probe, and has that many queues."""
    for each in pair.members:
        before = each.status
        async with asyncio.timeout(60):
            while each.status is before or each.status is None or each.status.facts["queue_count"] < queues:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_a_page_has_a_bound_whatever_is_asked_for(users: Path, tmp_path: Path) -> None:
    count = MAX_PAGE + 20
    async with (
        member(tmp_path, "--users", str(users), "--role", "primary") as address,
        await AdminClient.connect(address, ADMIN, timeout=30) as admin,
    ):
        await declare(address, *names(count))
        for asked in ({}, {"count": 2**31 - 1}):
            page = await admin.call("QUERY", kind=QUEUE_TYPE, **asked)
            assert len(page["results"]) == MAX_PAGE
        [first, *_] = (await admin.call("QUERY", kind=QUEUE_TYPE, offset=MAX_PAGE, count=3))["results"]
        assert (await admin.call("QUERY", kind=QUEUE_TYPE, offset=10 * count))["results"] == []
        assert first in (await admin.call("QUERY", kind=QUEUE_TYPE, offset=MAX_PAGE - 1))["results"]
        widest = await admin.call("QUERY", kind=QUEUE_TYPE, attributeNames=["name"] * 100)
        assert len(widest["results"]) == MAX_PAGE
        with pytest.raises(MemberRefusedError, match="more than 100"):
            await admin.call("QUERY", kind=QUEUE_TYPE, attributeNames=["name"] * 101)


async def test_a_page_of_the_longest_names_arrives(users: Path, tmp_path: Path) -> None:
    """The page is larger than a frame; bindings name three things each."""
    longest = ["\N{GRINNING FACE}" * (MAX_NAME - 3) + f"{number:03}" for number in range(MAX_PAGE + 1)]
    async with (
        member(tmp_path, "--users", str(users), "--role", "primary") as address,
        await AdminClient.connect(address, ADMIN, timeout=30) as admin,
    ):
        await admin.create(EXCHANGE_TYPE, longest[0][::-1], type="fanout")
        await declare(address, *longest)
        rows = [row["name"] for row in await admin.query(QUEUE_TYPE) if not row["temporary"]]
        assert rows == longest
        for name in longest[:3]:
            await admin.create(BINDING_TYPE, "", exchange=longest[0][::-1], queue=name, key=name)
        assert [row["queue"] for row in await admin.query(BINDING_TYPE)] == longest[:3]


class Pages(AdminClient):
    """A source of these rows; some are deleted and added between two pages."""

    def __init__(self, rows: list[str], changes: dict[int, tuple[list[str], list[str]]]) -> None:
        super().__init__(Endpoint("127.0.0.1", 1), 1.0)
        self.rows, self.changes, self.asked = rows, changes, 0

    async def call(self, operation: str, **arguments: Any) -> Any:  # type: ignore[override]
        gone, new = self.changes.get(self.asked, ([], []))
        self.rows = [row for row in self.rows if row not in gone] + new
        self.asked += 1
        first = arguments["offset"]
        results = [[row] for row in self.rows[first : first + min(arguments["count"], MAX_PAGE)]]
        return {"attributeNames": ["name"], "results": results}


@pytest.mark.parametrize("count", [0, 1, 2, MAX_PAGE - 1, MAX_PAGE, MAX_PAGE + 1, 3 * MAX_PAGE])
async def test_a_list_of_any_length_is_whole(count: int) -> None:
    assert [row["name"] for row in await Pages(names(count), {}).query(QUEUE_TYPE)] == names(count)


@pytest.mark.parametrize("when", range(1, 8))
@pytest.mark.parametrize("gone", [1, 30, MAX_PAGE - 1, MAX_PAGE, 2 * MAX_PAGE + 7], ids=str)
async def test_a_list_misses_nothing_when_others_are_deleted_meanwhile(when: int, gone: int) -> None:
    before = names(4 * MAX_PAGE)
    deleted, new = before[:gone], names(3, "new")
    listed = [row["name"] for row in await Pages(before, {when: (deleted, new)}).query(QUEUE_TYPE)]
    assert len(set(listed)) == len(listed)
    assert set(before) - set(deleted) <= set(listed) <= {*before, *new}


async def test_a_list_that_never_stands_still_is_given_up() -> None:
    class Restless(Pages):
        async def call(self, operation: str, **arguments: Any) -> Any:  # type: ignore[override]
            self.rows = names(2 * MAX_PAGE, f"{self.asked}-")
            return await super().call(operation, **arguments)

    with pytest.raises(MemberRefusedError, match="changes faster"):
        await Restless([], {}).query(QUEUE_TYPE)


async def test_a_list_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(management_client, "_MOST_ROWS", 3 * MAX_PAGE)

    class Endless(Pages):
        async def call(self, operation: str, **arguments: Any) -> Any:  # type: ignore[override]
            assert self.asked < 10
            self.rows = names(arguments["offset"] + MAX_PAGE)
            return await super().call(operation, **arguments)

    with pytest.raises(MemberRefusedError, match="more than 1,500 rows of"):
        await Endless([], {}).query(QUEUE_TYPE)
