from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from broker_stub.local_cluster.supervisor import Pair


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """Two members of its own for every test, one of them primary."""
    async with Pair() as pair:
        yield pair
