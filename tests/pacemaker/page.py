"""The commands of ``docs/resource-managers.md``, unchanged.

Each block of commands follows a comment ``<!-- run: NAME -->``. The tests run exactly these blocks.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "resource-managers.md"
_BLOCK = re.compile(r"<!-- run: (?P<name>[^>]+?) -->\n+(?P<block>(?: *\n| {4}.*\n)+)")


def blocks() -> dict[str, str]:
    """Return every block by its name."""
    found: dict[str, str] = {}
    for match in _BLOCK.finditer(PAGE.read_text()):
        # Inside a list the block is indented further.
        found[match["name"]] = textwrap.dedent(match["block"]).strip() + "\n"
    return found
