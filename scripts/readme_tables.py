"""Write the generated tables of README.md and docs/ anew: run it after changing an option or a telemetry key.

.venv/bin/python scripts/readme_tables.py
"""

from __future__ import annotations

import re
from pathlib import Path

from haclient.discovery.options import options_table
from haclient.telemetry.schema import markdown_table

ROOT = Path(__file__).resolve().parent.parent
TABLES = (
    (ROOT / "README.md", "options", options_table),
    (ROOT / "docs" / "telemetry.md", "keys", markdown_table),
)


def fill(text: str, name: str, content: str) -> str:
    """The text with ``content`` between the markers of that name."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}{content.strip()}\n{match[2]}", text)


if __name__ == "__main__":
    for page, name, table in TABLES:
        page.write_text(fill(page.read_text(), name, table()))
