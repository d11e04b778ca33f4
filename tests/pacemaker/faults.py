"""Faults of a primary under counted traffic, and the measurements of each."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable

from tests.pacemaker.cluster import Cluster, elapsed
from tests.pacemaker.node import Node, wait_for
from tests.pacemaker.page import blocks
from tests.pacemaker.traffic import Traffic

Fault = Callable[[Cluster, Node], None]


def kill(cluster: Cluster, primary: Node) -> None:
    cluster.member_signal(primary, signal.SIGKILL)


def pause(cluster: Cluster, primary: Node) -> None:
    cluster.member_signal(primary, signal.SIGSTOP)


def move_with_crmsh(cluster: Cluster, primary: Node) -> None:
    cluster.manager().shell(
        blocks()["move with crmsh"].replace("broker-b.example", cluster.other(primary).name)
    )


def move_with_pcs(cluster: Cluster, primary: Node) -> None:
    cluster.manager().shell(blocks()["move with pcs"])


def stand_by(cluster: Cluster, primary: Node) -> None:
    cluster.manager().run("crm", "node", "standby", primary.name)


def after_standby(cluster: Cluster, primary: Node) -> None:
    cluster.manager().run("crm", "node", "online", primary.name)


def clear_moves(cluster: Cluster, _primary: Node) -> None:
    cluster.manager().shell(blocks()["clear with crmsh"])


def nothing(_cluster: Cluster, _primary: Node) -> None:
    """Do nothing: the fault needs no repair."""


def fail(
    cluster: Cluster,
    name: str,
    fault: Fault,
    repair: Fault,
    measured: Callable[[str], None],
    *,
    seed: int = 1,
) -> None:
    """Inject a fault under traffic. A new member must serve, the pair must recover, and no settled message
    may be lost.
    """
    primary = cluster.primary()
    with Traffic(cluster, seed) as traffic:
        began = time.monotonic()
        fault(cluster, primary)
        successor = cluster.wait_for_primary(other_than=primary)
        promoted = elapsed(began)
        since_monitor = cluster.recovery(primary) if primary.is_on else math.nan
        wait_for(lambda: cluster.has_vip(successor), "the virtual address", 120.0)
        moved = elapsed(began)
        repair(cluster, primary)
        cluster.wait_until_ready(len(cluster.nodes) - 1)
        whole = elapsed(began)
        verdict = traffic.finish()
    monitored = "" if math.isnan(since_monitor) else f" ({since_monitor} s after a monitor failed)"
    measured(
        f"{name}: promoted after {promoted} s{monitored},"
        f" address moved after {moved} s, all ready after {whole} s;"
        f" {verdict.acknowledged} acknowledged, {len(verdict.lost)} lost, {verdict.duplicates} duplicates"
    )
    assert verdict.holds, verdict
    assert verdict.acknowledged > 0
    cluster.wait_until_idle()
