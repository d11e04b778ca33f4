"""Short real storms: all clients are connected again, none gives up, and no message is lost."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.storm import processors
from benchmarks.storm.__main__ import storm
from benchmarks.storm.environment import LocalPair
from benchmarks.storm.fleet import Fleet, FleetError, FleetPlan
from benchmarks.storm.run import Outcome, Plan, run
from broker_stub.local_cluster.supervisor import LocalCluster, LocalClusterOptions
from haclient import aio
from haclient.core.connection import State

pytestmark = pytest.mark.slow

SHORT = {"outage": 1.0, "deadline": 90.0}
RHEA = Path(__file__).resolve().parents[3] / "benchmarks" / "node" / "node_modules"


class Silent:
    """A progress display without a screen."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    def phase(self, text: str, total: int) -> None:
        self.phases.append(text)

    def done(self, count: int) -> None:
        """Ignore the count."""


def check(outcome: Outcome, connections: int) -> None:
    figures = outcome.figures
    assert (figures.clients, figures.back, figures.gave_up) == (connections, connections, 0)
    assert figures.settled == connections * 2
    assert (figures.lost, outcome.given_up) == (0, ())


@pytest.mark.parametrize("standby", ["none", "outage", "warm"])
async def test_all_clients_come_back_and_no_message_is_lost(standby: str) -> None:
    outcome = await run(Plan(connections=150, standby=standby, accept_rate="200", **SHORT), Silent())
    check(outcome, 150)
    assert outcome.figures.accept_rate == 200
    assert outcome.figures.memory > 0
    if standby == "warm":
        assert outcome.figures.attempts_after == 0


async def test_clients_of_proton_go_through_the_same_storm() -> None:
    outcome = await run(Plan(kind="proton", connections=20, **SHORT), Silent())
    check(outcome, 20)


@pytest.mark.skipif(
    shutil.which("node") is None or not (RHEA / "rhea").is_dir(),
    reason="needs node, and rhea (npm ci in benchmarks/node)",
)
async def test_clients_of_rhea_go_through_the_same_storm() -> None:
    outcome = await run(Plan(kind="rhea", connections=20, node_modules=RHEA, **SHORT), Silent())
    check(outcome, 20)


async def test_newcomers_at_a_live_primary_leave_those_that_are_in_connected() -> None:
    outcome = await run(Plan(connections=50, established=5, apart=True, **SHORT), Silent())
    check(outcome, 50)
    assert outcome.flood is not None
    assert outcome.flood.came_in == 50
    assert outcome.flood.messages_before > 0
    assert outcome.flood.waited_before > 0
    if len(processors.available()) < 2:
        return
    assert outcome.apart is not None
    assert outcome.apart.came_in == 50
    assert (outcome.flood.apart, outcome.apart.apart) == (False, True)


async def test_a_cluster_that_runs_already_is_killed_by_its_own_command() -> None:
    async with LocalCluster(LocalClusterOptions(restart=False)) as pair:
        primary = pair.primary
        assert primary is not None
        plan = Plan(connections=20, url=pair.url, kill_command=f"kill -9 {primary.pid}", **SHORT)
        check(await run(plan, Silent()), 20)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what changes is another process
            await asyncio.sleep(0.05)


async def test_those_who_are_parked_at_a_member_that_is_not_promoted_reach_the_primary(
    tmp_path: Path,
) -> None:
    stage = LocalPair(tmp_path, members=3, restart=False)
    await stage.start()
    try:
        # The manager promotes the first eligible member; these clients try the last one first.
        authorities = [member.address.authority for member in stage.pair.members]
        primary = stage.primary()
        others = [authority for authority in reversed(authorities) if authority != primary]
        url = f"amqp://{','.join([primary, *others])}?standby=outage"
        connections = [await aio.connect(url) for _ in range(10)]
        await stage.kill()
        await until(lambda: stage.parked() == len(connections))
        await stage.follow()
        promoted = stage.primary()
        assert promoted != others[0]
        await until(lambda: all(each.state is State.CONNECTED for each in connections))
        assert {f"{each.endpoint.host}:{each.endpoint.port}" for each in connections} == {promoted}
        third = next(member for member in stage.pair.members if member.address.authority == others[0])
        await until(lambda: third.status.facts["entrance"]["redirected"] >= len(connections))
        await asyncio.gather(*(each.close() for each in connections))
    finally:
        await stage.stop()


def test_the_command_prints_the_figures_as_json(tmp_path: Path) -> None:
    arguments = ["--connections", "10", "--outage", "0.5", "--deadline", "60", "--json"]
    result = CliRunner().invoke(storm, [*arguments, "--html", str(tmp_path / "storm.html")])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert (facts["back"], facts["gave_up"], facts["lost"], len(facts["arrivals"])) == (10, 0, 0, 10)
    assert "10 connections" in (tmp_path / "storm.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--url", "amqp://somewhere"], "--url and --kill go together"),
        (["--client", "proton", "--standby", "warm"], "--standby is not for proton"),
        (["--client", "java"], "is not one of"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(storm, arguments)
    assert result.exit_code == 2
    assert words in result.output


async def test_a_worker_that_cannot_run_says_why(tmp_path: Path) -> None:
    plan = FleetPlan(kind="haclient", clients=1, url="--nonsense", processes=1)
    fleet = Fleet(plan, lambda _line: None, tmp_path / "log")
    with pytest.raises(FleetError, match="error"):
        await fleet.start()


def test_proton_gets_as_many_workers_as_select_needs() -> None:
    shares = FleetPlan(kind="proton", clients=3_000, url="", processes=2).shares()
    assert sum(count for _first, count in shares) == 3_000
    assert max(count for _first, count in shares) <= 900
    assert [first for first, _count in shares] == [0, 750, 1_500, 2_250]
