from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from broker_stub.local_cluster.supervisor import LocalCluster


@pytest.fixture
async def pair() -> AsyncIterator[LocalCluster]:
    """Two members of its own for every test, one of them primary."""
    async with LocalCluster() as pair:
        yield pair
