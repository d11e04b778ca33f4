"""The two scripts for rgmanager, with a real member."""

from __future__ import annotations

import os
import signal

import pytest

from tests.broker_stub.clients import offered_mechanisms
from tests.broker_stub.resource_agents.nodes import AGENTS, Node, Result

RUNNING, DEAD, STOPPED, UNKNOWN = 0, 1, 3, 4


def settings(node: Node, **more: str) -> str:
    """Settings as on a real node: it listens on every address, and names derive from the node's."""
    port = node.parameters["listen"].rpartition(":")[2]
    parameters = {
        **node.parameters,
        "listen": f"0.0.0.0:{port}",
        "name": "%n",
        "store": str(node.folder / "%n"),
        "agent": str(AGENTS / "broker-stub"),
        **more,
    }
    return "".join(f"{name}='{value}'\n" for name, value in parameters.items())


@pytest.fixture
def service(node: Node) -> Node:
    (node.folder / "settings").write_text(settings(node))
    return node


def run(node: Node, service: str, action: str) -> Result:
    return node.run(
        AGENTS / f"broker-stub-{service}",
        action,
        OCF_ROOT="/nonexistent",
        BROKER_STUB_CONFIG=str(node.folder / "settings"),
        BROKER_STUB_START_WAIT="0",
    )


@pytest.mark.slow
def test_one_service_runs_the_broker_and_the_other_makes_it_primary(service: Node) -> None:
    assert run(service, "backup", "status").code == STOPPED
    assert run(service, "primary", "status").code == STOPPED
    assert run(service, "primary", "start").code == 7
    assert run(service, "primary", "stop").code == 0
    assert run(service, "backup", "start").code == 0
    assert b"ANONYMOUS" not in offered_mechanisms(service.parameters["listen"])
    assert run(service, "backup", "status").code == RUNNING
    assert (service.folder / os.uname().nodename).is_dir()
    assert run(service, "primary", "status").code == STOPPED
    assert run(service, "primary", "start").code == 0
    assert run(service, "primary", "status").code == RUNNING
    assert run(service, "primary", "stop").code == 0
    (service.folder / "settings").write_text(settings(service, timeout="3"))
    service.signal(signal.SIGSTOP)
    assert run(service, "backup", "status").code == UNKNOWN
    service.kill()
    assert run(service, "backup", "status").code == DEAD
    assert run(service, "backup", "stop").code == 0
    assert run(service, "backup", "status").code == STOPPED


def test_a_wrong_arbiter_is_a_configuration_that_does_not_start(service: Node) -> None:
    (service.folder / "settings").write_text(settings(service, arbiter="memory:"))
    result = run(service, "backup", "start")
    assert result.code == 6
    assert "arbiter" in result.errors


@pytest.mark.parametrize("script", ["backup", "primary"])
def test_another_action_is_wrong_usage(node: Node, script: str) -> None:
    assert run(node, script, "fly").code in (2, 5)


def test_the_example_of_the_settings_names_what_the_script_reads() -> None:
    script = (AGENTS / "broker-stub-backup").read_text()
    listed = script.partition("for setting in ")[2].partition("; do")[0].replace("\\", "").split()
    example = (AGENTS / "broker-stub.sysconfig").read_text()
    named = {line.lstrip("#").partition("=")[0] for line in example.splitlines() if "=" in line}
    assert named == {*listed, "agent", "timeout"}


def test_the_scripts_can_be_executed() -> None:
    for script in ("broker-stub", "broker-stub-backup", "broker-stub-primary"):
        assert os.access(AGENTS / script, os.X_OK)
