"""The diagrams of docs/internals/ equal the tables in the code."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parent.parent / "scripts" / "state_diagrams.py"))


@pytest.mark.parametrize("page", SCRIPT["pages"](), ids=lambda page: page.stem)
def test_the_diagram_is_current(page: Path) -> None:
    """``scripts/state_diagrams.py`` writes it."""
    text = page.read_text()
    assert text.count("<!-- moves -->\n```mermaid\n") == 1
    assert SCRIPT["fill"](text, SCRIPT["pages"]()[page]) == text
