"""The clients, and the builds of their programs by each language's package manager."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.examples.program import ROOT
from tests.interop.clients.building import CACHE, build_once, maven, need, run_tool

_SOURCES = Path(__file__).resolve().parent
# A benchmark uses rhea too, and installs it there.
_NODE = ROOT / "benchmarks" / "node"
_RABBITMQ = ("rabbitmq-amqp-python-client==1.0.1", "packaging>=26,<27", "typing-extensions>=4.15,<5")


@dataclass(frozen=True, slots=True)
class Command:
    """A program's start: ``arguments`` before its own, and additional ``environment`` variables."""

    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """An AMQP 1.0 client, and our program on it.

    :param sources: the program's folder.
    :param build: builds into a folder, or raises ``MissingClientError``.
    :param prefix: the prefix of addresses for this client.
    :param list_announced: whether the client follows the members that a primary announces, so that one
        suffices.
    """

    name: str
    version: str
    sources: str
    build: Callable[[Path], Command]
    prefix: str = ""
    list_announced: bool = False

    def command(self) -> Command:
        """Build the program if necessary, and return the command that starts it.

        :raises MissingClientError: if its toolchain or its packages are missing.
        """
        folder = CACHE / self.sources
        folder.mkdir(parents=True, exist_ok=True)
        return self.build(folder)


def _java(program: str) -> Callable[[Path], Command]:
    def build(folder: Path) -> Command:
        # A small virtual machine with one collector and one compiler: several programs share two cores.
        machine = ("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        return Command((*machine, "-cp", maven(_SOURCES / "java", folder), program))

    return build


def _go(folder: Path) -> Command:
    program, sources = folder / "client", _SOURCES / "go"
    options = ("-trimpath", "-buildvcs=false", "-o", str(program))
    build_once(folder, (sources,), lambda: run_tool(sources, "go", "build", *options, "."))
    return Command((str(program),))


def _rust(folder: Path) -> Command:
    environment = {"CARGO_TARGET_DIR": str(folder)}
    sources = _SOURCES / "rust"
    build = ("cargo", "build", "--quiet", "--locked")
    build_once(folder, (sources,), lambda: run_tool(sources, *build, environment=environment))
    return Command((str(folder / "debug" / "client"),))


def _node(folder: Path) -> Command:
    need("node")
    packages = folder / "node_modules"
    installed = _NODE / "node_modules"
    if (installed / "rhea").is_dir():
        packages = installed
    else:
        manifests = [_NODE / "package.json", _NODE / "package-lock.json"]
        for manifest in manifests:
            shutil.copy(manifest, folder)
        install = ("npm", "ci", "--no-audit", "--no-fund", "--silent")
        build_once(folder, manifests, lambda: run_tool(folder, *install))
    return Command(("node", str(_SOURCES / "node" / "client.js")), (("NODE_PATH", str(packages)),))


def _python(folder: Path) -> Command:
    # Apart from .make-venv, whose proton it uses: its other dependencies are newer than the analysis needs.
    packages = folder / "packages"
    options = ("-q", "--disable-pip-version-check", "--no-deps", "--upgrade", "--target", str(packages))
    install = (sys.executable, "-m", "pip", "install", *options, *_RABBITMQ)
    build_once(folder, (Path(__file__),), lambda: run_tool(folder, *install))
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
