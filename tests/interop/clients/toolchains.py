"""The clients, and how each language's package manager builds the program on them.

A build goes to ``.clients``, and is skipped while its sources are those of the last one.  What the package
managers download stays in their own caches, for all clones.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.examples.program import ROOT

CACHE = ROOT / ".clients"
_SOURCES = Path(__file__).resolve().parent
# fe2o3-amqp and what it needs take a minute to compile on a machine that does nothing else.
_BUILD_TIMEOUT = 600.0
# rhea is a benchmark's too, which has it installed.
_NODE = ROOT / "benchmarks" / "node"
_DEBIAN = {
    "cargo": "cargo",
    "go": "golang-go",
    "java": "default-jdk-headless",
    "javac": "default-jdk-headless",
    "mvn": "maven",
    "node": "nodejs",
    "npm": "npm",
}
_RABBITMQ = ("rabbitmq-amqp-python-client==1.0.1", "packaging>=26,<27", "typing-extensions>=4.15,<5")


class MissingClientError(Exception):
    """A client cannot be had here; the text says why."""


@dataclass(frozen=True, slots=True)
class Command:
    """How to start a program: ``arguments`` before its own, and ``environment`` beside ours."""

    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client of AMQP 1.0, and our program on it.

    :param sources: the program's folder.
    :param build: builds into a folder, or raises ``MissingClientError``.
    :param prefix: of the addresses that it takes.
    :param list_announced: it follows the members that a primary announces, so that one of them is enough.
    """

    name: str
    version: str
    sources: str
    build: Callable[[Path], Command]
    prefix: str = ""
    list_announced: bool = False

    def command(self) -> Command:
        """Build what is not built, and say how to start it.

        :raises MissingClientError: when its toolchain or its packages cannot be had.
        """
        folder = CACHE / self.sources
        folder.mkdir(parents=True, exist_ok=True)
        return self.build(folder)


def _need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            raise MissingClientError(f"{tool} is not installed (Debian: {_DEBIAN[tool]})")


def _run(directory: Path, *command: str, environment: dict[str, str] | None = None) -> None:
    _need(command[0])
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=os.environ | (environment or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_BUILD_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise MissingClientError(f"{command[0]} {command[1]} took over {_BUILD_TIMEOUT:.0f} s") from None
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["no reason given"]
        errors = [line for line in lines if "error" in line.lower()] or lines[-1:]
        raise MissingClientError(f"{command[0]} {command[1]} failed: {errors[0]}")


def _checksum(*folders: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(path for folder in folders for path in folder.rglob("*") if path.is_file()):
        found.update(f"{path}\n".encode() + path.read_bytes())
    return found.hexdigest()


def _once(folder: Path, sources: Sequence[Path], build: Callable[[], None]) -> None:
    """Build, unless the last build was of the same sources; the stamp is written last."""
    stamp, checksum = folder / "built", _checksum(*sources)
    if not stamp.exists() or stamp.read_text() != checksum:
        stamp.unlink(missing_ok=True)
        build()
        stamp.write_text(checksum)


def _java(program: str) -> Callable[[Path], Command]:
    def build(folder: Path) -> Command:
        _need("java", "javac", "mvn")
        sources = _SOURCES / "java"
        goals = ("compile", "dependency:copy-dependencies", "-DincludeScope=runtime")
        places = (f"-Dbuild.folder={folder}", f"-DoutputDirectory={folder / 'lib'}")
        _once(folder, (sources,), lambda: _run(sources, "mvn", "-q", "-B", *goals, *places))
        # A small machine with one collector and one compiler: several programs share two cores.
        machine = ("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        return Command((*machine, "-cp", f"{folder / 'classes'}{os.pathsep}{folder / 'lib'}/*", program))

    return build


def _go(folder: Path) -> Command:
    program, sources = folder / "client", _SOURCES / "go"
    options = ("-trimpath", "-buildvcs=false", "-o", str(program))
    _once(folder, (sources,), lambda: _run(sources, "go", "build", *options, "."))
    return Command((str(program),))


def _rust(folder: Path) -> Command:
    environment = {"CARGO_TARGET_DIR": str(folder)}
    sources = _SOURCES / "rust"
    build = ("cargo", "build", "--quiet", "--locked")
    _once(folder, (sources,), lambda: _run(sources, *build, environment=environment))
    return Command((str(folder / "debug" / "client"),))


def _node(folder: Path) -> Command:
    _need("node")
    packages = folder / "node_modules"
    installed = _NODE / "node_modules"
    if (installed / "rhea").is_dir():
        packages = installed
    else:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(_NODE / name, folder)
        install = ("npm", "ci", "--no-audit", "--no-fund", "--silent")
        _once(folder, (_SOURCES / "node",), lambda: _run(folder, *install))
    return Command(("node", str(_SOURCES / "node" / "client.js")), (("NODE_PATH", str(packages)),))


def _python(folder: Path) -> Command:
    # Beside .venv, whose proton it uses: its other dependencies are newer than those of the analysis.
    packages = folder / "packages"
    options = ("-q", "--disable-pip-version-check", "--no-deps", "--upgrade", "--target", str(packages))
    install = (sys.executable, "-m", "pip", "install", *options, *_RABBITMQ)
    _once(folder, (_SOURCES / "python",), lambda: _run(folder, *install))
    program = str(_SOURCES / "python" / "rabbitmq_amqp.py")
    return Command((sys.executable, program), (("PYTHONPATH", str(packages)),))


CLIENTS = (
    Client(name="qpid-jms", version="2.10.0", sources="java", build=_java("Jms"), list_announced=True),
    Client(name="protonj2", version="1.0.0", sources="java", build=_java("ProtonJ2")),
    Client(name="go-amqp", version="1.7.0", sources="go", build=_go),
    Client(name="fe2o3-amqp", version="0.17.0", sources="rust", build=_rust),
    Client(name="rhea", version="3.0.5", sources="node", build=_node),
    Client(name="rabbitmq-amqp", version="1.0.1", sources="python", build=_python, prefix="/queues/"),
)
