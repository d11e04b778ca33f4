"""Fixtures of the tests of the command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.members import Members


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    """Starts members; all of them end with the test."""
    with Members(tmp_path) as started:
        yield started


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A certificate authority that only this test knows."""
    return Authority(tmp_path / "authority")
