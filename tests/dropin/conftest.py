from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from proton import Condition

from broker_stub.local_cluster.supervisor import LocalCluster
from haclient.testing.peers.listening import url
from haclient.testing.threads import in_thread
from haclient.utils import BlockingConnection
from tests.dropin.programs_of_proton import Programs
from tests.dropin.recorder import FAST, PATIENCE
from tests.members import Member, Members
from tests.peers.primary import Primary, primary


@pytest.fixture
def broker(members: Members) -> Member:
    """A member that serves alone."""
    return members.start("alone", role="primary")


@pytest.fixture
async def pair() -> AsyncIterator[LocalCluster]:
    """Two members that replicate to one another."""
    async with LocalCluster() as pair:
        yield pair


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """Programs written for proton, with and without the changed import line."""
    return Programs(tmp_path / "programs")


@pytest.fixture
def peer() -> Iterator[Primary]:
    """A primary on another thread; every link to ``forbidden`` is refused."""
    refusal = Condition("amqp:unauthorized-access", "not for you")
    with in_thread(primary(refuses={"forbidden": refusal})) as peer:
        yield peer


@pytest.fixture
def connection(peer: Primary) -> Iterator[BlockingConnection]:
    """A blocking connection to that primary."""
    with BlockingConnection(url(peer), timeout=PATIENCE, **FAST) as connection:
        yield connection
