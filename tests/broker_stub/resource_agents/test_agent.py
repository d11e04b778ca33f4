"""The Pacemaker agent with real members: the steps of ``ocf-tester`` by hand, and failures."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from xml.etree import ElementTree

import pytest

from broker_stub.admission.user_file import DEFAULT_ADMIN
from broker_stub.amqp.endpoints import parse_endpoint
from broker_stub.management_client import AdminClient
from haclient import Credentials
from tests.broker_stub.clients import offered_mechanisms
from tests.broker_stub.resource_agents.nodes import AGENTS, PASSWORD, SHORT_TIMEOUT, Node

SUCCESS, GENERIC, ARGS, UNIMPLEMENTED, INSTALLED, CONFIGURED = 0, 1, 2, 3, 5, 6
NOT_RUNNING, PROMOTED, FAILED_PROMOTED = 7, 8, 9


def until(node: Node, score: str) -> None:
    """Monitor until the member has that score, as Pacemaker does for ever."""
    deadline = time.monotonic() + 60
    while True:
        assert node.agent("monitor").code in (SUCCESS, PROMOTED)
        if node.score == score:
            return
        assert time.monotonic() < deadline, f"{node.score} is not {score}: {node.log.read_text()[-2000:]}"


def wait_until(reached: Callable[[], bool], node: Node) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline, f"{node.score}: {node.log.read_text()[-2000:]}"
        time.sleep(0.05)


@pytest.mark.slow
def test_every_action_does_what_it_says_and_may_be_repeated(node: Node) -> None:
    assert node.agent("monitor").code == NOT_RUNNING
    assert node.agent("stop").code == SUCCESS
    assert node.agent("promote").code == NOT_RUNNING
    # A failed demotion would count as a second failure of the dead member.
    assert node.agent("demote").code == SUCCESS
    assert node.agent("notify").code == SUCCESS
    started = node.agent("start")
    assert started.code == SUCCESS, started.errors
    assert b"ANONYMOUS" not in offered_mechanisms(node.parameters["listen"])
    pid = node.pid
    assert node.agent("start").code == SUCCESS
    assert node.pid == pid
    assert node.agent("monitor").code == SUCCESS
    for _ in range(2):
        assert node.agent("promote").code == SUCCESS
        assert node.score == "1000"
    assert node.agent("monitor").code == PROMOTED
    for _ in range(2):
        assert node.agent("demote").code == SUCCESS
        assert node.score == "50"
    for _ in range(2):
        assert node.agent("stop").code == SUCCESS
        assert node.score == ""
    assert node.agent("monitor").code == NOT_RUNNING
    assert "stopped" in node.log.read_text()
    assert PASSWORD not in node.log.read_text()


@pytest.mark.slow
def test_the_score_follows_who_may_be_primary_through_crashes(nodes: list[Node]) -> None:
    north, south = nodes
    with ThreadPoolExecutor() as threads:
        assert [r.code for r in threads.map(lambda node: node.agent("start"), nodes)] == [SUCCESS] * 2
    # No member ever was primary: either will do.
    assert (north.score, south.score) == ("10", "10")
    assert north.agent("promote").code == SUCCESS
    until(south, "100")

    north.kill()
    assert north.agent("monitor").code == NOT_RUNNING
    assert north.score == ""
    # It looks for a primary, and is complete: Pacemaker must have a member to promote.
    until(south, "50")
    # The dead one is complete too, and must not be preferred: it may die again.
    assert north.agent("start").code == SUCCESS
    assert north.score == "10"
    assert north.agent("stop").code == SUCCESS
    assert south.agent("promote").code == SUCCESS

    south.kill()
    assert north.agent("start").code == SUCCESS
    assert north.score == "-INFINITY"
    refused = north.agent("promote")
    assert refused.code == GENERIC
    assert re.search(r"ocf-exit-reason:.*generation 2 .*generation 1", refused.errors)
    assert north.score == "-INFINITY"
    assert south.agent("start").code == SUCCESS
    assert south.score == "10"


@pytest.mark.slow
def test_a_backup_that_becomes_ready_has_its_score_without_any_monitor(nodes: list[Node]) -> None:
    north, south = nodes
    assert [node.agent("start").code for node in nodes] == [SUCCESS] * 2
    assert north.agent("promote").code == SUCCESS
    wait_until(lambda: south.score == "100", south)
    north.kill()
    wait_until(lambda: south.score == "50", south)


@pytest.mark.slow
def test_a_notification_before_an_action_does_no_work(node: Node) -> None:
    assert node.agent("start").code == SUCCESS
    scores = node.attributes.read_text()
    assert node.agent("notify", CRM_meta_notify_type="pre").code == SUCCESS
    assert node.attributes.read_text() == scores
    assert node.agent("notify", CRM_meta_notify_type="post").code == SUCCESS
    assert node.attributes.read_text() == scores + scores.splitlines()[-1] + "\n"


@pytest.mark.slow
def test_a_demotion_that_kills_a_hung_primary_has_done_what_it_should(node: Node) -> None:
    assert node.agent("start").code == SUCCESS
    assert node.agent("promote").code == SUCCESS
    node.signal(signal.SIGSTOP)
    # No probe preceded: the demotion itself notices.
    killed = node.agent("demote", timeout=SHORT_TIMEOUT)
    assert killed.code == SUCCESS
    assert "killed" in killed.errors
    assert node.score == ""
    assert node.agent("monitor").code == NOT_RUNNING


@pytest.mark.slow
def test_a_stopped_process_is_a_failure_and_a_demotion_or_stop_ends_it(node: Node) -> None:
    assert node.agent("start").code == SUCCESS
    node.signal(signal.SIGSTOP)
    failed = node.agent("monitor", timeout=SHORT_TIMEOUT)
    assert failed.code == GENERIC
    assert "no answer" in failed.errors
    assert node.score == "-INFINITY"
    node.signal(signal.SIGCONT)
    assert node.agent("promote").code == SUCCESS
    node.signal(signal.SIGSTOP)
    assert node.agent("monitor", timeout=SHORT_TIMEOUT).code == FAILED_PROMOTED
    assert node.agent("demote", timeout=SHORT_TIMEOUT).code == SUCCESS
    assert node.agent("monitor").code == NOT_RUNNING

    assert node.agent("start").code == SUCCESS
    node.signal(signal.SIGSTOP)
    assert node.agent("stop", timeout=SHORT_TIMEOUT).code == SUCCESS
    assert node.agent("monitor").code == NOT_RUNNING


def test_a_pid_file_of_another_process_is_nobodys(node: Node) -> None:
    """After a crash of the machine the number may belong to any process, even this test."""
    node.pid_file.write_text(f"{os.getpid()}\n")
    assert node.agent("monitor").code == NOT_RUNNING
    assert node.agent("stop").code == SUCCESS
    assert not node.pid_file.exists()


def test_a_start_without_the_arbiters_folder_names_it_in_both_logs(node: Node) -> None:
    missing = f"{node.folder}/not mounted/arbiter"
    started = node.agent("start", arbiter=f"directory:{missing}")
    assert started.code == GENERIC
    for log in (started.errors, node.log.read_text()):
        assert f"the arbiter's directory {missing} does not exist: make it" in log
    assert node.agent("monitor").code == NOT_RUNNING


# The kernel's answers while a process replaces itself: no command line, twice.
_TR_AMID_EXEC = """#!/bin/sh
line=$(/usr/bin/tr "$@")
case $line in
*"broker_stub serve"*)
    echo read >>"$0.reads"
    [ "$(wc -l <"$0.reads")" -gt 2 ] || exit 0
    ;;
esac
echo "$line"
"""


@pytest.mark.slow
def test_a_process_without_a_command_line_for_a_moment_has_not_ended(node: Node) -> None:
    """``execve`` removes the old command line before it sets the new one."""
    stub = node.bin / "tr"
    stub.write_text(_TR_AMID_EXEC)
    stub.chmod(0o755)
    started = node.agent("start")
    assert started.code == SUCCESS, started.errors
    assert len((node.bin / "tr.reads").read_text().splitlines()) > 2


def test_a_start_that_fails_tells_why(node: Node) -> None:
    failed = node.agent("start", options="--no-such-option")
    assert failed.code == GENERIC
    assert "No such option" in failed.errors


def test_a_word_of_the_options_is_no_pattern_for_names_of_files(node: Node) -> None:
    """The folder has files; the option gets the administrator's text."""
    pattern = f"{node.folder}/*"
    failed = node.agent("start", options=f"--log-level {pattern}")
    assert failed.code == GENERIC
    assert pattern in failed.errors


def test_nothing_starts_where_no_address_is_given_and_what_runs_is_stopped(node: Node) -> None:
    """An earlier version then listened on every network."""
    assert node.agent("start", listen="").code == CONFIGURED
    assert node.agent("monitor", listen="").code == NOT_RUNNING
    command = ["-m", "broker_stub", "serve", "--listen", "0.0.0.0:5672", "--name", "former"]
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()", *command]) as former:
        node.pid_file.write_text(f"{former.pid}\n")
        assert node.agent("stop", listen="").code == SUCCESS
        assert former.wait(10) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("parameters", "code", "reason"),
    [
        ({}, SUCCESS, ""),
        ({"members": ""}, CONFIGURED, "members is not set"),
        ({"members": "a:5672,b"}, CONFIGURED, "'b' is not host:port"),
        ({"listen": ""}, CONFIGURED, "listen is not set"),
        ({"listen": "somewhere"}, CONFIGURED, "'somewhere' is not host:port"),
        ({"arbiter": ""}, CONFIGURED, "arbiter"),
        ({"arbiter": "memory:"}, CONFIGURED, "arbiter"),
        ({"arbiter": "directory:relative"}, CONFIGURED, "arbiter"),
        ({"store": "memory"}, CONFIGURED, "store"),
        ({"users": ""}, CONFIGURED, "users is not set"),
        ({"password_file": "/nonexistent"}, ARGS, "/nonexistent is not there"),
        ({"python": "/nonexistent"}, INSTALLED, "/nonexistent has no broker_stub"),
    ],
)
def test_parameters_are_checked(node: Node, parameters: dict[str, str], code: int, reason: str) -> None:
    result = node.agent("validate-all", **parameters)
    assert result.code == code, result.errors
    assert reason in result.errors


def test_an_unknown_action_is_not_implemented(node: Node) -> None:
    assert node.agent("migrate_to").code == UNIMPLEMENTED


def test_the_metadata_names_every_parameter_and_every_action(node: Node) -> None:
    described = node.agent("meta-data")
    assert described.code == SUCCESS
    agent = ElementTree.fromstring(described.output)  # noqa: S314 - our own
    script = (AGENTS / "broker-stub").read_text()
    used = set(re.findall(r"OCF_RESKEY_([a-z]\w*)", script)) - {"crm_feature_set"}
    assert {parameter.get("name") for parameter in agent.iter("parameter")} == used
    actions = {action.get("name") for action in agent.iter("action")}
    assert actions == {
        *("start", "stop", "monitor", "promote", "demote", "notify", "validate-all", "meta-data")
    }
    roles = {a.get("role"): a.get("interval") for a in agent.iter("action") if a.get("name") == "monitor"}
    assert set(roles) == {"Promoted", "Unpromoted"}
    assert len(set(roles.values())) == 2, "Pacemaker takes monitors of one interval for the same"


# -- two networks -----------------------------------------------------------------------------------


def redirects_to(node: Node) -> str:
    """Return the target of a backup's redirects; empty while it follows no primary."""
    address = parse_endpoint(node.parameters["listen"])

    async def ask() -> str:
        admin = await AdminClient.connect(
            address, Credentials(user=DEFAULT_ADMIN, password=PASSWORD), timeout=60
        )
        try:
            return str((await admin.status()).facts["primary"] or "")
        finally:
            admin.abort()

    return asyncio.run(ask())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("members", "advertise", "expected"),
    [
        ("north.example:1,south.example:2", "", "north.example:1"),
        ("south:2,north:1", "", "north:1"),
        ("192.0.2.1:1,192.0.2.2:2", "", None),
        ("north.east.example:1,north.west.example:1", "", None),
        ("north.example:1,south.example:2", "192.0.2.10:5672", "192.0.2.10:5672"),
        ("a.example:1,b.example:2", "%n.clients.example:3", "north.clients.example:3"),
    ],
)
def test_with_a_network_of_their_own_backups_redirect_clients_to_where_these_reach_the_primary(
    nodes: list[Node], members: str, advertise: str, expected: str | None
) -> None:
    north, south = nodes
    own_network = "amqp://" + north.parameters["members"]
    for node in nodes:
        node.parameters |= {"members": members, "advertise": advertise, "broker_url": own_network}
        stub = node.bin / "crm_node"
        stub.write_text(f"#!/bin/sh\necho {node.parameters['name']}\n")
        stub.chmod(0o755)
    started = north.agent("start")
    assert started.code == SUCCESS, started.errors
    assert ("backups redirect clients to broker_url" in started.errors) == (expected is None)
    assert south.agent("start").code == SUCCESS
    assert north.agent("promote").code == SUCCESS
    wait_until(lambda: redirects_to(south) != "", south)
    assert redirects_to(south) == (expected or north.parameters["listen"])


def test_an_address_to_advertise_is_checked(node: Node) -> None:
    checked = node.agent("validate-all", advertise="nowhere")
    assert checked.code == CONFIGURED
    assert "'nowhere' is not host:port" in checked.errors
