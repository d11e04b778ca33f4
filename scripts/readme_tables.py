"""Write the generated tables of README.md anew: run it after changing an option.

.venv/bin/python scripts/readme_tables.py
"""

from __future__ import annotations

import re
from pathlib import Path

from haclient.discovery.options import options_table

README = Path(__file__).resolve().parent.parent / "README.md"


def fill(text: str, name: str, content: str) -> str:
    """The text with ``content`` between the markers of that name."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}{content.strip()}\n{match[2]}", text)


if __name__ == "__main__":
    README.write_text(fill(README.read_text(), "options", options_table()))
