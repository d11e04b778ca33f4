"""Our broker, for other clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from broker_stub.local_cluster.supervisor import LocalCluster, LocalClusterOptions
from tests.members import Member, Members

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder as slow: they start other brokers and clients."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Member]:
    """A single member that is primary."""
    with Members(tmp_path) as members:
        yield members.start("alone", role="primary")


@pytest.fixture
async def pair() -> AsyncIterator[LocalCluster]:
    """A pair whose dead member is not restarted."""
    async with LocalCluster(LocalClusterOptions(restart=False)) as pair:
        yield pair


@pytest.fixture
async def restarted() -> AsyncIterator[LocalCluster]:
    """A pair whose dead member restarts as a backup, as by default."""
    async with LocalCluster() as pair:
        yield pair
