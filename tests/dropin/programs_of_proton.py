"""Programs written for proton, run unchanged or with only the import line changed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.examples.program import PATIENCE, ROOT, Program

_PROGRAMS = Path(__file__).parent / "programs"
_IMPORT = re.compile(r"^from proton\.(reactor|utils) import", re.MULTILINE)


class Programs:
    """Writes the changed programs into a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder

    def theirs(self, name: str) -> Path:
        """Return the program as it was written."""
        return _PROGRAMS / f"{name}.py"

    def ours(self, name: str) -> Path:
        """Return the program with its import lines changed."""
        source, count = _IMPORT.subn(r"from haclient.\1 import", self.theirs(name).read_text())
        assert count, f"{name} imports neither proton.reactor nor proton.utils"
        changed = self._folder / f"{name}.py"
        changed.write_text(source)
        return changed

    def start(self, name: str, *arguments: str) -> Program:
        """Start the changed program as a process to follow."""
        return Program(str(self.ours(name).with_suffix("")), *arguments)

    def start_theirs(self, name: str, *arguments: str) -> Program:
        """Start the program as it was written, as a process to follow."""
        return Program(str(self.theirs(name).with_suffix("")), *arguments)


def run(program: Path, *arguments: str) -> str:
    """Run a program; return its output with standard error.  It must exit with 0."""
    ended = subprocess.run(
        (sys.executable, str(program), *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout
