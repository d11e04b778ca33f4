"""Where tables go."""

from __future__ import annotations

import sys

from rich.console import Console

# Where standard output is no terminal nothing wraps and nothing is cut.
_WIDE = 400


def wide_console() -> Console:
    """Standard output, as wide as the terminal, or as wide as it takes."""
    return Console(
        highlight=False, markup=False, soft_wrap=True, width=None if sys.stdout.isatty() else _WIDE
    )
