"""Start Python processes of this package without importing from the working directory.

``python -m`` and ``python -c`` put the working directory first on the path.  A stray ``click.py`` in ``/tmp``
would run in each process that a command starts there, with the rights of the user.  ``-P`` and
``PYTHONSAFEPATH`` (Python 3.11) exclude the directory; an empty entry of ``PYTHONPATH`` means the same
directory, and is removed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SOURCES = Path(__file__).resolve().parents[2]
_SAFE_PATH = "PYTHONSAFEPATH"


def module_command(module: str) -> tuple[str, ...]:
    """Return the beginning of a command line that runs a module with this Python."""
    return sys.executable, "-P", "-m", module


def module_environment() -> dict[str, str]:
    """Return this process's environment, with this package importable."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(_SOURCES), *filter(None, given)])}


@contextmanager
def safe_path() -> Iterator[None]:
    """Exclude the working directory from every Python started in this context, by any library."""
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before
