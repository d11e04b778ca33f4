"""The verdict of the clusters' own tools on the agent, if they are installed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker_stub.resource_agents.nodes import AGENTS, cluster

pytestmark = pytest.mark.slow

SCRIPTS = [str(AGENTS / name) for name in ("broker-stub", "broker-stub-backup", "broker-stub-primary")]
OCF_TESTER = shutil.which("ocf-tester", path="/usr/sbin:/usr/bin:/sbin:/bin")
# Without xmllint ocf-tester takes the metadata for wrong.
MISSING = OCF_TESTER is None or shutil.which("xmllint") is None


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A world-readable folder: ``ocf-tester`` runs the agent also as an unprivileged user."""
    with tempfile.TemporaryDirectory(prefix="broker-stub-agent-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.skipif(MISSING, reason="ocf-tester and xmllint (resource-agents, libxml2-utils) are missing")
def test_ocf_tester_finds_nothing(open_folder: Path) -> None:
    assert OCF_TESTER is not None
    agent = shutil.copy(AGENTS / "broker-stub", open_folder)
    with cluster(open_folder, "north") as [node]:
        given = [word for name, value in node.parameters.items() for word in ("-o", f"{name}={value}")]
        done = subprocess.run(
            [OCF_TESTER, "-n", "broker", *given, agent],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert "passed all tests" in done.stdout, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing() -> None:
    done = subprocess.run(["shellcheck", *SCRIPTS], capture_output=True, text=True, check=False)
    assert done.stdout == ""
