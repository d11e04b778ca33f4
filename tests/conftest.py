"""Settings and fixtures of all tests."""

from __future__ import annotations

import gc
import logging
import os
import signal
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from tests.certificates import Authority
from tests.identity_provider import IdentityProvider
from tests.members import Member, Members

_ROOT = Path(__file__).resolve().parent.parent
_SPARK = "the Spark session"
# Few files have tests of many seconds: they start first, or one process would run them last.
_LONG = (
    "tests/analysis/",
    "tests/benchmarks/",
    "tests/broker_stub/replication/",
    "tests/faults/",
    "tests/interop/",
    "tests/simulation/",
    "tests/testing/",
)

# Some hundred processes start; with this variable, set by container images, each compiles all modules
# again, which takes a third of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell starts background jobs with Ctrl-C ignored, and every child inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hypothesis fails an example above 0.2 s, which on a busy machine says nothing about the code.
settings.register_profile("haclient", deadline=None)
settings.load_profile("haclient")


class _ByFile(LoadFileScheduling):  # type: ignore[misc]  # has no types
    """A file's tests share fixtures.  The files that name a Spark session share one, and so one process."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return _SPARK if _names_a_session(file) else file


@cache
def _names_a_session(file: str) -> bool:
    return file.startswith("tests/analysis/") and "SparkSession" in (_ROOT / file).read_text()


@pytest.hookimpl(optionalhook=True)  # -p no:xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByFile:
    """Return a pytest-xdist scheduler that keeps shared fixtures in one process."""
    return _ByFile(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of ``make test-slow-short``."""
    parser.addoption("--quarter", type=int, metavar="DAY", help="run a quarter of the files, by the day")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select a quarter of the files if asked to, and put the long files first."""
    day = config.getoption("quarter")
    if day is not None:
        parts: dict[bool, list[pytest.Item]] = {True: [], False: []}
        for item in items:
            parts[zlib.crc32(_file_of(item)) % 4 == day % 4].append(item)
        config.hook.pytest_deselected(items=parts[False])
        items[:] = parts[True]
    items.sort(key=lambda item: not item.nodeid.startswith(_LONG))


def _file_of(item: pytest.Item) -> bytes:
    return item.nodeid.partition("::")[0].encode()


def pytest_collection_finish() -> None:
    """Hide nine thousand tests from the garbage collector, which some hundred tests call to find leaks."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> IdentityProvider:
    """Issues tokens, for a file of tests."""
    return IdentityProvider(tmp_path_factory.mktemp("provider"))


@pytest.fixture(scope="module")
def token_member(tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider) -> Iterator[Member]:
    """A primary that takes tokens only, for tests that leave it as it is."""
    with Members(tmp_path_factory.mktemp("member")) as members:
        yield members.start("tokens", role="primary", anonymous=False, **provider.options)


@pytest.fixture(autouse=True)
def _log_levels() -> Iterator[None]:
    """Restore log levels: a program run inside the test process may silence the log of later tests."""
    loggers = [logging.getLogger(name) for name in ("haclient", "broker_stub", "kazoo")]
    levels = [each.level for each in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    """Starts members; all of them end with the test."""
    with Members(tmp_path) as started:
        yield started


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A certificate authority for this test only."""
    return Authority(tmp_path / "authority")
