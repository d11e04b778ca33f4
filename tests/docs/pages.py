"""The pages of docs/ and the Python programs in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# The URL of all programs, which a test replaces by its own broker's.
URL = "amqp://broker-a,broker-b"


def sections(page: str) -> dict[str, list[str]]:
    """Return the Python programs of a page's sections, by heading, in order."""
    _, *parts = re.split(r"^## ", (DOCS / page).read_text(), flags=re.MULTILINE)
    return {
        part.partition("\n")[0]: re.findall(r"^```python\n(.*?)^```", part, re.DOTALL | re.MULTILINE)
        for part in parts
    }
