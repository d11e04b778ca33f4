from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from broker_stub.local_cluster.supervisor import LocalCluster


@pytest.fixture
async def pair() -> AsyncIterator[LocalCluster]:
    """A separate pair of members for every test, one of them primary."""
    async with LocalCluster() as pair:
        yield pair
