from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from broker_stub.manager import Pair
from tests.dropin.programs_of_proton import Programs
from tests.members import Member, Members


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    """Starts members; all of them end with the test."""
    with Members(tmp_path) as started:
        yield started


@pytest.fixture
def broker(members: Members) -> Member:
    """A member that serves alone."""
    return members.start("alone", role="primary")


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """Two members that replicate to one another."""
    async with Pair() as pair:
        yield pair


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """Programs written for proton, and the same with the import line changed."""
    return Programs(tmp_path / "programs")
