"""The limits on the combined cost of two inputs."""

from __future__ import annotations

import time

import pytest

from tests.fuzz.cost import at_most
from tests.fuzz.target import Defect


def test_a_block_within_its_limits_is_no_defect() -> None:
    with at_most(seconds=10, megabytes=10, what="little"):
        assert len(bytes(2**20)) == 2**20


def test_memory_that_is_free_again_counts() -> None:
    with (
        pytest.raises(Defect, match=r"much: 3\.0 MB, and 2 MB is the most"),
        at_most(seconds=10, megabytes=2, what="much"),
    ):
        bytes(3 * 2**20)


def test_processor_time_counts() -> None:
    with (
        pytest.raises(Defect, match=r"slow: 0\.\d+ s of processor time, and 0\.01 s is the most"),
        at_most(seconds=0.01, megabytes=10, what="slow"),
    ):
        _compute(0.02)


def _compute(seconds: float) -> None:
    began = time.process_time()
    while time.process_time() < began + seconds:
        pass


def test_an_error_of_the_block_is_its_own() -> None:
    with pytest.raises(ValueError, match="other"), at_most(seconds=10, megabytes=10, what="wrong"):
        raise ValueError("other")
