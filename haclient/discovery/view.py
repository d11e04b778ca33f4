"""What the driver of a search knows when it asks what to do now."""

from __future__ import annotations

from dataclasses import dataclass

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.topology import Topology


@dataclass(slots=True)
class View:
    """What ``Search.next`` was asked with.  ``candidates`` leaves out those that its rule 6 bars."""

    now: float
    topology: Topology
    candidates: tuple[Endpoint, ...]
    search_owner: bool
    free_dials: int | None
    resolving: bool
