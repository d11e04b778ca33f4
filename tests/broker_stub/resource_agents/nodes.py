"""Nodes of a cluster for the agents: real members on loopback, and a stub for Pacemaker's attributes."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from broker_stub import resource_agents
from broker_stub.admission.user_file import DEFAULT_ADMIN
from broker_stub.local_cluster.member_process import free_addresses
from haclient.cluster_url.endpoint import Endpoint

AGENTS = Path(resource_agents.__file__).parent
PASSWORD = "planted-secret"
# The time-out of an action in milliseconds, as Pacemaker passes it; a busy machine needs part of it.
ACTION_TIMEOUT = 60_000
# For a member that will not answer within any time.
SHORT_TIMEOUT = 3_000

_CRM_ATTRIBUTE = """#!/bin/sh
echo "$*" >>"$(dirname "$0")/attributes"
"""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an action."""

    code: int
    output: str
    errors: str


class Node:
    """One node: the settings of its member, and the agents that use them."""

    def __init__(self, folder: Path, name: str, address: Endpoint, members: tuple[Endpoint, ...]) -> None:
        self.folder = folder / name
        self.bin = self.folder / "bin"
        self.bin.mkdir(parents=True)
        stub = self.bin / "crm_attribute"
        stub.write_text(_CRM_ATTRIBUTE)
        stub.chmod(0o755)
        self.log = self.folder / "log"
        self.pid_file = self.folder / "pid"
        self.parameters = {
            "python": sys.executable,
            "listen": address.authority,
            "name": name,
            "members": ",".join(member.authority for member in members),
            "users": str(folder / "users"),
            "password_file": str(folder / "password"),
            "arbiter": f"directory:{folder / 'arbiter'}",
            "store": str(self.folder / "store"),
            "pidfile": str(self.pid_file),
            "logfile": str(self.log),
        }

    def agent(self, action: str, *, timeout: int = ACTION_TIMEOUT, **parameters: str) -> Result:
        """Run an action of the Pacemaker agent.

        :param timeout: the cluster's limit in milliseconds.
        :param parameters: override the node's parameters; an empty one is left out.
        """
        given = {f"OCF_RESKEY_{name}": value for name, value in {**self.parameters, **parameters}.items()}
        return self.run(
            AGENTS / "broker-stub",
            action,
            **{name: value for name, value in given.items() if value},
            OCF_ROOT="/nonexistent",
            OCF_RESOURCE_INSTANCE="broker:0",
            OCF_RESKEY_crm_feature_set="3.16.2",
            OCF_RESKEY_CRM_meta_timeout=str(timeout),
            OCF_RESKEY_CRM_meta_interval="10000",
        )

    def run(self, script: Path, *arguments: str, **environment: str) -> Result:
        """Run a script with only the given environment."""
        path = f"{self.bin}:/usr/sbin:/usr/bin:/sbin:/bin"
        done = subprocess.run(
            [str(script), *arguments],
            env={"PATH": path, **environment},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    @property
    def score(self) -> str:
        """Return the last promotion score; empty if it was deleted."""
        last = self.attributes.read_text().splitlines()[-1].split() if self.attributes.exists() else [""]
        assert last[0] == "--promotion", last
        return "" if last[1] == "--delete" else last[-1]

    @property
    def attributes(self) -> Path:
        """Return the arguments of ``crm_attribute``, a line for each call."""
        return self.bin / "attributes"

    @property
    def pid(self) -> int:
        return int(self.pid_file.read_text())

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended."""
        process = os.pidfd_open(self.pid)
        try:
            self.signal(signal.SIGKILL)
            assert select.select([process], [], [], 30)[0], "it did not end"
        finally:
            os.close(process)

    def clean_up(self) -> None:
        """End every process of the node."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            self.signal(signal.SIGKILL)


@contextmanager
def cluster(folder: Path, *names: str) -> Iterator[list[Node]]:
    """Nodes with a common arbiter; no member runs yet."""
    (folder / "users").write_text(f"{DEFAULT_ADMIN}:{PASSWORD}\n")
    (folder / "password").write_text(PASSWORD)
    (folder / "arbiter").mkdir()
    addresses = free_addresses((Endpoint("127.0.0.1", 0),) * len(names))
    nodes = [Node(folder, name, address, addresses) for name, address in zip(names, addresses, strict=True)]
    try:
        yield nodes
    finally:
        for node in nodes:
            node.clean_up()
