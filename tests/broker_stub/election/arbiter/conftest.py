"""The three arbiters, each by a URL, and one ZooKeeper for all tests here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from broker_stub.election.arbiter import Arbiter, open_arbiter
from tests.zookeeper import ZooKeeper

# Opens the arbiter of a test, once for each member.
Open = Callable[[], Arbiter]


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="session")
def paths() -> Iterator[int]:
    return count(1)


@pytest.fixture(params=["directory", "zookeeper"])
def url(request: pytest.FixtureRequest, tmp_path: Path, paths: Iterator[int]) -> str:
    """Return the URL of an unused arbiter that several processes can share."""
    if request.param == "directory":
        return f"directory:{tmp_path}"
    server: ZooKeeper = request.getfixturevalue("zookeeper")
    return server.url(f"/haclient/test-{next(paths)}")


@pytest.fixture(params=["directory", "zookeeper", "memory"])
def open_it(request: pytest.FixtureRequest, tmp_path: Path, paths: Iterator[int]) -> Open:
    """Return an opener of any unused arbiter."""
    if request.param == "memory":
        one = open_arbiter("memory:")
        return lambda: one
    if request.param == "directory":
        return lambda: open_arbiter(f"directory:{tmp_path}")
    server: ZooKeeper = request.getfixturevalue("zookeeper")
    url = server.url(f"/haclient/test-{next(paths)}")
    return lambda: open_arbiter(url)
