"""What holds for every test."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

_ANALYSIS = Path(__file__).parent / "analysis"

# Hypothesis fails an example that takes over 0.2 s; on a busy machine that says nothing about the code.
settings.register_profile("haclient", deadline=None)
settings.load_profile("haclient")


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together what shares something dear: Spark's session, and the fixtures of one file."""
    for item in items:
        group = "spark" if _ANALYSIS in item.path.parents else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
