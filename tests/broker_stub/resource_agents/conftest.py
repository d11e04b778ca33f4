from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker_stub.resource_agents.nodes import Node, cluster


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node without a running member."""
    with cluster(tmp_path, "north") as [node]:
        yield node


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    """Two nodes without running members."""
    with cluster(tmp_path, "north", "south") as nodes:
        yield nodes
