"""Three nodes: two have quorum, so they replace a lost or isolated node without fencing."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.pacemaker.cluster import Cluster, running
from tests.pacemaker.conftest import Measured
from tests.pacemaker.faults import fail, kill, nothing, pause
from tests.pacemaker.node import Node, wait_for

pytestmark = [pytest.mark.pacemaker, pytest.mark.soak, pytest.mark.timeout(900)]


def lose(_cluster: Cluster, primary: Node) -> None:
    primary.power_off()


def boot(cluster: Cluster, primary: Node) -> None:
    cluster.power_on(primary)


def unplug(_cluster: Cluster, primary: Node) -> None:
    primary.unplug()


def plug(cluster: Cluster, primary: Node) -> None:
    # Without quorum Pacemaker stops the node's resources.
    wait_for(lambda: not cluster.has_vip(primary), "the end of the first virtual address", 120.0)
    primary.plug()


def kill_two(cluster: Cluster, primary: Node) -> None:
    """Kill the primary and one of its backups at once. The third member has every settled message."""
    victim = next(node for node in cluster.nodes if node is not primary)
    for node in (primary, victim):
        cluster.member_signal(node, signal.SIGKILL)


def test_members_die_and_hang(tmp_path: Path, measured: Measured) -> None:
    with running(tmp_path, size=3) as cluster:
        fail(cluster, "three nodes, SIGKILL", kill, nothing, measured)
        fail(cluster, "three nodes, SIGSTOP", pause, nothing, measured)
        fail(cluster, "three nodes, two killed", kill_two, nothing, measured)


def test_the_node_of_the_primary_is_lost_and_then_its_cable_pulled(
    tmp_path: Path, measured: Measured
) -> None:
    with running(tmp_path, size=3) as cluster:
        fail(cluster, "three nodes, node loss, no fencing", lose, boot, measured)
        fail(cluster, "three nodes, link down, no fencing", unplug, plug, measured)
