"""Starts Python processes of this package without what lies in the working directory.

``python -m`` and ``python -c`` put the working directory first on the path: a ``click.py`` that somebody left
in ``/tmp`` would run in each process that a command starts there, with the rights of whoever starts it.
``-P`` and ``PYTHONSAFEPATH`` (Python 3.11) leave it out; an empty entry of ``PYTHONPATH`` means the same
directory, and is dropped.
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
    """The beginning of a command line that runs a module with this very Python."""
    return sys.executable, "-P", "-m", module


def module_environment() -> dict[str, str]:
    """This process's environment, with this very package importable."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(_SOURCES), *filter(None, given)])}


@contextmanager
def safe_path() -> Iterator[None]:
    """Let each Python that is started meanwhile, by whichever library, leave out the working directory."""
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before
