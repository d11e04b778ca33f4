"""Builds programs with their languages' package managers, once for each state of the sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.examples.program import ROOT

CACHE = ROOT / ".clients"
"""The folder for builds. Downloads stay in the package managers' own caches, shared by all clones."""

# Seconds. fe2o3-amqp and its dependencies compile for a minute on an idle machine.
_TIMEOUT = 600.0
_DEBIAN = {
    "cargo": "cargo",
    "go": "golang-go",
    "java": "default-jdk-headless",
    "javac": "default-jdk-headless",
    "mvn": "maven",
    "node": "nodejs",
    "npm": "npm",
}


class MissingClientError(Exception):
    """A client cannot be built or installed here; the text has the reason."""


def need(*tools: str) -> None:
    """Check that these tools are installed.

    :raises MissingClientError: if one is not on the PATH; it names Debian's package.
    """
    for tool in tools:
        if shutil.which(tool) is None:
            raise MissingClientError(f"{tool} is not installed (Debian: {_DEBIAN.get(tool, tool)})")


def run_tool(directory: Path, *command: str, environment: dict[str, str] | None = None) -> None:
    """Run a package manager.

    :param environment: variables in addition to this process's own.
    :raises MissingClientError: if it is missing, fails, or takes too long.
    """
    need(command[0])
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=os.environ | (environment or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise MissingClientError(f"{command[0]} {command[1]} took over {_TIMEOUT:.0f} s") from None
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["no reason given"]
        errors = [line for line in lines if "error" in line.lower()] or lines[-1:]
        raise MissingClientError(f"{command[0]} {command[1]} failed: {errors[0]}")


def build_once(folder: Path, sources: Sequence[Path], build: Callable[[], None]) -> None:
    """Build into a folder, unless its last build had the same sources. The stamp is written last.

    :param sources: files, and folders with all their files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stamp, checksum = folder / "built", _checksum(sources)
    if not stamp.exists() or stamp.read_text() != checksum:
        stamp.unlink(missing_ok=True)
        build()
        stamp.write_text(checksum)


def _checksum(sources: Sequence[Path]) -> str:
    found = hashlib.sha256()
    paths = [path for source in sources for path in (source, *source.rglob("*")) if path.is_file()]
    for path in sorted(paths):
        found.update(f"{path}\n".encode() + path.read_bytes())
    return found.hexdigest()


def maven(sources: Path, folder: Path) -> str:
    """Compile one of our projects with Maven, and return its class path.

    :raises MissingClientError: if Java, Maven or a dependency is missing.
    """
    need("java", "javac", "mvn")
    goals = ("compile", "dependency:copy-dependencies", "-DincludeScope=runtime")
    places = (f"-Dbuild.folder={folder}", f"-DoutputDirectory={folder / 'lib'}")
    build_once(folder, (sources,), lambda: run_tool(sources, "mvn", "-q", "-B", *goals, *places))
    return f"{folder / 'classes'}{os.pathsep}{folder / 'lib'}/*"
