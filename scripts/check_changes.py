"""Refuse notes in ``changes/`` that towncrier would drop or print wrongly: ``scripts/check_changes.py``.

towncrier itself checks the names (``ISSUE.KIND.md``, ``+SLUG.KIND.md``).  It drops a note without text
silently, and a heading in a note would break the changelog.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_NAMES = "a name is ISSUE.KIND.md or +SLUG.KIND.md (changes/README.md)"
_HEADING = re.compile(r"#{1,6}(?:\s|$)")  # "#12 is fixed" is not a heading


def complaints(root: Path) -> Iterator[str]:
    """Yield one line for each fault."""
    texts = {path.name: _text(path) for path in sorted((root / "changes").iterdir())}
    strays = [name for name, text in texts.items() if text is None]
    for name in strays:
        yield f"changes/{name}: not a Markdown file of UTF-8 text, so no note: move it away; {_NAMES}"
    if not strays:  # towncrier would stop at a stray file
        yield from _misnamed(root)
    for name, text in texts.items():
        if text is not None and not text.strip():
            yield f"changes/{name}: empty: say what users notice"
        elif text and name != "README.md" and any(map(_HEADING.match, text.splitlines())):
            yield f"changes/{name}: has a heading: a note is a sentence or two"


def _text(path: Path) -> str | None:
    """Return the text of a file that may be a note, None for anything else."""
    if path.suffix != ".md" or not path.is_file():
        return None
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def _misnamed(root: Path) -> Iterator[str]:
    """Yield a line if towncrier refuses a name."""
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "0"]
    drafted = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if drafted.returncode:
        reason = drafted.stderr.partition("Error: ")[2].partition("\n")[0] or drafted.stderr.strip()
        yield f"changes/: {reason}: {_NAMES}"


def main() -> int:
    """Print every fault and return 1 if there is one."""
    found = list(complaints(ROOT))
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
