"""A tenth of the soak; ``make soak-sites`` runs all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker_stub.sites.soak import Plan, soak

pytestmark = pytest.mark.slow


async def test_both_sites_are_the_same_after_many_cuts_and_failovers(tmp_path: Path) -> None:
    result = await soak(Plan(messages=10_000, cuts=30, failovers=3, seed=11), tmp_path)
    assert result.wrong == []
    assert result.cuts == 30
    assert result.failovers == 6
    assert result.settled == result.sent
