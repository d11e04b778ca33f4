"""Refuse notes in ``changes/`` that no changelog can have: ``scripts/check_changes.py``.

towncrier judges the names (``ISSUE.KIND.md``, ``+SLUG.KIND.md``).  A note without text would vanish without a
word, and one with a heading would break the page.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def complaints(root: Path) -> Iterator[str]:
    """One line for each fault."""
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "0"]
    drafted = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if drafted.returncode:
        reason = drafted.stderr.partition("Error: ")[2].partition("\n")[0] or drafted.stderr.strip()
        yield f"changes/: {reason}: a name is ISSUE.KIND.md or +SLUG.KIND.md (changes/README.md)"
    for note in sorted((root / "changes").iterdir()):
        text = note.read_text().strip()
        if not text:
            yield f"changes/{note.name}: empty: say what users notice"
        elif note.name != "README.md" and any(line.startswith("#") for line in text.splitlines()):
            yield f"changes/{note.name}: has a heading: a note is a sentence or two"


def main() -> int:
    """Print what was found; 1 if anything was."""
    found = list(complaints(ROOT))
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
