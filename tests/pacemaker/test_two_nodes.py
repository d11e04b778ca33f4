"""Two nodes under counted traffic: the primary dies, hangs, is moved, or loses its node or its network."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.pacemaker.cluster import Cluster, elapsed, running
from tests.pacemaker.conftest import Measured
from tests.pacemaker.faults import (
    after_standby,
    clear_moves,
    fail,
    kill,
    move_with_crmsh,
    move_with_pcs,
    nothing,
    pause,
    stand_by,
)
from tests.pacemaker.node import Node, wait_for
from tests.pacemaker.page import blocks
from tests.pacemaker.traffic import Traffic

pytestmark = [pytest.mark.pacemaker, pytest.mark.timeout(900)]


def test_a_primary_that_dies_or_hangs_is_replaced_and_each_death_counts_once(
    tmp_path: Path, measured: Measured
) -> None:
    """The short variant."""
    with running(tmp_path, size=2) as cluster:
        first = cluster.primary()
        fail(cluster, "two nodes, SIGKILL (aim 13 s)", kill, nothing, measured)
        assert cluster.fail_counts() == {first.name: 1}
        second = cluster.primary()
        fail(cluster, "two nodes, SIGSTOP (aim 16 s)", pause, nothing, measured)
        assert cluster.fail_counts() == {first.name: 1, second.name: 1}
        cluster.manager().shell(blocks()["clean up with crmsh"])
        wait_for(lambda: cluster.fail_counts() == {}, "the end of the fail-counts")


@pytest.mark.soak
def test_the_same_node_is_not_promoted_again_however_often_its_member_dies(
    tmp_path: Path, measured: Measured
) -> None:
    with running(tmp_path, size=2, tool="pcs") as cluster:
        for number in range(6):
            fail(cluster, f"two nodes, SIGKILL {number}", kill, nothing, measured, seed=number)
            assert sum(cluster.fail_counts().values()) == 1
            cluster.manager().shell(blocks()["clean up with pcs"])
            wait_for(lambda: cluster.fail_counts() == {}, "the end of the fail-counts")
            cluster.wait_until_idle()


@pytest.mark.soak
def test_the_primary_is_moved_and_stands_by(tmp_path: Path, measured: Measured) -> None:
    with running(tmp_path, size=2) as cluster:
        fail(cluster, "two nodes, move with crmsh", move_with_crmsh, clear_moves, measured)
        fail(cluster, "two nodes, move with pcs", move_with_pcs, nothing, measured)
        fail(cluster, "two nodes, standby", stand_by, after_standby, measured)
        assert cluster.fail_counts() == {}


@pytest.mark.soak
def test_both_members_die_at_once(tmp_path: Path, measured: Measured) -> None:
    with running(tmp_path, size=2) as cluster, Traffic(cluster, 1) as traffic:
        began = time.monotonic()
        pids = {node.name: cluster.member_pid(node) for node in cluster.nodes}
        for node in cluster.nodes:
            cluster.member_signal(node, signal.SIGKILL)
        wait_for(lambda: cluster.serves_anew(pids), "a primary after the death of all", 120.0)
        promoted = elapsed(began)
        cluster.wait_until_ready(1)
        verdict = traffic.finish()
        measured(f"two nodes, both killed: promoted after {promoted} s; {len(verdict.lost)} lost")
        assert verdict.holds, verdict


@pytest.mark.soak
@pytest.mark.parametrize("fencing", [False, True], ids=["no-fencing", "fencing"])
def test_the_node_of_the_primary_is_lost(tmp_path: Path, measured: Measured, *, fencing: bool) -> None:
    def lose(_cluster: Cluster, primary: Node) -> None:
        primary.power_off()

    def boot(cluster: Cluster, primary: Node) -> None:
        if fencing:
            wait_for(lambda: primary.name in cluster.fenced, "fencing")
        cluster.power_on(primary)

    with running(tmp_path, size=2, fencing=fencing) as cluster:
        name = "two nodes, node loss, " + ("fencing" if fencing else "no fencing")
        fail(cluster, name, lose, boot, measured)


@pytest.mark.soak
def test_a_cable_is_pulled_with_fencing_and_there_is_one_address(tmp_path: Path, measured: Measured) -> None:
    """Both nodes may fence. The fenced node boots again, and the pair recovers."""
    with running(tmp_path, size=2, fencing=True) as cluster, Traffic(cluster, 1) as traffic:
        began = time.monotonic()
        primary = cluster.primary()
        primary.unplug()
        wait_for(lambda: bool(cluster.fenced), "fencing", 120.0)
        fenced = elapsed(began)
        survivor = next(node for node in cluster.nodes if node.is_on)
        survivor.plug()
        wait_for(lambda: cluster.has_vip(survivor), "the virtual address", 120.0)
        moved = elapsed(began)
        cluster.power_on(cluster.other(survivor))
        cluster.wait_until_ready(1)
        verdict = traffic.finish()
        measured(
            f"two nodes, link down, fencing: {cluster.fenced[0]} fenced after {fenced} s (primary was"
            f" {primary.name}), address after {moved} s; {len(verdict.lost)} lost"
        )
        assert verdict.holds, verdict


@pytest.mark.soak
def test_a_cable_is_pulled_without_fencing_and_the_first_primary_steps_down(
    tmp_path: Path, measured: Measured
) -> None:
    """Both nodes have the virtual address for a while, and reach the arbiter, which lets only one settle."""
    with running(tmp_path, size=2) as cluster, Traffic(cluster, 1) as traffic:
        primary = cluster.primary()
        other = cluster.other(primary)
        began = time.monotonic()
        primary.unplug()
        wait_for(lambda: cluster.has_vip(other), "a second virtual address", 120.0)
        second = elapsed(began)
        wait_for(lambda: not cluster.has_vip(primary), "the end of the first virtual address", 120.0)
        one = elapsed(began)
        primary.plug()
        cluster.wait_until_ready(1)
        whole = elapsed(began)
        verdict = traffic.finish()
        measured(
            f"two nodes, link down, no fencing: second address after {second} s, the first gone after {one} s"
            f" and plugged in; all ready after {whole} s; {len(verdict.lost)} lost"
        )
        assert verdict.holds, verdict
